"""Sweeps: what is asked, one evaluation after the other, and whether the machine was calm meanwhile."""
