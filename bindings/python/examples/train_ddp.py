"""A process for each GPU: every rank loads its own rows, from one page cache.

    python shapes.py shapes.lake && torchrun --standalone --nproc-per-node=gpu train_ddp.py shapes.lake
"""

import os
import sys

import shapes
import torch
import torch.distributed as dist

import forebay as fb

BATCH, EPOCHS = 256, 3


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    loader = fb.open(sys.argv[1]).pytorch(
        BATCH, shuffle="global", seed=1, drop_last=True, distributed=True, device="cuda", transforms={"image": shapes.TRAIN}
    )
    model = torch.nn.parallel.DistributedDataParallel(shapes.model().to("cuda", torch.bfloat16, memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        total = torch.zeros((), device="cuda")
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"]).float(), batch["label"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"DDP epoch {epoch}: loss {float(total) / len(loader):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
