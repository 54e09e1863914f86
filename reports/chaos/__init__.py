"""How a chaos run is told: as text, JSON and live; the pages of HTML take their facts from here."""
