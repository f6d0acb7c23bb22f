"""The command ``forebay sql``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ._errors import Error
from ._sql import Result, connect


def main(arguments: list[str]) -> int:
    """Runs statements and shows what the last one gave; 0 if they went through, 1 if not."""
    parser = argparse.ArgumentParser("forebay sql", description="Runs SQL statements about a lake.")
    parser.add_argument("url", help="the lake")
    parser.add_argument("statements", nargs="?", help="one or several, parted by semicolons; read from standard input if left out")
    parser.add_argument("--branch", help="the branch to read and change (default: main)")
    parser.add_argument("--create", action="store_true", help="make an empty lake if there is none")
    parser.add_argument("--files", metavar="FOLDER", help="where COPY may read and write")
    parser.add_argument("--memory", metavar="BYTES", help="what sorts and joins may hold before they spill, such as 4GiB")
    parser.add_argument("--json", action="store_true", help="rows as JSON, one a line")
    found = parser.parse_args(arguments)
    statements = sys.stdin.read() if found.statements is None else found.statements
    try:
        with connect(found.url, branch=found.branch, create=found.create) as lake:
            _show(lake.execute(statements, files=found.files, memory=found.memory), found.json)
    except Error as error:
        print(f"forebay: {error}", file=sys.stderr)
        return 1
    return 0


def _show(result: Result, as_json: bool) -> None:
    if result.what != "SELECT":
        done = {"done": result.what, "rows": result.rows, "commit": result.commit}
        print(json.dumps(done) if as_json else f"{result.what} {result.rows}" + (f" (commit {result.commit})" if result.commit else ""))
        return
    if as_json:
        for batch in result.to_reader():
            for row in batch.to_pylist():
                print(json.dumps(row, default=str))
        return
    names, rows = result.columns, [[_text(value) for value in row.values()] for row in result.to_list()]
    widths = [max([len(name), *(len(row[place]) for row in rows)]) for place, name in enumerate(names)]
    for line in [names, ["-" * width for width in widths], *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 120 else text[:119] + "\N{HORIZONTAL ELLIPSIS}"
