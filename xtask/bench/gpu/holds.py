"""What must hold on a real device, whatever the consumer does: each a function that raises if it doesn't."""

from __future__ import annotations

import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lakes import Lake, check_ids
from sections import check, unmapped

import forebay as fb

BATCH = 256
#: Clock cycles that keep a stream busy for some milliseconds.
LONG = 5_000_000
#: What takes so many seconds hangs: the process says where, and ends.
HANGS = 60


def expect(condition: object, what: str = "it isn't so") -> None:
    if not condition:
        raise AssertionError(what)


def slow_consumer_on_a_side_stream(lake: Lake, loader: Callable[..., Any]) -> None:
    side, wrong = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device="cuda")
    with torch.cuda.stream(side):
        for batch in loader():
            torch.cuda._sleep(LONG)
            wrong += lake.wrong(batch)
    side.synchronize()
    expect(int(wrong) == 0, f"{int(wrong)} wrong rows")


def batch_used_by_another_stream_and_dropped(lake: Lake, loader: Callable[..., Any]) -> None:
    side, wrong = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device="cuda")
    for batch in loader():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG)
            wrong += lake.wrong(batch)
            for value in batch.values():
                value.record_stream(side)
    side.synchronize()
    expect(int(wrong) == 0, f"{int(wrong)} wrong rows")


def batches_that_are_kept_stay_as_they_are(lake: Lake, loader: Callable[..., Any]) -> None:
    kept = list(loader())
    expect(sum(int(lake.wrong(batch)) for batch in kept) == 0, "wrong rows")
    check_ids(torch.cat([batch["id"] for batch in kept]).cpu().numpy(), lake.rows)


def too_many_kept_batches_are_an_error_that_says_so(lake: Lake, loader: Callable[..., Any]) -> None:
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((total - free + 1e9) / total)
    kept: list[Any] = []
    try:
        for number in range(1000):
            for batch in loader():
                kept.append(batch)
        raise AssertionError(f"{len(kept)} batches fit in 1 GB, after {number} epochs")
    except fb.LoaderError as error:
        torch.cuda.set_per_process_memory_fraction(1.0)
        expect("still held" in str(error), str(error))
        expect(sum(int(lake.wrong(batch)) for batch in kept[:5] + kept[-5:]) == 0, "wrong rows")
    finally:
        kept.clear()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)


def graph_replayed_over_fixed_buffers(lake: Lake, loader: Callable[..., Any]) -> None:
    out = {
        "image": torch.empty((BATCH, *lake.shape), dtype=torch.uint8, device="cuda"),
        "id": torch.empty(BATCH, dtype=torch.int64, device="cuda"),
    }
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    lake.wrong({name: buffer.zero_() for name, buffer in out.items()})
    batches = iter(loader(out=out, drop_last=True))
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    next(batches)
    # The loader's threads work on while the capture goes on.
    with torch.cuda.graph(graph, stream=side):
        total += lake.wrong(out)
        torch.cuda._sleep(LONG)
    graph.replay()
    count = 1
    for batch in batches:
        expect(batch["image"].data_ptr() == out["image"].data_ptr(), "not the fixed buffer")
        graph.replay()
        count += 1
    expect(int(total) == 0 and count == lake.rows // BATCH, f"{int(total)} wrong rows, {count} batches")


def batch_asked_for_in_a_capture_is_refused(lake: Lake, loader: Callable[..., Any]) -> None:
    batches = iter(loader())
    next(batches)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            next(batches)
    except fb.Error as error:
        expect("captured" in str(error), str(error))
    else:
        raise AssertionError("no error")
    torch.cuda.synchronize()
    expect(int(lake.wrong(next(iter(loader())))) == 0, "wrong rows afterwards")


def two_loaders_at_once_in_two_threads(lake: Lake, loader: Callable[..., Any]) -> None:
    failed: list[str] = []

    def work(seed: int) -> None:
        try:
            wrong, ids = torch.zeros((), dtype=torch.int64, device="cuda"), []
            for batch in loader(seed=seed):
                wrong += lake.wrong(batch)
                ids.append(batch["id"])
            expect(int(wrong) == 0, f"{int(wrong)} wrong rows")
            check_ids(torch.cat(ids).cpu().numpy(), lake.rows)
        except BaseException as error:  # noqa: BLE001
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failed, "; ".join(failed))


def loader_collected_in_mid_flight(lake: Lake, loader: Callable[..., Any]) -> None:
    before = None
    for number in range(30):
        batches = iter(loader())
        batch = next(batches)
        del batches
        expect(int(lake.wrong(batch)) == 0, "wrong rows")
        del batch
        gc.collect()
        used = torch.cuda.mem_get_info()[0]
        before = used if number == 5 else before
    expect(before - used < 64 << 20, f"{(before - used) >> 20} MiB of device memory are gone")


def exception_in_the_loop(lake: Lake, loader: Callable[..., Any]) -> None:
    for _ in range(5):
        try:
            for batch in loader():
                raise KeyError(int(batch["id"][0]))
        except KeyError:
            pass
    expect(sum(len(batch["id"]) for batch in loader()) == lake.rows, "rows are missing")


def interrupted_by_ctrl_c(lake: Lake, loader: Callable[..., Any]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        while True:
            for batch in loader():
                batch["id"].sum()
    except KeyboardInterrupt:
        pass
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    expect(sum(len(batch["id"]) for batch in loader()) == lake.rows, "rows are missing")


def forked_child_gets_an_error(lake: Lake, loader: Callable[..., Any]) -> None:
    whole = loader()
    batches = iter(whole)
    next(batches)
    child = os.fork()
    if child == 0:
        answers = []
        for ask in (lambda: next(batches), lambda: next(iter(whole)), loader):
            try:
                ask()
                answers.append(False)
            except fb.Error:
                answers.append(True)
            except BaseException:  # noqa: BLE001
                answers.append(False)
        os._exit(42 if all(answers) else 1)
    expect(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42, "the child got no forebay.Error")
    expect(int(lake.wrong(next(batches))) == 0, "wrong rows in the parent")


def small_batches_that_are_kept_of_each_group(lake: Lake, loader: Callable[..., Any]) -> None:
    kept = [batch for number, batch in enumerate(loader(batch_size=8)) if number % 5 == 0]
    alone = [batch for number, batch in enumerate(loader(batch_size=8, group_bytes=0)) if number % 5 == 0]
    expect(len(kept) == len(alone) == -(-lake.rows // 8 // 5), f"{len(kept)} and {len(alone)} batches")
    for grouped, single in zip(kept, alone):
        expect(int(lake.wrong(grouped)) == 0 and torch.equal(grouped["id"], single["id"]), "other rows")


def file_that_was_cut_off_is_an_error_or_ends_the_process(lake: Lake, loader: Callable[..., Any]) -> None:
    """Before it is opened, and in the middle of an epoch. Whatever comes of it, no wrong byte may."""
    cut = Lake(Path(lake.url).parent, "images", 100e6)
    cut.url = str(Path(lake.url).parent / "cut-off")
    script = """
import sys; sys.path[:0] = eval(sys.argv[3])
from pathlib import Path
import os, torch, forebay as fb
from lakes import Lake
lake = Lake(Path(sys.argv[1]).parent, "images", 100e6)
lake.url = sys.argv[1]
def cut():
    for path in Path(lake.url, "data").iterdir():
        os.truncate(path, 8192)
loader = None if sys.argv[2] == "before" else fb.open(lake.url).pytorch(64, shuffle="global", device="cuda")
if loader is None:
    cut()
try:
    loader = loader or fb.open(lake.url).pytorch(64, shuffle="global", device="cuda")
    for number, batch in enumerate(loader):
        if number == 2:
            cut()
        if int(lake.wrong(batch)):
            os._exit(66)
except fb.Error as error:
    os._exit(3 if "data/" in str(error) else 4)
os._exit(0)
"""
    for when, allowed in (("before", {3}), ("amid", {0, 3, -signal.SIGBUS})):
        shutil.rmtree(cut.url, ignore_errors=True)
        cut.make()
        command = [sys.executable, "-c", script, cut.url, when, repr(sys.path[:2])]
        done = subprocess.run(command, capture_output=True, text=True)
        expect(done.returncode in allowed, f"cut off {when}: the process ended with {done.returncode} {done.stderr[-500:]}")


def filesystem_that_is_not_mapped_is_named(lake: Lake, loader: Callable[..., Any]) -> None:
    with unmapped(Path(lake.url).parent) as folder:
        if folder is None:
            raise ModuleNotFoundError("it takes root to mount a filesystem")
        remote = Lake(folder, "images", 300e6)
        remote.make()
        batches = fb.open(remote.url).pytorch(BATCH, shuffle=True, device="cuda")
        check(batches, remote)
        stats = batches.stats()
        expect(stats["routes"] == {"image": "fetched", "id": "fetched"}, str(stats["routes"]))
        expect(stats["device"]["columns"]["image"]["refused"] is None, str(stats["device"]["columns"]))


def rows_in_the_device_cache_come_in_groups(lake: Lake, loader: Callable[..., Any]) -> None:
    """And are right on another stream than the one that the group was taken on, kept, and dropped amid a group."""
    cached, streams = loader(device_cache="2GiB"), [torch.cuda.current_stream(), torch.cuda.Stream()]
    wrong = torch.zeros(2, dtype=torch.int64, device="cuda")
    for number in range(4):
        kept, ids = [], []
        for index, batch in enumerate(cached):
            stream = streams[index // 3 % 2]
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LONG // 10)
                wrong[index // 3 % 2] += lake.wrong(batch)
                for value in batch.values():
                    value.record_stream(stream)
            kept.append(batch["image"] if index % 5 == 0 else None)
            ids.append(batch["id"])
            # The next one is taken on the other stream.
            torch.cuda.set_stream(streams[(index + 1) // 3 % 2])
        torch.cuda.set_stream(streams[0])
        torch.cuda.synchronize()
        check_ids(torch.cat(ids).cpu().numpy(), lake.rows)
        for index, image in enumerate(kept):
            expect(image is None or not int(lake.wrong({"image": image, "id": ids[index]})), f"kept batch {index} of epoch {number}")
        for index, batch in zip(range(3 + number), cached):
            expect(not int(lake.wrong(batch)), "wrong rows in an epoch that is dropped")
    expect(int(wrong.sum()) == 0, f"{wrong.tolist()} wrong rows")
    stats = cached.stats()["device"]
    expect(stats["columns"]["image"]["route"] == "device-cache", str(stats))


def cupy_arrays(lake: Lake, loader: Callable[..., Any]) -> None:
    import cupy

    seen, wrong = [], 0
    for batch in fb.open(lake.url).cupy(BATCH, shuffle="global"):
        ids = batch["id"]
        expected = cupy.asarray(lake.base)[None] + (ids * 7 % 256).astype(cupy.uint8)[:, None]
        wrong += int((batch["image"].reshape(len(ids), -1)[:, 8:] != expected[:, 8:]).sum())
        seen.append(ids.get())
    expect(wrong == 0, f"{wrong} wrong bytes")
    check_ids(np.concatenate(seen), lake.rows)


def jax_arrays_on_every_gpu_of_one_process(lake: Lake, loader: Callable[..., Any]) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    devices = jax.devices("gpu")
    ds = fb.open(lake.url)
    loaders = [
        ds.jax(BATCH, shuffle="global", device=device, rank=rank, world_size=len(devices))
        for rank, device in enumerate(devices)
    ]
    seen, wrong = [], []
    for batches in zip(*loaders):
        for device, batch in zip(devices, batches):
            expect(batch["image"].devices() == {device}, f"{batch['image'].devices()} instead of {device}")
            ids = batch["id"].astype("int32")
            base = jax.device_put(lake.base, device)
            expected = base[None] + (ids * 7 % 256).astype("uint8")[:, None]
            wrong.append((batch["image"].reshape(len(ids), -1)[:, 8:] != expected[:, 8:]).sum())
            seen.append(ids)
    expect(sum(int(count) for count in wrong) == 0, "wrong bytes")
    check_ids(np.concatenate([np.asarray(ids) for ids in seen]), lake.rows)


ALL: list[Callable[[Lake, Callable[..., Any]], None]] = [
    slow_consumer_on_a_side_stream,
    batch_used_by_another_stream_and_dropped,
    batches_that_are_kept_stay_as_they_are,
    too_many_kept_batches_are_an_error_that_says_so,
    graph_replayed_over_fixed_buffers,
    batch_asked_for_in_a_capture_is_refused,
    two_loaders_at_once_in_two_threads,
    loader_collected_in_mid_flight,
    exception_in_the_loop,
    interrupted_by_ctrl_c,
    forked_child_gets_an_error,
    small_batches_that_are_kept_of_each_group,
    file_that_was_cut_off_is_an_error_or_ends_the_process,
    filesystem_that_is_not_mapped_is_named,
    rows_in_the_device_cache_come_in_groups,
    cupy_arrays,
    jax_arrays_on_every_gpu_of_one_process,
]


def run(bench: Any) -> None:
    lake = Lake(bench.folder / "small", "images", 600e6)
    lake.make()
    for hold in ALL:
        name = hold.__name__.replace("_", " ")
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            hold(lake, lambda **options: bench.loader(lake, **options))
            bench.report.rate(f"holds: {name}", 1, "", 1, bar=1)
        except ModuleNotFoundError as error:
            bench.report.say(f"   {name}: not tried, {error}")
        except Exception as error:  # noqa: BLE001  (the others are still to be tried)
            bench.report.rate(f"holds: {name}", 0, "", 1, bar=1)
            bench.report.say(f"   {name}: {type(error).__name__}: {error}")
        finally:
            faulthandler.cancel_dump_traceback_later()
