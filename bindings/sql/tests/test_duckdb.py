"""Generated queries over generated tables: Forebay and DuckDB give the same rows."""

from __future__ import annotations

import math
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import forebay as fb

#: Queries of a table. FOREBAY_LONG=1 asks thousands.
QUERIES = 1_500 if os.environ.get("FOREBAY_LONG") else 60
TEXTS = ["", "a", "A", "ab", "ä", "z%", "x_y", "日本", "quote's", " lead", "long" * 20]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.25, 1e30, -1e30, math.inf, -math.inf, math.nan]
SCHEMA = {"i": "int64", "n": "int32?", "f": "float64?", "g": "float32", "t": "utf8?", "b": "bool?", "d": "timestamp?"}


def rows(chance: random.Random, count: int, first: int) -> dict[str, list[Any]]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def moment() -> Any:
        return np.datetime64(chance.randrange(-(10**15), 2 * 10**15), "us").item()

    span = range(count)
    return {
        "i": [first + k for k in span],
        "n": [maybe(chance.randrange(-5, 6)) for _ in span],
        "f": [maybe(chance.choice(FLOATS)) for _ in span],
        "g": [float(np.float32(chance.choice([f for f in FLOATS if abs(f) < 1e29 or math.isinf(f) or math.isnan(f)]))) for _ in span],
        "t": [maybe(chance.choice(TEXTS)) for _ in span],
        "b": [maybe(chance.random() < 0.5) for _ in span],
        "d": [maybe(moment()) for _ in span],
    }


def pair(folder: Path, seed: int) -> tuple[fb.Dataset, duckdb.DuckDBPyConnection]:
    """The same tables in both, after appends, deletes, updates and a merge."""
    chance = random.Random(seed)
    ds = fb.create(str(folder), SCHEMA, table="a")
    other = ds.create_table("b", SCHEMA)
    first = 0
    for table in (ds, other, ds, ds, other):
        count = chance.choice([0, 1, 7, 200])
        if count:
            table.append(rows(chance, count, first))
            table.commit()
        first += count
    if len(ds) == 0:
        ds.append(rows(chance, 20, first))
        ds.commit()
    gone = chance.sample(range(len(ds)), len(ds) // 5)
    if gone:
        ds.delete(gone)
    branch = ds.branch("side")
    branch.execute("UPDATE a SET n = 4, t = 'new' WHERE i % 11 = 3")
    ds.execute("UPDATE a SET f = -f WHERE i % 7 = 1")
    ds.merge("side")
    peer = duckdb.connect()
    peer.execute("SET TimeZone = 'UTC'")
    for table in ("a", "b"):
        held = ds.table(table)[:]
        columns = {}
        for name, values in held.items():
            listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
            columns[name] = listed
        kinds = {"i": pa.int64(), "n": pa.int32(), "f": pa.float64(), "g": pa.float32(), "t": pa.string(), "b": pa.bool_(), "d": pa.timestamp("us")}
        arrow = pa.table({name: pa.array(columns[name], kinds[name]) for name in SCHEMA})  # noqa: F841 - DuckDB finds it by name
        peer.execute(f"CREATE TABLE {table} AS SELECT * FROM arrow")
    return ds, peer


class Queries:
    """Random queries in the SQL that both know."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def literal(self, column: str) -> str:
        chance = self.chance
        if column in ("i", "n"):
            return str(chance.randrange(-6, 40))
        if column in ("f", "g"):
            return chance.choice(["0.0", "1.0", "-1.5", "0.25", "CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)"])
        if column == "t":
            return "'" + chance.choice(TEXTS).replace("'", "''") + "'"
        if column == "b":
            return chance.choice(["true", "false"])
        return "TIMESTAMP '" + chance.choice(["1970-01-01 00:00:00", "2001-09-09 01:46:40", "1950-01-01 00:00:00"]) + "'"

    def condition(self, qualifier: str = "", depth: int = 0) -> str:
        chance = self.chance
        if depth < 3 and chance.random() < 0.5:
            how = chance.choice(["AND", "OR", "NOT"])
            one = self.condition(qualifier, depth + 1)
            return f"(NOT {one})" if how == "NOT" else f"({one} {how} {self.condition(qualifier, depth + 1)})"
        column = chance.choice(list(SCHEMA))
        name = qualifier + column
        kind = chance.random()
        if kind < 0.15:
            return f"({name} IS {chance.choice(['', 'NOT '])}NULL)"
        if kind < 0.3 and column != "b":
            return f"({name} IN ({', '.join(self.literal(column) for _ in range(chance.randrange(1, 4)))}))"
        if kind < 0.4 and column != "b":
            return f"({name} BETWEEN {self.literal(column)} AND {self.literal(column)})"
        if kind < 0.5 and column == "t":
            return f"({name} LIKE '{chance.choice(['%', 'a%', '%b', '_', '%o%', ''])}')"
        if kind < 0.6:
            return f"({qualifier}n {chance.choice(['<', '>', '='])} {qualifier}i % 5)"
        how = ["=", "<>"] if column == "b" else ["=", "<>", "<", "<=", ">", ">="]
        return f"({name} {chance.choice(how)} {self.literal(column)})"

    def query(self) -> str:
        chance = self.chance
        where = f" WHERE {self.condition()}" if chance.random() < 0.8 else ""
        kind = chance.randrange(8)
        if kind == 0:
            return f"SELECT i, n, f, g, t, b, d FROM a{where}"
        if kind == 1:
            by = ", ".join(chance.sample(["n", "t", "b", "f", "g"], chance.randrange(1, 3)))
            return f"SELECT {by}, count(*), count(n), sum(n), min(i), max(t), min(d) FROM a{where} GROUP BY {by}"
        if kind == 2:
            join = chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
            on = chance.choice(["a.n = b.n", "a.t = b.t", "a.n = b.n AND a.b = b.b", "a.f = b.f"])
            return f"SELECT a.i, b.i, a.t, b.n FROM a {join} b ON {on} WHERE {self.condition('a.')}"
        if kind == 3:
            return f"SELECT DISTINCT {chance.choice(['n', 't, b', 'f', 'g, b'])} FROM a{where}"
        if kind == 4:
            column = chance.choice(["n", "t", "d", "f"])
            order = chance.choice(["ASC NULLS FIRST", "DESC NULLS LAST"])
            return f"SELECT i, {column} FROM a{where} ORDER BY {column} {order}, i LIMIT {chance.randrange(0, 30)}"
        if kind == 5:
            return f"SELECT i, row_number() OVER (PARTITION BY b ORDER BY i), sum(n) OVER (PARTITION BY t ORDER BY i) FROM a{where}"
        if kind == 6:
            return f"SELECT i FROM a WHERE n {chance.choice(['IN', 'NOT IN'])} (SELECT n FROM b WHERE {self.condition()} AND n IS NOT NULL)"
        how = chance.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        return f"SELECT n, t FROM a{where} {how} SELECT n, t FROM b"


def canonical(value: Any) -> Any:
    """NaN equals itself and -0 is 0; a sum of whole numbers is one, whatever type it comes in."""
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def total(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is None, str(type(value)), str(value)) for value in row)


def answers(table: Any) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(canonical(value) for value in row) for row in zip(*columns)]


@pytest.mark.parametrize("seed", range(6))
def test_generated_queries_give_what_duckdb_gives(tmp_path: Path, seed: int) -> None:
    ds, peer = pair(tmp_path / "lake", seed)
    queries = Queries(random.Random(1_000 + seed))
    for _ in range(QUERIES):
        sql = queries.query()
        ours = answers(ds.execute(sql).to_arrow())
        theirs = answers(peer.execute(sql).to_arrow_table())
        if "ORDER BY" not in sql or "OVER" in sql:
            ours, theirs = sorted(ours, key=total), sorted(theirs, key=total)
        assert ours == theirs, sql


@pytest.mark.parametrize("seed", range(3))
def test_generated_selections_are_the_rows_that_numpy_reads(tmp_path: Path, seed: int) -> None:
    ds, peer = pair(tmp_path / "lake", 100 + seed)
    queries = Queries(random.Random(2_000 + seed))
    for _ in range(QUERIES // 2):
        condition = queries.condition()
        theirs = peer.execute(f"SELECT i FROM a WHERE {condition}").to_arrow_table().column(0).to_pylist()
        found = ds.table("a").where(condition)["i"][:]
        assert sorted(found.tolist()) == sorted(theirs), condition
        numbers = ds.execute(f"SELECT _row FROM a WHERE {condition}").to_arrow().column(0).to_pylist()
        assert ds.table("a")["i"][numbers].tolist() == found.tolist(), condition
