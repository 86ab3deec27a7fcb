"""The guard around user code: which exceptions are its own, and their text.

User code may raise anything: ``sys.exit()`` raises ``SystemExit``, and a library may define a
``BaseException``. Each place that calls user code catches ``BaseException`` and passes it to
``users_error``, which raises it again if the process must end or a call was canceled from outside.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
from typing import Any

from bicycle_sdk.errors import printable

_RAISE = dis.opmap["RAISE_VARARGS"]


class ProcessEnding(BaseException):
    """The end of this process by a signal or a debugger's user, not by a record."""


class CallsInFlight:
    """The flag that all calls of this process were canceled because it ends."""

    are_cancelled = False


CALLS = CallsInFlight()


def is_async(function: Any) -> bool:
    """Return whether a call of the function returns an awaitable, if known in advance."""
    while isinstance(function, functools.partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(target))


def users_error(error: BaseException) -> BaseException:
    """Return an exception that user code raised.

    Raises:
        BaseException: the same exception, if it came from outside: the process ends, Ctrl-C was
            pressed, a generator was closed, or the call was canceled.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, ProcessEnding):
        raise error
    if isinstance(error, asyncio.CancelledError) and _is_cancelled_from_outside():
        raise error
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)) and not _is_raised_by_code(error):
        raise error
    return error


def _is_cancelled_from_outside() -> bool:
    """Return whether the process ends, or a time limit has canceled the running task."""
    if CALLS.are_cancelled:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # No event loop runs: nothing can have been canceled.
        return False
    return task is not None and task.cancelling() > 0


def _is_raised_by_code(error: BaseException) -> bool:
    """Return whether a ``raise`` statement raised an error, not the interpreter."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE


class until_failure:  # used as contextlib.suppress is
    """Suppress an exception of user code; the caller finds the record that raised it."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> bool:
        """Suppress errors of user code."""
        if error is None:
            return False
        users_error(error)
        return True


def decoding_problem(error: BaseException) -> str:
    """Return why a record cannot be decoded, from the error of its type or codec.

    Raises:
        BaseException: the same exception, if it came from outside.
    """
    text = error_text(users_error(error))
    return text if isinstance(error, ValueError) else f"{type(error).__qualname__}: {text}"


def error_text(error: BaseException) -> str:
    """Return the text of an exception, whatever its ``__str__`` does.

    Example:
        >>> class Odd(Exception):
        ...     def __str__(self): raise KeyError
        >>> error_text(Odd()), error_text(ValueError("bad"))
        ('(its __str__ raised KeyError)', 'bad')
    """
    return _text_of(error, str, "__str__")


def show(value: Any) -> str:
    """Return ``repr`` of a value, whatever its ``__repr__`` does."""
    return _text_of(value, repr, "__repr__")


def _text_of(value: Any, function: Any, method: str) -> str:
    try:
        return printable(function(value))
    except BaseException as failure:  # noqa: BLE001  # it is user code, too
        return f"(its {method} raised {type(users_error(failure)).__qualname__})"
