"""``python -m forebay``: the command."""

from ._cli import main

main()
