"""What a gate measures, launch by launch; its loop, its baselines, and where its settings are read."""
