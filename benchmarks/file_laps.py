"""Laps over files: a plain loop, Bytewax or PyFlink reads an input and writes what is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from flink_peer import run_flink
from paces import Lap
from peers import run_bytewax, run_plain
from workloads import scratch

__all__ = ["bytewax_lap", "flink_lap", "plain_lap", "plain_laps"]

Check = Callable[[Path, Any], object]  # raises when the output is not what an input must give


class Input(Protocol):
    """What is read."""

    @property
    def count(self) -> int:
        """Records."""

    def folder(self) -> Path:
        """Return the folder with its files."""


def plain_lap(loop: str, given: Input, *, check: Check, process_count: int = 2) -> Lap:
    """Run a loop of ``plain_loops.py``."""
    with scratch("plain") as place:
        run = run_plain(loop, given.folder(), place / "output", process_count=process_count)
        check(place / "output", given)
    return Lap(count=given.count, seconds=run.busy_s, startup_s=run.startup_s)


def plain_laps(
    loops: Mapping[str, str], given: Input, *, check: Check, process_count: int = 2
) -> dict[str, Callable[[], Lap]]:
    """Return what runs each of several loops, by the names that reports give them."""
    return {
        name: partial(plain_lap, loop, given, check=check, process_count=process_count)
        for name, loop in loops.items()
    }


def bytewax_lap(
    program: str, given: Input, *, check: Check, is_durable: bool, **settings: int
) -> Lap:
    """Run a Bytewax flow.

    Args:
        program: Module in ``peer_programs``.
        given: The input.
        check: Of the output.
        is_durable: Whether it keeps recovery files.
        settings: As ``run_bytewax`` takes them.
    """
    with scratch("bytewax") as place:
        recovery = place / "recovery" if is_durable else None
        run = run_bytewax(program, given.folder(), place / "output", recovery=recovery, **settings)
        check(place / "output", given)
    return Lap(count=given.count, seconds=run.busy_s, startup_s=run.startup_s)


def flink_lap(program: str, given: Input, *, check: Check, **settings: Any) -> Lap:
    """Run a PyFlink job.

    Args:
        program: Module in ``peer_programs``.
        given: The input.
        check: Of the output.
        settings: As ``run_flink`` takes them, without the number of records.
    """
    with scratch("flink") as place:
        lap = run_flink(program, given.folder(), place / "output", count=given.count, **settings)
        check(place / "output", given)
    return lap
