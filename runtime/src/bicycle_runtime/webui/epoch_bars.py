"""Epochs as bars: one per line of a journal, with a segment for each phase.

All bars have one scale, so that a long epoch is a long bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bicycle_runtime.jobs.journal import EpochLine

BAR_WIDTH = 1_000


def waterfall(lines: Sequence[EpochLine]) -> list[dict[str, Any]]:
    """Return a row for each line, in their order.

    Returns:
        The line, its duration of one epoch in ms, and ``pieces``: names of phases with their time
        in ms, and their positions in a bar of ``BAR_WIDTH``.

    Example:
        >>> line = EpochLine(epoch=7, began_ms=0, sealed_ms=80, phases_ms={"run": 60, "seal": 20})
        >>> [row] = waterfall([line])
        >>> row["duration_ms"], [(each["left"], each["width"]) for each in row["pieces"]]
        (80.0, [(0, 750), (750, 250)])
    """
    longest = max((_duration(line) for line in lines), default=0.0) or 1.0
    return [_row(line, BAR_WIDTH / longest) for line in lines]


def _row(line: EpochLine, scale: float) -> dict[str, Any]:
    pieces, at_ms = [], 0.0
    for name, total_ms in line.phases_ms.items():
        ms = total_ms / line.count
        left, right = round(at_ms * scale), round((at_ms + ms) * scale)
        pieces.append({"name": name, "ms": ms, "left": left, "width": right - left})
        at_ms += ms
    return {"line": line, "duration_ms": _duration(line), "pieces": pieces}


def _duration(line: EpochLine) -> float:
    """Return how long one epoch of a line took in all its phases."""
    return sum(line.phases_ms.values()) / line.count
