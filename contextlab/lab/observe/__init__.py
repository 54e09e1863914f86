"""What is watched while a load runs: the target's processes, its health, what it frees afterwards."""
