"""Chaos experiments: what is asked, the two passes of each, and what stands beside them."""
