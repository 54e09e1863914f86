"""Undo that survives SIGKILL: the record written before each deed, the watchdog, what `contextlab recover` does."""
