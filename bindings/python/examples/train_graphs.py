"""One GPU, no DataLoader: the step is compiled, captured as a CUDA graph, and replayed over fixed buffers that the loader fills.

    python shapes.py shapes.lake && python train_graphs.py shapes.lake
"""

import sys

import shapes
import torch

import forebay as fb

BATCH, EPOCHS = 256, 5


def main() -> None:
    device = torch.device("cuda")
    pixels = torch.empty((BATCH, 3, 56, 56), dtype=torch.bfloat16, device=device).to(memory_format=torch.channels_last)
    labels = torch.empty(BATCH, dtype=torch.int64, device=device)
    loader = fb.open(sys.argv[1]).pytorch(
        BATCH, shuffle="global", seed=1, drop_last=True, device=device, transforms={"image": shapes.TRAIN},
        out={"image": pixels, "label": labels},
    )  # fmt: skip
    model = shapes.model().to(device, torch.bfloat16, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    forward = torch.compile(lambda: torch.nn.functional.cross_entropy(model(pixels).float(), labels))

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss.detach()

    # A few steps on a side stream compile everything and allocate what the graph will use.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _, _ in zip(range(3), loader):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for _ in loader:  # The buffers are filled in the order of this stream, in which the graph is replayed too.
            graph.replay()
            total += loss
        print(f"epoch {epoch}: loss {float(total) / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
