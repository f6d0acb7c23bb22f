"""`cargo xtask bench order|loader`: results of a Rust program, which prints one JSON object a line, with floors and bars; for `loader`
also those of `decode.py`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

from report import Report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="where lakes are made")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    arguments = parser.parse_args()
    report = Report(os.environ["FOREBAY_BENCH_NAME"], arguments.json)
    program = subprocess.run(
        [os.environ["FOREBAY_BENCH_PROGRAM"], arguments.folder], stdout=subprocess.PIPE, text=True, check=True
    )
    for line in program.stdout.splitlines():
        found = json.loads(line)
        add = report.rate if found["more"] else report.cost
        add(found["case"], found["value"], found["unit"], found["floor"], found["bar"])
    if report.bench == "loader":
        from decode import measure

        measure(report, Path(arguments.folder))
    report.finish()


if __name__ == "__main__":
    main()
