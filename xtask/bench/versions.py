"""bench versions: commits, branches, merges and diffs of a table of a million rows, and what they cost at any size."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import median
from report import Report

ROUNDS = 5
FRAGMENTS = 100
CHANGES = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where lakes are kept")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import forebay as fb

    path = args.folder / "lake-versions"
    shutil.rmtree(path, ignore_errors=True)
    report = Report("versions", args.json)
    report.say(f"{args.rows:,} rows in {FRAGMENTS} commits; times of durable commits, beside one durable file of 4 KiB")
    ds = fb.create(str(path), {"n": "int64", "x": "float32"})
    for part in np.array_split(np.arange(args.rows), FRAGMENTS):
        ds.append({"n": part, "x": part.astype(np.float32)})
        ds.commit("rows")
    step = args.rows // CHANGES
    times: dict[str, list[float]] = {}

    def timed(case: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        times.setdefault(case, []).append(time.perf_counter() - start)

    def one_row() -> None:
        ds.append({"n": [-1], "x": [0.5]})
        ds.commit("one row")

    for number in range(ROUNDS):
        timed("one durable file", lambda: durable(args.folder))
        timed("commit of one row", one_row)
        timed("branch", lambda: ds.branch(f"b{number}"))
        branch = fb.open(str(path), branch=f"b{number}")
        ours, theirs = np.arange(number, args.rows, step), np.arange(number + ROUNDS, args.rows, step)
        timed("update of 1,000 rows", lambda: ds.update(ours, {"x": np.full(len(ours), number, np.float32)}))
        branch.update(theirs, {"x": np.full(len(theirs), -number, np.float32)})
        timed("merge, 1,000 changes on each side", lambda: ds.merge(f"b{number}"))
        timed("diff of 1,000 changed rows", lambda: ds.diff(ds.log(2)[1].id))
        found = ds["x"][:]
        if not ((found[ours] == number).all() and (found[theirs] == -number).all() and len(ds) == args.rows + number + 1):
            raise AssertionError("the merge is wrong")
    for case in times:
        report.cost(case, median(times[case]) * 1e3, "ms", None)
    report.cost("merge against a second", median(times["merge, 1,000 changes on each side"]) * 1e3, "ms", 1000, bar=1)
    # What the crate's own tests count: requests, bytes and latencies at sizes that would take hours to write.
    for line in os.environ.get("FOREBAY_BENCH_COSTS", "").splitlines():
        found = json.loads(line)
        add = report.rate if found["more"] else report.cost
        add(found["case"], found["value"], found["unit"], found["floor"], found["bar"])
    report.finish()
    return 0


def durable(folder: Path) -> None:
    """Writes a file of 4 KiB as a store that survives power loss must: file, sync, name, sync of the folder."""
    path = folder / "durable"
    with open(f"{path}.tmp", "wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


if __name__ == "__main__":
    sys.exit(main())
