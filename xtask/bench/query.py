"""bench query: SQL on local disk beside DuckDB on Parquet, and vectors beside one pass over their bytes. See `--help`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import median
from report import Report

ROUNDS = 5
FILTER = "label IN (1, 2, 3) AND score > 0.9"
GROUP = "SELECT label, count(*) AS n, sum(score) AS total, max(id) AS last FROM items GROUP BY label"
JOIN = "SELECT count(*) AS n, sum(i.score) AS total FROM items i JOIN others o ON i.id = o.id WHERE o.label < 50"
WIDTH = 768


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where lakes are kept")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    import forebay as fb

    folder = args.folder / "query"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report("query", args.json)
    report.say(f"{args.rows:,} rows (id, label, score, 40 bytes of text); times beside DuckDB on a Parquet file of the same rows")
    db, peer = fb.connect(str(folder / "lake"), create=True), duckdb.connect()
    for number, name in enumerate(("items", "others")):
        columns = rows(args.rows, number)
        table = _table(fb, db, name)
        table.append(columns)
        table.commit("rows")
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        peer.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
    tensors = 2_000
    wide = _table(fb, db, "wide", {"pixels": "uint8[224,224,3]"})
    for start in range(0, tensors, 200):
        part = {name: values[start : start + 200] for name, values in rows(tensors, 2).items()}
        wide.append(part | {"pixels": np.zeros((200, 224, 224, 3), np.uint8)})
    wide.commit("rows")
    narrow = _table(fb, db, "narrow")
    narrow.append(rows(tensors, 2))
    narrow.commit("rows")
    vectors = np.random.default_rng(7).standard_normal((max(args.rows // 5, 1), WIDTH), np.float32)
    table = db.table("items").create_table("vectors", {"id": "int64", "v": f"float32[{WIDTH}]"})
    table.append({"id": np.arange(len(vectors)), "v": vectors})
    table.commit("rows")
    db = fb.connect(str(folder / "lake"))

    def ours(sql: str, params: Any = None) -> Callable[[], Any]:
        return lambda: db.execute(sql, params).to_arrow()

    def theirs(sql: str) -> Callable[[], Any]:
        return lambda: peer.execute(sql).to_arrow_table()

    for case, sql, bar in (
        ("filter, ids", f"SELECT id FROM items WHERE {FILTER}", 1.0),
        ("group by", GROUP, 1 / 1.5),
        ("join", JOIN, 1 / 1.5),
    ):
        mine, other = race(ours(sql), theirs(sql))
        check(ours(sql)(), theirs(sql)())
        report.cost(case, mine * 1e3, "ms", other * 1e3, bar=bar)
    beside, alone = race(ours(f"SELECT id FROM wide WHERE {FILTER}"), ours(f"SELECT id FROM narrow WHERE {FILTER}"))
    report.cost("filter beside a tensor column", beside * 1e3, "ms", alone * 1e3, bar=0.9)
    query = vectors[0] + 0.01
    near = "SELECT id FROM vectors ORDER BY v <-> $1 LIMIT 10"
    flat = vectors.reshape(-1)
    mine, one_pass = race(ours(near, [query]), lambda: float(flat.view(np.uint64).max()))
    exact = np.argsort(((vectors - query) ** 2).sum(1), kind="stable")[:10]
    if ours(near, [query])().column(0).to_pylist() != exact.tolist():
        raise AssertionError("the nearest vectors are others")
    report.rate(f"exact top 10 of {len(vectors):,} x {WIDTH}", vectors.nbytes / mine / 1e9, "GB/s", vectors.nbytes / one_pass / 1e9, bar=0.6)
    report.finish()
    return 0


def rows(count: int, seed: int) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    ids = chance.permutation(count)
    texts = [f"row {number:>8} of a table that is queried" for number in range(count)]
    return {"id": ids, "label": chance.integers(0, 100, count, np.int32), "score": chance.random(count, np.float32), "text": texts}


def _table(fb: Any, db: Any, name: str, more: dict[str, str] | None = None) -> Any:
    columns = {"id": "int64", "label": "int32", "score": "float32", "text": "utf8"} | (more or {})
    return fb.create(db.url, columns, table=name)


def race(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of each, in turns, after one that is not counted."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for work, found in zip((one, other), times):
            start = time.perf_counter()
            work()
            if number:
                found.append(time.perf_counter() - start)
    return median(times[0]), median(times[1])


def check(ours: Any, theirs: Any) -> None:
    """Both gave the same rows, sums of floats up to rounding."""

    def sorted_rows(table: Any) -> list[tuple[Any, ...]]:
        listed = [tuple(row.values()) for row in table.to_pylist()]
        return sorted(tuple(float(f"{value:.5g}") if isinstance(value, float) else value for value in row) for row in listed)

    if sorted_rows(ours) != sorted_rows(theirs):
        raise AssertionError("DuckDB gives other rows")


if __name__ == "__main__":
    sys.exit(main())
