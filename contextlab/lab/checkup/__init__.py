"""Looks at what a run needs, before there is one: nothing is changed, and no request is sent but to a target that was
named."""
