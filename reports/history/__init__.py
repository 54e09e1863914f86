"""How many runs are told together: as text and as a page."""
