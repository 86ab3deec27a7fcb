"""Attempts that leave no effects if they fail, are canceled, or time out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.user_calls.direct import direct
from bicycle_runtime.operators.user_calls.user_functions import eager
from bicycle_runtime.state.undo import Attempts, UndoLog, begin_attempt, undo
from bicycle_sdk.connected import BuiltInFunction

_Note = Callable[[UndoLog], None]


def prepare_attempts(function: Any, calls: Iterable[Callable[..., Any]]) -> Attempts:
    """Return the common data of an operator's attempts.

    Args:
        function: Its function.
        calls: The methods that are called.
    """
    awaits = isinstance(function, BuiltInFunction) and function.awaits
    # A hook of timers is awaited if it is ``async``, whether it waits or not.
    on_timer = getattr(function, "on_timer", None)
    awaits = awaits or (on_timer is not None and is_async(eager(on_timer)))
    awaits = awaits or any(is_async(eager(each)) and direct(each) is None for each in calls)
    return Attempts(one_by_one=not awaits)


def undoing(
    call: Callable[..., Any], attempts: Attempts, note: _Note | None = None
) -> Callable[..., Any]:
    """Return a call that undoes its changes of state before it raises.

    Its result is read here, since the body of a generator is part of the attempt.

    Args:
        call: The user's function.
        attempts: The attempts of the operator.
        note: Notes in the log, at the beginning, the unseen changes that the attempt may make.
    """
    if is_async(call):
        return _awaiting(call, note)
    if attempts.log is None:
        return _in_flight(call, note)
    return _one_by_one(call, attempts.log, note)


def _one_by_one(call: Callable[..., Any], log: UndoLog, note: _Note | None) -> Callable[..., Any]:
    begin = log.clear

    def attempt(value: Any, context: Any) -> Any:
        # hot path: 120 ns a call.
        begin()
        try:
            if note is not None:
                note(log)
            result = call(value, context)
            if type(result) is list:
                return result
            return _await(result, log, log.copy()) if _waits(result) else _read(result)
        except BaseException:
            undo(log)
            raise

    return attempt


def _in_flight(call: Callable[..., Any], note: _Note | None) -> Callable[..., Any]:
    def attempt(value: Any, context: Any) -> Any:
        log = begin_attempt()
        try:
            if note is not None:
                note(log)
            result = call(value, context)
            return _await(result, None, log) if _waits(result) else _read(result)
        except BaseException:
            undo(log)
            raise

    return attempt


def _awaiting(call: Callable[..., Any], note: _Note | None) -> Callable[..., Any]:
    async def attempt(value: Any, context: Any) -> Any:
        log = begin_attempt()
        try:
            if note is not None:
                note(log)
            return _read(await call(value, context))
        except BaseException:
            undo(log)
            raise

    return attempt


async def _await(result: Awaitable[Any], shared: UndoLog | None, begun: UndoLog) -> Any:
    """Await the result of a plain call.

    Args:
        result: The result.
        shared: The log of calls one after another; None when each has its own.
        begun: The notes of the call before it returned.
    """
    log = begin_attempt() if shared is None else shared
    log.clear()
    try:
        return _read(await result)
    except BaseException:
        undo(log)
        undo(begun)
        raise


def _waits(result: Any) -> bool:
    return hasattr(result, "__await__")


def _read(result: Any) -> Any:
    """Return the records of an iterable in a list; return other results unchanged."""
    is_plain = isinstance(result, list | tuple | str | bytes | dict)
    return result if is_plain or not hasattr(result, "__iter__") else list(result)
