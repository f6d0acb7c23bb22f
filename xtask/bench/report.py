"""Results of a bench: a table for people, or one JSON object a line."""

from __future__ import annotations

import json
from typing import Any

from measure import machine


class Report:
    """Collects results; prints each at once with ``as_json``, otherwise one table at the end."""

    def __init__(self, bench: str, as_json: bool) -> None:
        self.bench, self.as_json = bench, as_json
        self.lines: list[dict[str, Any]] = []
        self.machine = machine()

    def say(self, text: str) -> None:
        """Tells what is going on, where that does not disturb the results."""
        if not self.as_json:
            print(text, flush=True)

    def rate(self, case: str, value: float, unit: str, floor: float | None, bar: float | None = None) -> None:
        """A result of which more is better; its ratio is value / floor."""
        self._add(case, value, unit, floor, value / floor if floor else None, bar)

    def cost(self, case: str, value: float, unit: str, floor: float | None, bar: float | None = None) -> None:
        """A result of which less is better (seconds, bytes); its ratio is floor / value."""
        # What costs nothing is as good as the floor asks for and more; a ratio must stay a number.
        self._add(case, value, unit, floor, floor / max(value, 1e-9) if floor is not None else None, bar)

    def _add(self, case: str, value: float, unit: str, floor: float | None, ratio: float | None, bar: float | None) -> None:
        met = None if bar is None or ratio is None else ratio >= bar
        line = {"bench": self.bench, "case": case, "value": value, "unit": unit, "floor": floor, "ratio": ratio}
        line |= {"bar": bar, "met": met, "machine": self.machine}
        self.lines.append(line)
        if self.as_json:
            print(json.dumps(line), flush=True)

    def finish(self) -> None:
        """Prints the table."""
        if self.as_json:
            return
        rows = [("case", "value", "floor", "unit", "ratio", "bar", "met")]
        for line in self.lines:
            met = {None: "", True: "yes", False: "NO"}[line["met"]]
            numbers = [_number(line[key]) for key in ("value", "floor")]
            rows.append((line["case"], *numbers, line["unit"], _ratio(line["ratio"]), _ratio(line["bar"]), met))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        print(f"\n{self.bench} on {self.machine}\n")
        for number, row in enumerate(rows):
            cells = [cell.ljust(width) if column in (0, 3, 6) else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
            print("  ".join(cells).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 100 else ">= 100"
