"""The command ``forebay``, as the console script starts it."""

from __future__ import annotations

import signal
import sys

from . import _forebay


def main() -> None:
    """Runs the command with this process's arguments and exits with its status."""
    # Python only notes Ctrl-C and raises later; a native command is to stop.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["sql"]:
        from ._sql_cli import main as sql

        sys.exit(sql(sys.argv[2:]))
    sys.exit(_forebay.run_cli(sys.argv))


if __name__ == "__main__":
    main()
