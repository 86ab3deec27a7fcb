"""Pictures of the README as SVG: the output of the demo, and a chart of measured ratios.

``make docs`` writes both, so they always show the result of the current demo and the figures of
``docs/benchmarks.md``. Both pictures have a background of their own and are readable on light and
dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Ratio", "chart", "lowest_ratio", "ratios", "terminal"]

_LINE_HEIGHT = 19
_CHARACTER_WIDTH = 8.4
_MARGIN = 20
_TERMINAL_HEAD = 34
_ROW_HEIGHT = 26
_LABEL_WIDTH = 330
_BAR_WIDTH = 400
# The chart is logarithmic and spans these ratios.
_RATIO_MIN, _RATIO_MAX = 0.1, 200.0
_MONO = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace' font-size='14'"
_SANS = "font-family='system-ui, -apple-system, Segoe UI, sans-serif' font-size='13'"


class Ratio(NamedTuple):
    """One bar of the chart.

    Attributes:
        label: The workload and the other system.
        value: Throughput of Bicycle divided by that of the other system, above 0.
    """

    label: str
    value: float


# A label, the report of docs/benchmarks.md, and a part of the name of its rows.
_BARS = (
    ("word count ÷ PySpark transformWithState", "w2-wordcount", "÷ transformWithState"),
    ("windows ÷ Spark SQL", "w3-windows", "÷ Spark"),
    ("exactly once between Kafka topics ÷ Quix Streams", "kafka-throughput", "exactly-once ÷ Quix"),
    ("word count ÷ Bytewax", "w2-wordcount", "÷ Bytewax"),
    ("JSON filter and map ÷ Bytewax", "w1-json", "÷ Bytewax"),
    ("JSON filter and map ÷ bare Python loop", "w1-json", "÷ plain loop"),
    ("word count ÷ bare Python loop", "w2-wordcount", "÷ plain loop"),
    ("joins, process functions ÷ bare Python loop", "joins", "memory ÷ bare loop"),
)


def ratios(benchmarks: str) -> list[Ratio]:
    """Return the lowest judged ratio of each workload of the chart.

    Args:
        benchmarks: The text of ``docs/benchmarks.md``.

    Raises:
        ValueError: A report has no judged row of that name.
    """
    return [Ratio(label, lowest_ratio(benchmarks, report, part)) for label, report, part in _BARS]


def lowest_ratio(benchmarks: str, report: str, part: str) -> float:
    """Return the lowest median among the judged ratios of a report.

    Args:
        benchmarks: The text of ``docs/benchmarks.md``.
        report: Name of the report, such as ``w1-json``.
        part: Text that the names of the rows contain.

    Raises:
        ValueError: The report has no judged ratio with such a name.
    """
    text = benchmarks.partition(f"<!-- begin {report} -->")[2]
    lines = text.partition(f"<!-- end {report} -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return min(
        float(row[2].removesuffix(" x"))
        for row in rows
        if len(row) > 6 and part in row[1] and row[5] in ("reached", "MISSED")
    )


def chart(rows: Sequence[Ratio]) -> str:
    """Return a bar chart of ratios on a logarithmic axis, with a line at 1.

    Args:
        rows: The bars, from top to bottom; each value is between 0.1 and 200.
    """
    height = _MARGIN * 2 + _ROW_HEIGHT * (len(rows) + 1)
    width = _LABEL_WIDTH + _BAR_WIDTH + 90
    one = _LABEL_WIDTH + _offset(1.0)
    parts = [_frame(width, height, "#ffffff", "Throughput of Bicycle divided by other systems")]
    for index, row in enumerate(rows):
        top = _MARGIN + index * _ROW_HEIGHT
        left, right = sorted((one, _LABEL_WIDTH + _offset(row.value)))
        color = "#00897b" if row.value >= 1 else "#c2703d"
        parts += [
            f"<text x='{_LABEL_WIDTH - 10}' y='{top + 15}' text-anchor='end' {_SANS}"
            f" fill='#24292f'>{escape(row.label)}</text>",
            f"<rect x='{left:.1f}' y='{top + 2}' width='{max(right - left, 1):.1f}' height='18'"
            f" fill='{color}'/>",
            f"<text x='{right + 6:.1f}' y='{top + 15}' {_SANS} fill='#24292f'>{row.value:g}</text>",
        ]
    bottom = _MARGIN + len(rows) * _ROW_HEIGHT
    parts += [
        f"<line x1='{one:.1f}' x2='{one:.1f}' y1='{_MARGIN - 6}' y2='{bottom}' stroke='#24292f'/>",
        f"<text x='{one:.1f}' y='{bottom + 18}' text-anchor='middle' {_SANS} fill='#24292f'>"
        "1 = as fast (logarithmic scale)</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _offset(ratio: float) -> float:
    span = math.log(_RATIO_MAX / _RATIO_MIN)
    return _BAR_WIDTH * math.log(ratio / _RATIO_MIN) / span


def terminal(lines: Sequence[str]) -> str:
    """Return a picture of a terminal that shows these lines.

    Args:
        lines: Plain text without control characters.
    """
    width = math.ceil(max(map(len, lines)) * _CHARACTER_WIDTH) + 2 * _MARGIN
    height = _TERMINAL_HEAD + _LINE_HEIGHT * len(lines) + _MARGIN
    parts = [_frame(width, height, "#1e2228", "Terminal with the output of make demo")]
    parts += [
        f"<circle cx='{_MARGIN + 18 * index}' cy='18' r='5' fill='{color}'/>"
        for index, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    ]
    for index, line in enumerate(lines):
        color = "#7ee2b8" if line.startswith("$") else "#e6e8eb"
        parts.append(
            f"<text x='{_MARGIN}' y='{_TERMINAL_HEAD + 14 + index * _LINE_HEIGHT}'"
            f" xml:space='preserve' {_MONO} fill='{color}'>{escape(line)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _frame(width: float, height: float, color: str, title: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}'"
        f" height='{height}' role='img'>\n<title>{escape(title)}</title>\n"
        f"<rect width='{width}' height='{height}' rx='8' fill='{color}'/>"
    )
