"""The ratios of a run as a picture, an SVG without any library."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

#: Pixels.
LINE, LEFT, WIDTH, RIGHT = 22, 360, 420, 150
#: The ratio at the right end.
MOST = 1.2


def draw(lines: list[dict[str, Any]], machine: str, path: Path) -> None:
    """Writes the lines of a report that have a floor and are rates: a bar each, and a mark where what was asked of it is."""
    shown = [line for line in lines if line["ratio"] is not None and line["unit"] not in ("", "cores", "MiB")]
    height = LINE * (len(shown) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><text x="8" y="16" font-weight="bold">{escape(machine)}</text>',
    ]
    for tenth in range(0, 13, 2):
        x = LEFT + WIDTH * tenth / 10 / MOST
        parts.append(f'<path d="M{x:.1f} {LINE * 1.5:.0f}V{height - LINE}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle" fill="#555">{tenth / 10:.1f}</text>')
    for number, line in enumerate(shown):
        y = LINE * (number + 2)
        length = WIDTH * min(line["ratio"], MOST) / MOST
        colour = {True: "#2a7f62", False: "#c0392b", None: "#8899aa"}[line["met"]]
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(line["case"].strip())}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y - 7}" width="{length:.1f}" height="14" fill="{colour}"/>')
        if line["bar"] is not None:
            x = LEFT + WIDTH * min(line["bar"], MOST) / MOST
            parts.append(f'<path d="M{x:.1f} {y - 9}V{y + 9}" stroke="black" stroke-width="2"/>')
        value = f"{line['value']:,.0f}" if line["value"] >= 1000 else f"{line['value']:.3g}"
        parts.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 4}">{line["ratio"]:.2f} · {value} {escape(line["unit"])}</text>')
    path.write_text("\n".join([*parts, "</svg>", ""]))
