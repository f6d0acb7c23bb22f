"""SQL from Python: statements, results, selections that feed loaders."""

from __future__ import annotations

import datetime
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb


@pytest.fixture
def photos(tmp_path: Path) -> fb.Dataset:
    """200 rows in two commits: id, label = id % 4, score, image filled with id."""
    ds = fb.create(str(tmp_path / "lake"), {"id": "int64", "label": "int32", "score": "float32", "image": "uint8[8,8]"})
    for start, stop in ((0, 120), (120, 200)):
        ids = np.arange(start, stop)
        image = np.broadcast_to(ids[:, None, None], (len(ids), 8, 8)).astype(np.uint8)
        ds.append({"id": ids, "label": (ids % 4).astype(np.int32), "score": (ids / 200).astype(np.float32), "image": image})
        ds.commit(f"rows {start} to {stop}")
    return ds


def test_a_query_gives_arrow(photos: fb.Dataset) -> None:
    result = photos.execute("SELECT label, count(*) AS n, max(score) AS top FROM main GROUP BY label ORDER BY label")
    assert result.what == "SELECT" and result.columns == ["label", "n", "top"]
    table = result.to_arrow()
    assert table.column("n").to_pylist() == [50] * 4
    assert table.schema.field("label").type == pa.int32()
    with pytest.raises(fb.ArgumentError, match="read already"):
        result.to_arrow()
    image = pa.table(photos.execute("SELECT image FROM main WHERE id = 7")).column("image")
    assert image.chunk(0).storage.flatten().to_pylist() == [7] * 64


def test_values_come_by_position_and_by_name(photos: fb.Dataset) -> None:
    query = "SELECT id FROM main WHERE id < $1 AND score >= $2"
    assert [row["id"] for row in photos.execute(query, [4, 0.009]).to_list()] == [2, 3]
    assert photos.execute("SELECT id FROM main WHERE id = $which", {"which": np.int32(5)}).to_list() == [{"id": 5}]
    when = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    values = [None, True, "ä", b"\x00\xff", when, [1.5, 2], 2**63]
    row = photos.execute("SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d, $5 AS e, $6 AS f, $7 AS g", values).to_list()[0]
    assert row == {"a": None, "b": True, "c": "ä", "d": b"\x00\xff", "e": when.replace(tzinfo=None), "f": [1.5, 2.0], "g": 2**63}
    with pytest.raises(fb.SqlError, match=r"parameter \$3: no value was given"):
        photos.execute("SELECT $3", [1, 2])
    with pytest.raises(fb.SqlError, match="SQL has no type for object"):
        photos.execute("SELECT $1", [object()])


def test_a_change_moves_the_handle(photos: fb.Dataset) -> None:
    before = photos.commit_id
    done = photos.execute("DELETE FROM main WHERE label = 3")
    assert (done.what, done.rows, done.commit) == ("DELETE", 50, photos.commit_id) and done.commit != before
    assert len(photos) == 150
    photos.execute("UPDATE main SET score = 2 WHERE id = 0")
    assert photos[0]["score"] == 2
    with fb.open(photos.url, commit=before) as old:
        assert len(old) == 200
        with pytest.raises(fb.ReadOnlyError):
            old.execute("DELETE FROM main")


def test_a_selection_reads_and_loads(photos: fb.Dataset) -> None:
    view = photos.query("SELECT image, id FROM main WHERE label IN (1, 2) AND score > 0.9 ORDER BY id DESC")
    wanted = [i for i in range(199, -1, -1) if i % 4 in (1, 2) and np.float32(i / 200) > 0.9]
    assert view.columns == ["image", "id"] and view["id"][:].tolist() == wanted
    batches = list(view.numpy(4))
    assert np.concatenate([batch["id"] for batch in batches]).tolist() == wanted
    assert list(batches[0]) == ["image", "id"]
    again = pickle.loads(pickle.dumps(view))
    assert again.columns == view.columns and again["id"][:].tolist() == wanted
    assert photos.where("label = $1", [3])["id"][:].tolist() == list(range(3, 200, 4))
    assert len(photos.where("true")) == 200


def test_a_loader_is_told_step_by_step(photos: fb.Dataset) -> None:
    steps = photos.dataloader("SELECT id, image FROM main WHERE label = 1").batch_size(8)
    loader = steps.shuffle().options(seed=3).to_torch()
    ids = [int(i) for batch in loader for i in batch["id"]]
    assert sorted(ids) == list(range(1, 200, 4)) and ids != sorted(ids)
    kept = steps.filter(lambda rows: rows["id"] < 20, columns="id").columns("id").to_numpy()
    assert [list(batch) for batch in kept] == [["id"]]
    assert photos.dataloader().batch_size(50).to_numpy().schema.keys() == photos.schema.keys()
    with pytest.raises(fb.ArgumentError, match="batch_size"):
        photos.dataloader().to_numpy()


def test_what_a_query_computes_comes_with_its_rows(photos: fb.Dataset) -> None:
    text = "SELECT image, label * 2 AS double, score > 0.5 AS late, id FROM main WHERE id % 10 < 7 ORDER BY id DESC"
    ids = [i for i in range(199, -1, -1) if i % 10 < 7]
    double, late = [i % 4 * 2 for i in ids], [bool(np.float32(i / 200) > 0.5) for i in ids]
    view = photos.query(text)
    assert view.columns == ["image", "double", "late", "id"] and view.schema["double"].dtype == "int64"
    assert view["double"][:].tolist() == double and view["late"][3] == late[3] and view[-1]["double"] == double[-1]
    assert {name: view[5][name] for name in ("double", "late", "id")} == {"double": double[5], "late": late[5], "id": ids[5]}
    assert view.select([7, 7, 0])["double"][:].tolist() == [double[7], double[7], double[0]]
    kept = view.filter(lambda rows: (rows["double"] == 6) & rows["late"], ["double", "late"])
    assert kept["id"][:].tolist() == [i for i in ids if i % 4 == 3 and np.float32(i / 200) > 0.5]
    again = pickle.loads(pickle.dumps(view))
    assert again["double"][:].tolist() == double
    table = photos.materialize("doubled", view)
    assert table["double"][:].tolist() == double and table["late"][:].tolist() == late
    with pytest.raises(fb.UnsupportedError, match="'double' is computed"):
        photos.save_view("doubled", view)


@pytest.mark.parametrize("kind", ["numpy", "pytorch"])
def test_computed_columns_come_in_batches(photos: fb.Dataset, kind: str) -> None:
    view = photos.query("SELECT label * 2 AS double, image, id, CAST(score AS DOUBLE) / 2 AS half FROM main WHERE id <> 4")
    wanted = {i: (i % 4 * 2, float(np.float32(i / 200)) / 2) for i in range(200) if i != 4}

    def seen(batches: object) -> list[int]:
        ids = []
        for batch in batches:  # type: ignore[attr-defined]
            assert list(batch)[:4] == ["double", "image", "id", "half"]
            for i, double, half in zip(*(np.asarray(batch[name]) for name in ("id", "double", "half"))):
                assert (double, half) == wanted[int(i)]
            assert (np.asarray(batch["image"])[:, 0, 0] == np.asarray(batch["id"])).all()
            ids += np.asarray(batch["id"]).tolist()
        return ids

    loader = getattr(view, kind)(16, shuffle=True, seed=5)
    whole = seen(loader)
    assert sorted(whole) == sorted(wanted) and whole != sorted(whole)
    # In the middle of an epoch, in another process's loader, and on several ranks.
    loader.set_epoch(0)
    batches = iter(loader)
    begun = seen([next(batches), next(batches)])
    other = getattr(pickle.loads(pickle.dumps(view)), kind)(16, shuffle=True, seed=5)
    other.load_state_dict(loader.state_dict())
    assert begun + seen(other) == whole
    ranks = [seen(getattr(view, kind)(16, shuffle="global", rank=rank, world_size=2)) for rank in (0, 1)]
    assert sorted(ranks[0] + ranks[1]) == sorted(wanted)
    last = list(getattr(view, kind)(150, pad_last=True))[-1]
    assert np.asarray(last["double"])[49:].tolist() == [0] * 101 and np.asarray(last["sample_weight"]).sum() == 49
    assert loader.schema["half"].dtype == "float64" and loader.digest != getattr(photos, kind)(16, shuffle=True, seed=5).digest
    if kind == "numpy":
        assert [batch["double"].tolist() for batch in pickle.loads(pickle.dumps(view.numpy(100)))] == [batch["double"].tolist() for batch in view.numpy(100)]


def test_nulls_of_computed_columns_are_masked(tmp_path: Path) -> None:
    db = fb.connect(str(tmp_path / "lake"), create=True)
    db.execute("CREATE TABLE t (id INT NOT NULL, n INT); INSERT INTO t VALUES (1, 5), (2, NULL), (3, 7)")
    view = db.query("SELECT id, n + 1 AS more FROM t")
    assert view["more"][:].tolist() == [6, None, 8] and view["more"][1] is None
    (batch,) = db.dataloader("SELECT id, n + 1 AS more FROM t").batch_size(3).to_numpy()
    assert batch["more"].tolist() == [6, 0, 8] and batch["more_valid"].tolist() == [True, False, True]


def test_what_computed_columns_cannot_do_says_why(photos: fb.Dataset) -> None:
    view = photos.query("SELECT id, label * 2 AS double FROM main")
    for wrong, why in (
        (lambda: view.pytorch(8, device="cuda"), "comes in main memory"),
        (lambda: view.numpy(8, columns=["double"]), "a column of the table"),
        (lambda: view.numpy(8, on_fault="substitute"), "on_fault='skip'"),
        (lambda: fb.mix([view, view]).numpy(8), "materialize"),
        (lambda: view.pytorch()[0], "give a batch_size"),
    ):
        with pytest.raises((fb.ArgumentError, fb.UnsupportedError), match=why):
            wrong()
    assert [list(batch) for batch in view.numpy(200, columns=["id"])] == [["id"]]
    with pytest.raises(fb.SqlError, match="label is computed, and of type"):
        photos.query("SELECT id, CAST(label AS TEXT) AS label FROM main")


def test_order_by_random_is_another_order_each_epoch(photos: fb.Dataset) -> None:
    loader = photos.dataloader("SELECT id FROM main ORDER BY RANDOM()").batch_size(200).to_numpy()
    first = next(iter(loader))["id"].tolist()
    loader.set_epoch(1)
    second = next(iter(loader))["id"].tolist()
    assert sorted(first) == sorted(second) == list(range(200)) and first != second


def test_a_sample_follows_from_its_seed(photos: fb.Dataset) -> None:
    one, two, other = (photos.query("SELECT * FROM main ORDER BY random() LIMIT 9", seed=s)["id"][:].tolist() for s in (1, 1, 2))
    assert one == two != other


def test_tables_of_arrow_and_parquet_are_joined(photos: fb.Dataset, tmp_path: Path) -> None:
    good = pa.table({"id": [3, 5], "weight": [0.5, 1.5]})
    query = "SELECT weight, label FROM good JOIN main USING (id) ORDER BY id"
    assert photos.execute(query, tables={"good": good}).to_list() == [{"weight": 0.5, "label": 3}, {"weight": 1.5, "label": 1}]
    pq.write_table(good, tmp_path / "good.parquet")
    assert len(photos.execute(query, tables={"good": tmp_path / "good.parquet"}).to_list()) == 2
    chosen = photos.query("SELECT * FROM main WHERE id IN (SELECT id FROM good)", tables={"good": good})
    assert chosen["id"][:].tolist() == [3, 5]
    with pytest.raises(fb.ArgumentError, match="table 'bad'"):
        photos.execute("SELECT 1", tables={"bad": 5})


def test_a_lake_is_made_and_filled_by_sql(tmp_path: Path) -> None:
    with fb.connect(str(tmp_path / "lake"), create=True) as db:
        db.execute("""
            CREATE TABLE docs (id SERIAL PRIMARY KEY, text TEXT, embedding VECTOR(4), picture TENSOR(uint8, 2, 2));
            INSERT INTO docs (text, embedding, picture) VALUES ('a', [1, 0, 0, 0], [[1, 2], [3, 4]]), ('b', [0, 1, 0, 0], NULL);
        """)
        assert db.tables == ["docs"]
        docs = db.table("docs")
        assert docs["id"][:].tolist() == [1, 2] and docs[0]["picture"].tolist() == [[1, 2], [3, 4]]
        near = db.execute("SELECT text FROM docs ORDER BY embedding <=> $1 LIMIT 1", [np.array([0.1, 0.9, 0, 0], np.float32)])
        assert near.to_list() == [{"text": "b"}]
        # Rows written by Python are rows for SQL, and the other way round.
        docs.append({"id": [9], "text": ["c"], "embedding": np.zeros((1, 4), np.float32), "picture": [None]})
        docs.commit()
        assert db.execute("SELECT count(*) AS n FROM docs").to_list() == [{"n": 3}]


def test_every_dtype_comes_as_it_is(tmp_path: Path) -> None:
    dtypes = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
    ds = fb.create(str(tmp_path / "lake"), {name: name for name in dtypes} | {"t": "timestamp", "j": "json", "b": "bytes", "r": "float32[?]"})
    values = {name: np.array([0, 1, 100 if name != "bool" else 1]).astype(name) for name in dtypes}
    moments = np.array(["1969-12-31T23:59:59", "1970-01-01", "2024-02-29T01:02:03.000004"], "datetime64[us]")
    ragged = [np.zeros(0, np.float32), np.ones(1, np.float32), np.arange(3, dtype=np.float32)]
    ds.append(values | {"t": moments, "j": [{"a": 1}, None, [1]], "b": [b"", b"x", b"\xff"], "r": ragged})
    ds.commit()
    table = ds.execute("SELECT * FROM main").to_arrow()
    for name in dtypes:
        assert table.column(name).to_pylist() == values[name].tolist(), name
    assert table.column("t").to_pylist() == moments.tolist()
    assert table.column("r").combine_chunks().field("data").to_pylist() == [[], [1.0], [0.0, 1.0, 2.0]]
    ds.execute("CREATE TABLE copy AS SELECT * FROM main")
    copy = ds.table("copy")
    assert {name: copy.schema[name].dtype for name in dtypes} == {name: name for name in dtypes}
    assert copy["j"][:] == [{"a": 1}, None, [1]] and copy["b"][:] == [b"", b"x", b"\xff"]


def test_errors_are_of_the_kinds_that_python_expects(photos: fb.Dataset) -> None:
    with pytest.raises(fb.SqlError, match="line 1, column 8: no column lable; did you mean label") as raised:
        photos.execute("SELECT lable FROM main")
    assert isinstance(raised.value, ValueError)
    with pytest.raises(fb.UnsupportedError, match="no GROUP BY"):
        photos.query("SELECT label FROM main GROUP BY label")
    with pytest.raises(fb.AccessError, match="files="):
        photos.execute("COPY main TO 'x.csv'")
    with pytest.raises(fb.UnsupportedError, match="INSERT gives no rows"):
        photos.execute("INSERT INTO main (id, label, score, image) SELECT * FROM main WHERE id < 0").to_arrow()
    memory = fb.create("memory://sql-test", {"a": "int64"})
    with pytest.raises(fb.ArgumentError, match="needs a folder or an object store"):
        memory.execute("SELECT 1")


def test_a_query_spills_and_an_impossible_one_says_so(photos: fb.Dataset) -> None:
    wide = "SELECT a.value % 100000 AS k, repeat('x', 100) AS t FROM generate_series(1, 300000) AS a(value)"
    top = photos.execute(f"SELECT k, t FROM ({wide}) ORDER BY k, t", memory="24MiB").to_arrow()
    assert top.num_rows == 300_000 and top.column("k")[0].as_py() == 0


def test_files_are_copied_where_the_caller_says(photos: fb.Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    assert photos.execute("COPY (SELECT id, label FROM main WHERE id < 3) TO 'few.parquet'", files=folder).rows == 3
    assert pq.read_table(folder / "few.parquet").column("id").to_pylist() == [0, 1, 2]
    photos.execute("CREATE TABLE few (id BIGINT, label INT); COPY few FROM 'few.parquet'", files=folder)
    assert photos.table("few")["label"][:].tolist() == [0, 1, 2]


def test_ctrl_c_ends_a_query(tmp_path: Path) -> None:
    fb.create(str(tmp_path / "lake"), {"a": "int64"})
    script = f"""
import os, signal, threading
import forebay as fb
ds = fb.open({str(tmp_path / "lake")!r})
endless = "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 3000000) b WHERE a.value * b.value % 7 = 3"
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    ds.execute(endless).to_list()
except BaseException as error:
    print(type(error).__name__, "KeyboardInterrupt" in repr(error))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "KeyboardInterrupt" in done.stdout or "True" in done.stdout, (done.stdout, done.stderr)


def test_a_killed_transaction_is_unseen_and_removed(tmp_path: Path) -> None:
    url = tmp_path / "lake"
    db = fb.connect(str(url), create=True)
    db.execute("CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1)")
    endless = "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 3000000) b WHERE a.value * b.value % 7 = 3"
    script = f"""
import forebay as fb
fb.connect({str(url)!r}).execute("BEGIN; INSERT INTO t VALUES (2); INSERT INTO t {endless}; COMMIT")
"""
    heads = url / "refs" / "heads"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        # Its branch has an entry for BEGIN and one for the first INSERT.
        while not list(heads.glob("transaction-*/*1")):
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    (left,) = heads.glob("transaction-*")
    assert fb.open(str(url), table="t").branches() == ["main"]
    assert db.execute("SHOW BRANCHES").to_list() == [{"branch": "main"}]
    with pytest.raises(fb.SqlError, match="is no branch"):
        db.execute(f"SELECT * FROM t AT '{left.name}'")
    # While its lease may still be renewed, the branch stays.
    db.execute("BEGIN; INSERT INTO t VALUES (3); COMMIT")
    (pin,) = (url / "pins").iterdir()
    os.utime(pin, (1, 1))
    db.execute("BEGIN; INSERT INTO t VALUES (4); COMMIT")
    assert list((url / "pins").iterdir()) == []
    with pytest.raises(fb.UnknownVersionError):
        fb.open(str(url), branch=left.name, table="t")
    assert sorted(row["n"] for row in db.execute("SELECT n FROM t").to_list()) == [1, 3, 4]


def test_without_the_engine_an_error_says_what_to_install(photos: fb.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "forebay_sql", None)
    with pytest.raises(fb.MissingPackageError, match=r"pip install 'forebay\[sql\]'"):
        photos.execute("SELECT 1")


def test_importing_forebay_does_not_load_the_engine() -> None:
    code = "import sys, forebay; assert not any(name.startswith('forebay_sql') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_shows_rows_and_changes(photos: fb.Dataset) -> None:
    def forebay(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "forebay", "sql", photos.url, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    assert forebay("SELECT id, label FROM main LIMIT 2").stdout.split() == ["id", "label", "--", "-----", "0", "0", "1", "1"]
    assert forebay("--json", text="SELECT label FROM main WHERE id = 3").stdout == '{"label": 3}\n'
    assert forebay("DELETE FROM main WHERE id < 10").stdout.startswith("DELETE 10 (commit ")
    failed = forebay("SELECT lable FROM main")
    assert failed.returncode == 1 and failed.stderr == "forebay: line 1, column 8: no column lable; did you mean label\n"


def test_a_scan_reads_what_is_asked_for(photos: fb.Dataset) -> None:
    table = photos.scan(["score", "id"], "label = $1 AND id > 100", [3], limit=5).to_arrow()
    assert table.column_names == ["score", "id"]
    assert table.column("id").to_pylist() == [103, 107, 111, 115, 119]
    assert pa.table(photos).num_rows == 200
    with pytest.raises(fb.UnknownColumnError):
        photos.scan(["lable"])
    with pytest.raises(fb.ArgumentError):
        photos.scan([])
    import duckdb
    import polars

    assert duckdb.from_arrow(photos.scan(["id"]).to_reader()).aggregate("sum(id)").fetchall() == [(19_900,)]
    assert polars.DataFrame(photos.scan(["id"], limit=3))["id"].to_list() == [0, 1, 2]


def test_an_index_is_made_searched_and_kept_up(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    vectors = (chance.normal(size=(20, 32)) * 4)[np.arange(2_000) % 20] + chance.normal(size=(2_000, 32))
    vectors = vectors.astype(np.float32)
    ds = fb.create(str(tmp_path / "lake"), {"id": "int64", "v": "float32[32]"})
    ds.append({"id": np.arange(1_000), "v": vectors[:1_000]})
    ds.commit()
    assert ds.execute("CREATE INDEX near ON main USING ivf (v) WITH (lists = 20)").rows == 1_000
    ds.append({"id": np.arange(1_000, 2_000), "v": vectors[1_000:]})
    ds.commit()
    nearest = "SELECT id FROM main ORDER BY v <-> $1 LIMIT 10"
    for _ in range(2):
        found, exact = 0, 0
        for query in vectors[::100] + 0.1:
            order = np.argsort(((vectors - query) ** 2).sum(1), kind="stable")[:10].tolist()
            ids = [row["id"] for row in ds.execute(nearest, [query]).to_list()]
            found, exact = found + len(set(ids) & set(order)), exact + 10
            assert [row["id"] for row in ds.execute(nearest, [query], probes=20).to_list()] == order
            assert ds.query(nearest, [query], probes=20)["id"][:].tolist() == order
        assert found >= 0.95 * exact
        ds.execute("REINDEX near")
    assert ds.execute("SHOW INDEXES").to_list() == [{"index": "near", "table": "main", "column": "v", "fragments": "2/2"}]
    with pytest.raises(fb.ArgumentError, match="probes"):
        ds.execute(nearest, [vectors[0]], probes=0)


def test_a_query_is_kept_by_name_and_made_a_table(photos: fb.Dataset) -> None:
    view = photos.query("SELECT image, id FROM main WHERE label = 2 ORDER BY score DESC LIMIT 7")
    photos.save_view("best", view)
    photos.execute("DELETE FROM main WHERE id > 150")
    expected = [198, 194, 190, 186, 182, 178, 174]
    assert photos.view("best")["id"][:].tolist() == expected
    table = photos.materialize("chosen", photos.view("best"))
    assert table.columns == ["image", "id"] and table["id"][:].tolist() == expected
    assert (table["image"][:, 0, 0] == np.array(expected, np.uint8)).all()
    assert photos.execute("SHOW TABLES").to_list() == [{"table": "chosen", "rows": 7}, {"table": "main", "rows": 151}]
    db = fb.connect(photos.url)
    assert db.views() == ["best"] and len(db.view("best")) == 7
