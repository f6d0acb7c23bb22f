"""bench s3: a cold first batch and an epoch from an S3 server behind a delay, beside ranged GETs by the crate `object_store`, and beside
plain ones of a client that neither signs nor keeps what it gets. See `--help`.

Run by `cargo xtask bench s3`, which starts the server and the proxy and names them in FOREBAY_BENCH_*.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from typing import Any
from pathlib import Path

import numpy as np
from measure import in_own_process, median
from report import Report
from server import options
from source import BATCH, ROW, SCHEMA, SHAPE, Source, check_batch, check_ids

ROUNDS = 5
#: What a first batch may take besides its bytes, `open` included.
LATENCIES = (8, 5)
#: A plain client asks for ranges of this size; the other floor asks for the very ranges that the loader asked for.
PLAIN_RANGE = 4 << 20
LAKE = "s3://bench/lake"
DELAY = float(os.environ.get("FOREBAY_BENCH_DELAY_MS", "20")) / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the source rows are kept")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if "FOREBAY_BENCH_S3" not in os.environ:
        print("this bench cannot run here: no server is named; start it by `cargo xtask bench s3`", file=sys.stderr)
        return 2

    report = Report("s3", args.json)
    source = Source(args.folder, args.rows)
    report.say(f"{args.rows:,} rows of uint8 [3,224,224] + int64 label + id: {source.bytes / 1e9:.2f} GB")
    source.make()
    import torch  # noqa: F401  (so that no measured process has to)

    report.say("writing them to the S3 server, without the delay")
    in_own_process(write, source)
    report.say(f"{ROUNDS} cold rounds through {DELAY * 1e3:.0f} ms a request, beside ranged GETs")
    rounds = [one_round(source) for _ in range(ROUNDS)]
    in_own_process(check, source)
    tell(report, rounds)
    report.finish()
    return 0


def write(source: Source) -> None:
    import forebay as fb

    ds = fb.create(LAKE, SCHEMA, storage_options=options(os.environ["FOREBAY_BENCH_S3"]))
    rows, labels, ids = source.mapped().reshape(source.n, *SHAPE), source.labels(), source.ids()
    ds.append({"image": rows, "label": labels, "id": ids})
    ds.commit("the rows of the bench")


def one_round(source: Source) -> dict[str, Any]:
    """A cold epoch in a process of its own, then the floors: the same bytes by GETs of as many connections."""
    passed()
    epochs = in_own_process(two_epochs, source)
    traffic = epochs.pop("traffic")
    data = [get for get in map(ranged, traffic["requests"]) if get is not None]
    fetched = sum(get["end"] - get["start"] for get in data)
    connections = traffic["connections"]
    large, first = split(union(data), PLAIN_RANGE), leading(data, BATCH * ROW)
    floors = {
        "same": by_object_store(data, connections),
        "large": by_object_store(large, connections),
        "kept": by_object_store(data, connections, "keep"),
        "first_same": by_object_store(first, connections),
        "plain_same": plain(data, connections),
        "plain_large": plain(large, connections),
        "plain_first": plain(first, connections),
    }
    passed()
    return epochs | {name: floor["bytes"] / floor["seconds"] for name, floor in floors.items()} | {
        "requests": len(traffic["requests"]),
        "connections": connections,
        "fetched": fetched,
        "once": sum(get["end"] - get["start"] for get in union(data)),
    }


def two_epochs(source: Source) -> dict[str, Any]:
    """Seconds of a shuffled epoch from nothing, and of its first batch, both with `open`; what passed meanwhile; and the epoch behind it,
    which fetches as much again, to memory that the process has by then."""
    import forebay as fb

    start, cpu = time.perf_counter(), time.process_time()
    ds = fb.open(LAKE, storage_options=options(os.environ["FOREBAY_BENCH_S3_DELAYED"]))
    loader = ds.pytorch(batch_size=BATCH, shuffle=True, seed=7)
    first = epoch(loader, source)
    cold = {"first": first - start, "seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "traffic": passed()}
    start, cpu = time.perf_counter(), time.process_time()
    epoch(loader, source)
    following = {"next_seconds": time.perf_counter() - start, "next_cpu": time.process_time() - cpu}
    if passed()["bytes"] < source.bytes:
        raise AssertionError("the epoch behind the first fetched less than it delivered")
    return cold | following


def epoch(loader: Any, source: Source) -> float:
    """An epoch; gives when its first batch came."""
    first, ids = 0.0, []
    for batch in loader:
        first = first or time.perf_counter()
        ids.append(batch["id"].clone())
    check_ids(np.concatenate([part.numpy() for part in ids]), source.n)
    return first


def check(source: Source) -> None:
    """Compares every byte of an epoch, without the delay."""
    import forebay as fb

    ds = fb.open(LAKE, storage_options=options(os.environ["FOREBAY_BENCH_S3"]))
    rows, labels = source.mapped(), source.labels()
    batches = ds.pytorch(batch_size=BATCH, shuffle=True, seed=7)
    check_ids(np.concatenate([check_batch(batch, rows, labels).copy() for batch in batches]), source.n)


def tell(report: Report, rounds: list[dict[str, Any]]) -> None:
    def of(key: str) -> float:
        return median([line[key] for line in rounds])

    size, rate = BATCH * (ROW + 16), of("once") / of("seconds") / 1e6
    floor = max(of("same"), of("large"))
    for latencies in LATENCIES:
        report.cost(f"first batch, {latencies} latencies and the rate of the epoch's floor", of("first"), "s", latencies * DELAY + size / floor, bar=1)
        report.cost("  and the rate of its own ranges", of("first"), "s", latencies * DELAY + size / of("first_same"))
    report.cost("  and the rate of its own ranges, plain", of("first"), "s", LATENCIES[-1] * DELAY + size / of("plain_first"))
    report.rate("epoch, shuffled, cold, beside object_store's GETs of its own ranges", rate, "MB/s", of("same") / 1e6, bar=0.9)
    report.rate("  beside object_store's of 4 MiB", rate, "MB/s", of("large") / 1e6, bar=0.9)
    report.rate("  beside object_store's of its own ranges, kept in memory", rate, "MB/s", of("kept") / 1e6)
    report.rate("  beside plain GETs of its own ranges", rate, "MB/s", of("plain_same") / 1e6)
    report.rate("  beside plain GETs of 4 MiB", rate, "MB/s", of("plain_large") / 1e6)
    again = of("once") / of("next_seconds") / 1e6
    report.rate("the epoch behind it, beside object_store's GETs of its own ranges", again, "MB/s", of("same") / 1e6, bar=0.9)
    report.rate("  beside object_store's of 4 MiB", again, "MB/s", of("large") / 1e6)
    report.cost("bytes fetched", of("fetched") / 1e6, "MB", of("once") / 1e6, bar=1)
    report.cost("requests", of("requests"), "", None)
    report.cost("connections", of("connections"), "", None)
    report.cost("processor time of the process that loads", of("cpu"), "s", None)
    report.cost("  in the epoch behind it", of("next_cpu"), "s", None)


# Plain GETs, and what passed the proxy


def passed() -> dict[str, Any]:
    """What passed the proxy since the last call."""
    host, port = os.environ["FOREBAY_BENCH_S3_CONTROL"].rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection, connection.makefile() as file:
        return json.load(file)


def ranged(request: dict[str, Any]) -> dict[str, Any] | None:
    """A GET of a range of a data file as `xtask plain` takes it; None for any other request."""
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", request["range"] or "")
    if match is None or "/data/" not in request["path"]:
        return None
    return {"path": request["path"], "start": int(match[1]), "end": int(match[2]) + 1}


def leading(gets: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The GETs of the first batch, which come first: of this many bytes."""
    taken = 0
    for number, get in enumerate(gets):
        if taken >= size:
            return gets[:number]
        taken += get["end"] - get["start"]
    return gets


def union(gets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bytes of these ranges, each once, as few ranges as possible."""
    joined: list[dict[str, Any]] = []
    for get in sorted(gets, key=lambda get: (get["path"], get["start"])):
        if joined and joined[-1]["path"] == get["path"] and get["start"] <= joined[-1]["end"]:
            joined[-1]["end"] = max(joined[-1]["end"], get["end"])
        else:
            joined.append(dict(get))
    return joined


def split(gets: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    pieces = []
    for get in gets:
        for start in range(get["start"], get["end"], size):
            pieces.append({"path": get["path"], "start": start, "end": min(start + size, get["end"])})
    return pieces


def by_object_store(gets: list[dict[str, Any]], connections: int, *more: str) -> dict[str, float]:
    """Signed, by Rust's object_store, which gives each range as one piece of memory; it is let go of at once, unless ``"keep"`` is given."""
    command = [os.environ["FOREBAY_BENCH_GETS"], os.environ["FOREBAY_BENCH_S3_DELAYED"], str(connections), *more]
    lines = "\n".join("\t".join([*get["path"].removeprefix("/").split("/", 1), str(get["start"]), str(get["end"])]) for get in gets)
    return json.loads(subprocess.run(command, input=lines, text=True, stdout=subprocess.PIPE, check=True).stdout)


def plain(gets: list[dict[str, Any]], connections: int) -> dict[str, float]:
    address = os.environ["FOREBAY_BENCH_S3_DELAYED"].removeprefix("http://")
    command = [os.environ["FOREBAY_XTASK"], "plain", address, "--connections", str(connections)]
    lines = "\n".join(json.dumps(get) for get in gets)
    return json.loads(subprocess.run(command, input=lines, text=True, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
