"""`python -m contextlab`: the same as the command `contextlab`."""

from contextlab.cli import main

main()
