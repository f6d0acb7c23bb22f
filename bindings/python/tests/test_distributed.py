"""Ranks of torch.distributed share an epoch, and notice when they don't load the same."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROWS

import forebay as fb

RANK = """
import json, os, sys
import torch.distributed as dist
import forebay as fb
rank, world, port, url = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
ds = fb.open(url)
loader = ds.pytorch(batch_size=16, shuffle=True, seed=9, distributed=True, columns=["id"])
epochs = [[int(number) for batch in loader for number in batch["id"]] for _ in range(2)]
try:
    ds.pytorch(batch_size=16, shuffle=True, seed=rank, distributed=True)
    refused = ""
except fb.LoaderError as error:
    refused = str(error)
try:
    fb.open(url, commit=ds.log()[rank].id).pytorch(batch_size=16, distributed=True)
    other = ""
except fb.LoaderError as error:
    other = str(error)
print(json.dumps([epochs, refused, other]))
dist.barrier()
dist.destroy_process_group()
"""


def test_two_ranks_share_an_epoch_and_refuse_to_load_different_data(photos: fb.Dataset, tmp_path: Path) -> None:
    import json

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = tmp_path / "rank.py"
    source.write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(source), str(rank), "2", str(port), photos.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    results = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    for epoch in range(2):
        parts = [result[0][epoch] for result in results]
        assert sorted(parts[0] + parts[1]) == list(range(ROWS))
    assert results[0][0][0] != results[0][0][1]
    assert all("seed of rank 1 is 1, of rank 0 0" in result[1] for result in results)
    assert all("commit, table or rows of rank 1" in result[2] for result in results)


def test_distributed_without_a_process_group_is_a_typed_error(photos: fb.Dataset) -> None:
    with pytest.raises(fb.LoaderError, match="init_process_group"):
        photos.pytorch(batch_size=8, distributed=True)
    with pytest.raises(ValueError, match="rank"):
        photos.pytorch(batch_size=8, distributed=True, rank=0, world_size=1)
