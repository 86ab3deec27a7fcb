"""Undo of failed attempts: one log for state of every kind.

All objects that an attempt may write (entries of keyed states, dicts and other attributes, named
values, timers, side outputs) note in the log of the attempt how to go back, before they change.
When the attempt fails, the noted steps are done, newest first. Only operators whose policy tries
records again or drops them work on such objects (``memory.undoing``); for all others there is no
log.

A context variable has the log of the attempt that runs, also when several are in flight.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# Steps back: a function, and its arguments.
UndoLog = list[tuple[Any, ...]]

# Types whose values cannot be changed in place.
ATOMIC = frozenset({str, int, float, bool, bytes, complex, type(None)})


class _Nowhere(UndoLog):
    """The log outside of attempts, which keeps nothing."""

    def append(self, step: tuple[Any, ...]) -> None:
        """Take no note."""


_NOWHERE = _Nowhere()
# The log of the attempt that runs here.
ATTEMPT: ContextVar[UndoLog] = ContextVar("bicycle_attempt", default=_NOWHERE)


class Attempts:
    """The attempts of one operator.

    Args:
        one_by_one: Whether no attempt begins before the last has ended: then one log serves all.
    """

    def __init__(self, *, one_by_one: bool) -> None:
        self.log: UndoLog | None = [] if one_by_one else None
        # hot path: 40 ns less a note than by the context variable.
        self.note: Callable[[tuple[Any, ...]], None] = (
            _note if self.log is None else self.log.append
        )

    def begin_batch(self) -> None:
        """Get ready for the attempts of a batch."""
        ATTEMPT.set(_NOWHERE if self.log is None else self.log)


def _note(step: tuple[Any, ...]) -> None:
    ATTEMPT.get().append(step)


def begin_attempt() -> UndoLog:
    """Return a log of its own for an attempt that begins here."""
    log: UndoLog = []
    ATTEMPT.set(log)
    return log


def undo(log: UndoLog) -> None:
    """Restore the state at the start of the attempt."""
    while log:
        step, *arguments = log.pop()
        step(*arguments)


def copied(value: Any) -> Any:
    """Return a value that stays as it is when the given one is changed in place."""
    return value if type(value) in ATOMIC else copy.deepcopy(value)
