"""Faults on the target's processes and machine: who is hit, what is done to them, when, and what the kernel saw."""
