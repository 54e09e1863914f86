"""A cache tier in front of the target: a Redis server and a gateway, both ours, for faults to act on."""
