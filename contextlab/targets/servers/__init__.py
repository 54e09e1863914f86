"""Servers that the tool starts as processes of their own: llama.cpp's, and the fakes. Not imported to list targets."""
