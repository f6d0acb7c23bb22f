"""bench gpu: batches in a GPU's memory beside the largest copies that it can do. Needs a driver, Python and PyTorch. See `--help`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def install() -> None:
    """Unpacks the wheel beside this file, and takes `forebay` from there, in this process and its children."""
    (wheel,) = HERE.glob("*.whl")
    site = HERE / "site"
    stamp = site / wheel.name
    if not stamp.exists():
        shutil.rmtree(site, ignore_errors=True)
        zipfile.ZipFile(wheel).extractall(site)
        stamp.touch()
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), str(HERE), os.environ.get("PYTHONPATH", "")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "forebay-bench-gpu", help="where the lakes are made and kept")
    parser.add_argument("--gib", type=float, default=6, help="GiB of images; each other lake has a third")
    parser.add_argument("--only", default="", help="sections, by name, with commas between")
    parser.add_argument("--without", default="", help="sections to leave out")
    parser.add_argument("--seconds", type=float, default=3600, help="start no section after this many")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--plot", type=Path, help="where the ratios are drawn as an SVG")
    args = parser.parse_args()
    install()
    missing = cannot_run()
    if missing:
        print(f"this bench cannot run here: {missing}", file=sys.stderr)
        return 2

    import plot
    import sections
    from report import Report

    args.folder.mkdir(parents=True, exist_ok=True)
    report = Report("gpu", args.json)
    report.machine += f", {sections.gpus()}"
    bench = sections.Bench(report, args.folder, args.gib * 2**30)
    only, without = (set(filter(None, text.split(","))) for text in (args.only, args.without))
    unknown = (only | without) - set(sections.SECTIONS)
    if unknown:
        parser.error(f"there is no section {', '.join(sorted(unknown))}; there are {', '.join(sections.SECTIONS)}")
    start, failed = time.perf_counter(), []
    for name, section in sections.SECTIONS.items():
        if (only and name not in only) or name in without:
            continue
        now = time.perf_counter() - start
        if now > args.seconds:
            report.say(f"-- {name}: left out, {now:.0f} s have passed")
            continue
        report.say(f"-- {name} ({now:.0f} s)")
        try:
            section(bench)
        except Exception as error:  # noqa: BLE001  (the other sections are still worth their time)
            failed.append(name)
            report.say(f"   {name} FAILED: {type(error).__name__}: {error}")
            if os.environ.get("FOREBAY_BENCH_TRACE"):
                import traceback

                traceback.print_exc()
    report.finish()
    if args.plot:
        plot.draw(report.lines, report.machine, args.plot)
    verdict(report.lines, failed)
    return 1 if failed else 0


def verdict(lines: list[dict[str, Any]], failed: list[str]) -> None:
    barred = [line for line in lines if line["met"] is not None]
    missed = [line["case"] for line in barred if not line["met"]]
    print(f"\n{len(barred) - len(missed)} of {len(barred)} bars are met." + "".join(f"\n  not met: {case}" for case in missed))
    if failed:
        print(f"sections that failed: {', '.join(failed)}")


def cannot_run() -> str | None:
    try:
        import torch
    except ImportError as error:
        return f"PyTorch is needed ({error})"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device"
    import forebay

    missing = forebay.gpu.info()["missing"]
    return missing[0] if missing else None


def in_process(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(HERE / script), *map(str, arguments)], capture_output=True, text=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
