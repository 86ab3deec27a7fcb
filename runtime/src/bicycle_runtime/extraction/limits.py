"""Limits of one extraction: time, memory, size of the answer, kept output.

Limits are bounds for accidents, not a wall against hostile code: a plugin runs with the rights of
the runtime's user. The child sets its own memory limit, and the parent measures the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_sdk.options import CheckedOptions, option

PHASE_PREFIX = "bicycle-phase: "  # Before the phase that the child is in, in its dump.
PIPE_LOST_EXIT_CODE = 117


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits(CheckedOptions):
    """Bounds of one child process.

    Raises:
        OptionError: a value is out of bounds.
    """

    wall_time_ms: int = option(
        60_000,
        low=100,
        high=3_600_000,
        doc=(
            "Time limit of the child process, from its start to its complete result; then it is "
            "killed."
        ),
    )
    memory_bytes: int = option(
        4 << 30,
        low=64 << 20,
        high=1 << 46,
        doc="Memory limit of a child process; its address space may be four times as large.",
    )
    result_bytes: int = option(
        256 << 20, low=1 << 10, high=1 << 33, doc="Size limit of graph and functions together."
    )
    output_bytes: int = option(
        64 << 10,
        low=1 << 10,
        high=1 << 24,
        doc="Maximum size of the end of its stdout and stderr that is kept.",
    )
    output_line_count: int = option(
        50, low=1, high=10_000, doc="Number of last lines of its output in an error."
    )
