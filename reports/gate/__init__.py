"""How a gate is told: as text, JSON and live."""
