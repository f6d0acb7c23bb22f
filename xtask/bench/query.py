"""bench query: SQL beside DuckDB on Parquet, Lance and Deep Lake; vectors beside one pass over their bytes; S3. See `--help`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
from measure import in_own_process, median
from report import Report
from server import options

ROUNDS = 5
FILTER = "label IN (1, 2, 3) AND score > 0.9"
GROUP = "SELECT label, count(*) AS n, sum(score) AS total, max(id) AS last FROM items GROUP BY label"
JOIN = "SELECT count(*) AS n, sum(i.score) AS total FROM items i JOIN others o ON i.id = o.id WHERE o.label < 50"
WIDTH = 768
QUERIES = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where lakes are kept")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    folder = args.folder / "query"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report("query", args.json)
    report.say(f"{args.rows:,} rows (id, label, score, 40 bytes of text); times beside DuckDB on a Parquet file of the same rows")
    url = str(folder / "lake")
    scalars(report, folder, url, args.rows)
    tensors(report, url)
    vectors(report, url, max(args.rows // 5, 1_000))
    if "FOREBAY_BENCH_S3" in os.environ:
        on_s3(report)
    report.finish()
    return 0


def scalars(report: Report, folder: Path, url: str, count: int) -> None:
    """Filters, groups and joins of numbers and texts, beside others on the same rows."""
    import duckdb
    import lance
    import pyarrow as pa
    import pyarrow.parquet as pq

    db, peer = fb.connect(url, create=True), duckdb.connect()
    for number, name in enumerate(("items", "others")):
        columns = rows(count, number)
        make(db, name).append(columns)
        db.table(name).commit("rows")
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        peer.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
    db = fb.connect(url)
    table = pa.table(rows(count, 0))
    dataset = lance.write_dataset(table, str(folder / "items.lance"))

    def ours(sql: str) -> Callable[[], Any]:
        return lambda: db.execute(sql).to_arrow()

    def theirs(sql: str) -> Callable[[], Any]:
        return lambda: peer.sql(sql).to_arrow_table()

    ids = f"SELECT id FROM items WHERE {FILTER}"
    mine, duck, other = race(ours(ids), theirs(ids), lambda: dataset.to_table(columns=["id"], filter=FILTER))
    check(ours(ids)(), theirs(ids)())
    report.cost("filter, ids, beside DuckDB", mine * 1e3, "ms", duck * 1e3, bar=1)
    report.cost("filter, ids, beside Lance", mine * 1e3, "ms", other * 1e3, bar=1)
    deep = deeplake_filter(folder, rows(count, 0))
    if deep is not None:
        report.cost("filter, ids, beside Deep Lake's TQL", mine * 1e3, "ms", deep * 1e3, bar=10)
    for case, sql in (("group by", GROUP), ("join", JOIN)):
        mine, duck = race(ours(sql), theirs(sql))
        check(ours(sql)(), theirs(sql)())
        report.cost(f"{case}, beside DuckDB", mine * 1e3, "ms", duck * 1e3, bar=1 / 1.5)


def deeplake_filter(folder: Path, columns: dict[str, Any]) -> float | None:
    """Seconds of the filter by Deep Lake's query language; None if the package can't be had here."""
    try:
        import deeplake
    except ImportError:
        return None
    types = {"id": "int64", "label": "int32", "score": "float32", "text": "text"}
    ds = deeplake.create(str(folder / "items.deeplake"), schema=types)
    ds.append(columns)
    ds.commit()
    ds = deeplake.open_read_only(str(folder / "items.deeplake"))
    return race(lambda: ds.query("SELECT id WHERE (label = 1 OR label = 2 OR label = 3) AND score > 0.9")["id"][:])[0]


def tensors(report: Report, url: str) -> None:
    """The same filter where rows have 150 KB of pixels besides."""
    db, count = fb.connect(url), 2_000
    make(db, "narrow").append(rows(count, 2))
    db.table("narrow").commit("rows")
    wide = make(db, "wide", {"pixels": "uint8[224,224,3]"})
    for start in range(0, count, 200):
        part = {name: values[start : start + 200] for name, values in rows(count, 2).items()}
        wide.append(part | {"pixels": np.zeros((200, 224, 224, 3), np.uint8)})
    wide.commit("rows")
    db = fb.connect(url)
    texts = [f"SELECT id FROM {name} WHERE {FILTER}" for name in ("wide", "narrow")]
    beside, alone = race(*(lambda text=text: db.execute(text).to_arrow() for text in texts))
    report.cost("filter beside a tensor column", beside * 1e3, "ms", alone * 1e3, bar=0.9)
    pixels = "SELECT pixels FROM wide WHERE id = 77"
    plan = "\n".join(line["plan"] for line in db.execute(f"EXPLAIN ANALYZE {pixels}").to_list())
    if "rows_kept=1" not in plan or db.execute(pixels).to_arrow().num_rows != 1:
        raise AssertionError(plan)


def vectors(report: Report, url: str, count: int) -> None:
    """The nearest of vectors that lie in groups, as embeddings do: exactly, and through an index."""
    db, chance = fb.connect(url), np.random.default_rng(7)
    centers = chance.standard_normal((max(count // 200, 10), WIDTH), np.float32)
    values = centers[chance.integers(0, len(centers), count)]
    for start in range(0, count, 10_000):
        part = values[start : start + 10_000]
        part += chance.standard_normal(part.shape, np.float32)
    queries = values[chance.integers(0, count, QUERIES)] + 0.5 * chance.standard_normal((QUERIES, WIDTH), np.float32)
    data = ({"id": np.arange(start, min(start + 10_000, count)), "v": values[start : start + 10_000]} for start in range(0, count, 10_000))
    db.create_table("vectors", {"id": "int64", "v": f"float32[{WIDTH}]"}, data=data)
    db = fb.connect(url)
    near = "SELECT id FROM vectors ORDER BY v <-> $1 LIMIT 10"

    def asked(number: int) -> list[int]:
        return db.execute(near, [queries[number]]).to_arrow().column(0).to_pylist()

    flat = values.reshape(-1)
    exact, one_pass = race(lambda: asked(0), lambda: float(flat.view(np.uint64).max()))
    right = [np.argpartition(((values - query) ** 2).sum(1), 10)[:10] for query in queries]
    if set(asked(0)) != set(right[0].tolist()):
        raise AssertionError("the nearest vectors are others")
    name = f"top 10 of {count:,} x {WIDTH}"
    report.rate(f"exact {name}", values.nbytes / exact / 1e9, "GB/s", values.nbytes / one_pass / 1e9, bar=0.6)
    start = time.perf_counter()
    db.execute("CREATE INDEX near ON vectors USING ivf (v)")
    report.cost("  making an index", time.perf_counter() - start, "s", None)
    found = [len(set(asked(number)) & set(right[number].tolist())) for number in range(QUERIES)]
    times = [race(lambda number=number: asked(number), rounds=1)[0] for number in range(QUERIES)]
    report.rate(f"ivf {name}: recall", sum(found) / (10 * QUERIES), "", 1, bar=0.95)
    report.cost("  time beside exact", median(times) * 1e3, "ms", exact * 1e3, bar=20)


def on_s3(report: Report) -> None:
    """From SQL to the first batch of a selection that statistics prune, cold, behind a delay."""
    url, label = "s3://bench/query", np.repeat(np.arange(100, dtype=np.int32), 200)
    db = fb.connect(url, create=True, storage_options=options(os.environ["FOREBAY_BENCH_S3"]))
    parts = ({"label": part, "pixels": np.zeros((len(part), 3, 64, 64), np.uint8)} for part in np.split(label, 10))
    db.create_table("items", {"label": "int32", "pixels": "uint8[3,64,64]"}, data=parts)
    times = [in_own_process(first_batch, url) for _ in range(ROUNDS)]
    report.cost("SQL to first batch on S3, 20 ms a request", median(times) * 1e3, "ms", 500, bar=1)


def first_batch(url: str) -> float:
    import forebay as fb

    start = time.perf_counter()
    db = fb.connect(url, storage_options=options(os.environ["FOREBAY_BENCH_S3_DELAYED"]))
    loader = db.dataloader("SELECT pixels, label FROM items WHERE label = 37").batch_size(64).shuffle().to_numpy()
    batch = next(iter(loader))
    if not (batch["label"] == 37).all() or batch["pixels"].shape != (64, 3, 64, 64):
        raise AssertionError("the batch is another")
    return time.perf_counter() - start


def rows(count: int, seed: int) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    ids = chance.permutation(count)
    texts = [f"row {number:>8} of a table that is queried" for number in range(count)]
    return {"id": ids, "label": chance.integers(0, 100, count, np.int32), "score": chance.random(count, np.float32), "text": texts}


def make(db: Any, name: str, more: dict[str, str] | None = None) -> Any:
    columns = {"id": "int64", "label": "int32", "score": "float32", "text": "utf8"} | (more or {})
    return db.create_table(name, columns)


def race(*works: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """Median seconds of each, in turns, after one that is not counted."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, found in zip(works, times):
            start = time.perf_counter()
            work()
            if number:
                found.append(time.perf_counter() - start)
    return [median(found) for found in times]


def check(ours: Any, theirs: Any) -> None:
    """Both gave the same rows, sums of floats up to rounding."""

    def sorted_rows(table: Any) -> list[tuple[Any, ...]]:
        listed = [tuple(row.values()) for row in table.to_pylist()]
        return sorted(tuple(float(f"{value:.5g}") if isinstance(value, float) else value for value in row) for row in listed)

    if sorted_rows(ours) != sorted_rows(theirs):
        raise AssertionError("DuckDB gives other rows")


if __name__ == "__main__":
    sys.exit(main())
