"""One rank of `torchrun`: rate of its share of the epochs, every row once over the ranks, a DDP step. Rank 0 prints one JSON object."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from clock import Took, copy_rate
from clock import epoch as one_epoch
from limit import Rows
from sections import settle
from training import compare, resnet50, step_of

import forebay as fb

BATCH = 256
#: Batches of an epoch that aren't counted.
SKIPPED = 10


def under_way(loader: Any, number: int) -> tuple[int, float]:
    """Rows of an epoch after its first batches, and seconds that they took: several ranks have shorter epochs, which begin as slowly."""
    loader.set_epoch(number)
    rows, start = 0, 0.0
    for index, batch in enumerate(loader):
        if index < SKIPPED:
            continue
        if index == SKIPPED:
            torch.cuda.synchronize()
            start = time.perf_counter()
        else:
            rows += len(batch["id"])
    torch.cuda.synchronize()
    return rows, time.perf_counter() - start


def main() -> None:
    url, row = sys.argv[1], int(sys.argv[2])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    ds = fb.open(url)
    # All of it, so that each rank has checked every block: of its own epochs it sees half of the rows, and others each time.
    one_epoch(ds.pytorch(BATCH, device="cuda"), 0)
    loader = ds.pytorch(BATCH, shuffle="global", device="cuda", distributed=True)
    one_epoch(loader, 0)
    settle(loader)
    rates, whole = [], []
    for number in range(1, 8):
        dist.barrier()
        with Took() as took:
            rows, seconds = under_way(loader, number)
        rates.append(rows * (row + 8) / seconds)
        whole.append(len(loader) * BATCH * (row + 8) / took.seconds)
    loader.set_epoch(77)
    ids = torch.cat([batch["id"] for batch in loader])
    counts = torch.zeros(len(ds), dtype=torch.int64, device="cuda").index_add_(0, ids, torch.ones_like(ids))
    dist.all_reduce(counts)
    if not bool((counts == 1).all()):
        raise AssertionError("not every row came once over the ranks")
    bare = Rows(url, row)
    dist.barrier()
    at_once = bare.rate(BATCH, 300)
    dist.barrier()
    copies = copy_rate(to_device=True)
    torch.backends.cudnn.benchmark = True
    model = torch.nn.parallel.DistributedDataParallel(resnet50(), device_ids=[torch.cuda.current_device()])
    drop = ds.pytorch(BATCH, shuffle="global", device="cuda", distributed=True, drop_last=True)
    synthetic, real = compare(step_of(model), drop)
    everyone: list[dict[str, float]] = [{}] * world
    dist.all_gather_object(everyone, {"rate": statistics.median(rates), "whole": statistics.median(whole), "rows": at_once, "copies": copies, "step": real, "synthetic": synthetic})
    if rank == 0:
        slowest = {name: max(one[name] for one in everyone) for name in ("step", "synthetic")}
        print(json.dumps({"rates": [one["rate"] for one in everyone], **{name: sum(one[name] for one in everyone) for name in ("whole", "rows", "copies")}, **slowest}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
