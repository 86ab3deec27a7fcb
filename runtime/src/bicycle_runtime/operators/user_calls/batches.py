"""Calling user functions over a batch: plain or ``async``, one after another or many in flight.

One coroutine drives a whole batch and awaits the functions, so that an ``async`` function which
never suspends costs about as much as a plain call. Several calls in flight are a ``Flight``. When a
batch returns, nothing is in flight. What to do with a call that failed is not decided here but by
``settle``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from bicycle_runtime.operators.user_calls.calls import (
    Calls,
    CallSettings,
    Outcome,
    Settle,
    call_each,
    drive,
)
from bicycle_runtime.operators.user_calls.flight import Flight
from bicycle_runtime.operators.user_calls.user_functions import run, run_watched

__all__ = ["call_all", "call_on", "refuse_stop"]


def call_all(calls: Calls, settings: CallSettings, settle: Settle, *, awaits: bool) -> Outcome:
    """Make all calls of a batch and return the outputs of each.

    Args:
        calls: What is called.
        settings: Order, timeout, calls in flight.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
    """
    if awaits and (settings.capacity > 1 or settings.timeout_ms is not None):
        return run_watched(Flight(calls, settings, settle).run())
    outcome = Outcome()
    call_on(calls, calls.records(), outcome.results, settle, awaits=awaits)
    return outcome


def call_on(
    calls: Calls, records: Iterator[Any], results: list[Any], settle: Settle, *, awaits: bool
) -> None:
    """Call one after another, behind the results that are there.

    Args:
        calls: What is called.
        records: The records behind those of the results, as ``calls.records()`` gives them.
        results: What each call gives is added.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
    """
    while True:
        calls.context.follow(results)
        try:
            if awaits:
                run_watched(drive(calls, records, results), results)
            elif calls.is_keyed:
                call_each(calls, records, results)
            else:
                results.extend(map(calls.methods, records, repeat(calls.context)))  # type: ignore[arg-type]  # not keyed: a function
                refuse_stop(results, calls.values)
            return
        except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
            index = len(results)
            results.append(run(settle(error, index, calls.single(index, calls.context))))


def refuse_stop(results: Sequence[Any], values: Sequence[Any]) -> None:
    """Take a StopIteration out of a function for the error that it is, not for the end of input.

    Raises:
        RuntimeError: there are fewer results than values.
    """
    if len(results) < len(values):
        raise RuntimeError("the function raised StopIteration")
