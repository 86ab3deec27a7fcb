"""The worst judged figure of each report, in one table at the head of ``docs/benchmarks.md``.

Worst is what is farthest behind its target, or least ahead of it: a figure divided by a target that
it is to reach at least, or the other way round. ``make docs`` writes the table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["with_summary"]

_REPORT = re.compile(r"<!-- begin (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end (?P=name) -->", re.S)
_BLOCK = re.compile(r"(<!-- the worst -->\n).*?(<!-- end of the worst -->)", re.S)
_NUMBER = re.compile(r"-?[\d,]*\.?\d+(?:e[+-]?\d+)?")
_VERDICTS = ("reached", "MISSED")
_CELLS_MIN = 5


class _Judged(NamedTuple):
    """A row of a report: its cells as they are shown, and how far it is ahead of its target."""

    name: str
    shown: str
    target: str
    is_missed: bool
    ahead: float


def with_summary(document: str) -> str:
    """Return a document with the table between its marks; without marks it stays as it is."""
    rows = []
    for report in _REPORT.finditer(document):
        judged = _judged(report["text"])
        if judged:
            worst = min(judged, key=lambda row: row.ahead)
            missed = sum(row.is_missed for row in judged)
            cells = [report["name"], f"{missed} of {len(judged)}", worst.name, worst.shown]
            rows.append("| " + " | ".join([*cells, worst.target]) + " |")
    head = [
        "| report | missed | the worst judged result | value | target |",
        "|---|---|---|---|---|",
    ]
    table = "\n".join([*head, *rows])
    return _BLOCK.sub(lambda found: f"{found[1]}{table}\n{found[2]}", document)


def _judged(text: str) -> list[_Judged]:
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > _CELLS_MIN and cells[4] in _VERDICTS:
            name, shown, _, target, verdict = cells[:5]
            value, bound = (_number(cell) for cell in (shown, target))
            ahead = value / bound if target.startswith("≥") else bound / max(value, 1e-9)
            found.append(_Judged(name, shown, target, verdict == "MISSED", ahead))
    return found


def _number(cell: str) -> float:
    found = _NUMBER.search(cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found[0].replace(",", ""))
