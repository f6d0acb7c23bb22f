"""ResNet-50 from the loader beside the same loop on one synthetic batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from clock import Took, epoch
from sections import settle

BATCH = 256
STEPS = 50


def resnet50() -> torch.nn.Module:
    import torchvision

    return torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)


def step_of(model: torch.nn.Module) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A training step on uint8 images [n, 3, 224, 224] and labels."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        pixels = images.to(torch.bfloat16, memory_format=torch.channels_last).div_(255)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def forever(loader: Any) -> Iterator[dict[str, Any]]:
    while True:
        yield from loader


def steps(step: Callable[..., None], take: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Seconds of a step."""
    with Took() as took:
        for _ in range(STEPS):
            step(*take())
    return took.seconds / STEPS


def one() -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """Gives one synthetic batch that stays on the device."""
    images = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 1000, (BATCH,), device="cuda")
    return lambda: (images, labels)


def taken(loader: Any) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """Gives the loader's batches."""
    batches = forever(loader)

    def take() -> tuple[torch.Tensor, torch.Tensor]:
        batch = next(batches)
        return batch["image"], batch["id"] % 1000

    return take


def compare(step: Callable[..., None], loader: Any, rounds: int = 5) -> tuple[float, float]:
    """Seconds of a step on one batch that stays on the device, and on the loader's batches; taken in turns."""
    still, take = one(), taken(loader)
    for _ in range(15):
        step(*still())
    synthetic, real = [], []
    for _ in range(rounds):
        synthetic.append(steps(step, still))
        take()
        real.append(steps(step, take))
    return statistics.median(synthetic), statistics.median(real)


def busy_share(step: Callable[..., None], take: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> float:
    """The share of the time in which a kernel of the training ran."""
    step(*take())
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile, Took() as took:
        for _ in range(STEPS):
            step(*take())
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith("Mem")
    )
    busy, end = 0.0, float("-inf")
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy / 1e6 / took.seconds


def run(bench: Any) -> None:
    torch.backends.cudnn.benchmark = True
    loader = bench.loader(bench.lake("images"), drop_last=True)
    step = step_of(resnet50())
    synthetic, first = compare(step, loader, rounds=1)
    bench.report.cost("ResNet-50 step while files are registered and blocks checked", first * 1e3, "ms", synthetic * 1e3)
    epoch(loader, 0)
    settle(loader)
    synthetic, real = compare(step, loader)
    bench.report.cost("ResNet-50 step, bf16, batch 256", real * 1e3, "ms", synthetic * 1e3, bar=1 / 1.02)
    bench.report.rate("  GPU busy", busy_share(step, taken(loader)) * 100, "%", 100, bar=0.95)
    bench.report.rate("  GPU busy on the synthetic batch", busy_share(step, one()) * 100, "%", 100)
