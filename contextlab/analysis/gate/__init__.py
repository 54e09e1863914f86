"""The regression gate: blocks of measurements of two arms in, a verdict and an exit code out; pure."""
