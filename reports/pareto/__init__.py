"""How a sweep is told: as text with a plot, JSON and live."""
