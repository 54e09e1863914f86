"""contextlab: find out how an LLM server breaks at the edge of its context window."""

__version__ = "0.1.0"
