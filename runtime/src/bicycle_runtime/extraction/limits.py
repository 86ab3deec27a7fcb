"""What one extraction may take: time, memory, size of its answer, and what is kept of its output.

Limits are bounds for accidents, not a wall against hostile code: a plugin runs with the rights of
the runtime's user. This module enforces nothing: the child sets its own memory limit, and the
parent holds the watch.
"""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_runtime.base.options import check, option

__all__ = ["ExtractionLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """Bounds of one child process.

    Raises:
        OptionError: a value is out of bounds.
    """

    wall_time_ms: int = option(
        60_000,
        low=100,
        high=3_600_000,
        doc="Time from the start of the child process to its whole answer; then it is killed.",
    )
    memory_bytes: int = option(
        4 << 30,
        low=64 << 20,
        high=1 << 46,
        doc="Private memory of a child process; its address space may be four times as large.",
    )
    result_bytes: int = option(
        256 << 20, low=1 << 10, high=1 << 33, doc="Size of graph and functions together."
    )
    output_bytes: int = option(
        64 << 10,
        low=1 << 10,
        high=1 << 24,
        doc="How much of the end of its stdout and stderr is kept.",
    )
    output_line_count: int = option(
        50, low=1, high=10_000, doc="How many of the last lines of its output an error carries."
    )

    def __post_init__(self) -> None:
        check(self)
