"""The end of a log, for the error of a program that did not start."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["indented", "last_lines"]

_LINE_COUNT = 15
_STACK_FRAME = "\tat "


def last_lines(path: Path) -> list[str]:
    """Return the last lines that say something; none where there is no such file."""
    with contextlib.suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line for line in lines if line.strip() and not line.startswith(_STACK_FRAME)]
        return telling[-_LINE_COUNT:]
    return []


def indented(lines: Sequence[str]) -> str:
    """Return lines as they stand in an error."""
    return "\n".join(f"    {line}" for line in lines) or "    (empty)"
