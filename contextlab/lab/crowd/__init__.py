"""Clients that misbehave, as a fault says: a process of their own beside the load that is measured."""
