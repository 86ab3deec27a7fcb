"""Calls in a separate thread if the calling thread runs an event loop.

An event loop cannot be run inside another one. So code that runs one for functions of a user (a
preview, a harness) moves to a separate thread, and the caller waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["CallThread"]

Given = ParamSpec("Given")
Result = TypeVar("Result")
_Call = tuple["Future[Any]", Callable[[], Any]]


class CallThread:
    """A caller of functions: in this thread, or in another if an event loop runs here.

    All later calls stay in the other thread, since clients of a user may belong to a thread.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] | None = None
        self._thread: threading.Thread | None = None

    def call(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Return ``function(*args, **kwargs)``; raise its error."""
        if self._calls is None:
            if not _is_loop_running():
                return function(*args, **kwargs)
            self._calls = SimpleQueue()
            self._thread = threading.Thread(
                target=_serve, args=(self._calls,), name="bicycle-calls", daemon=True
            )
            self._thread.start()
        elif threading.current_thread() is self._thread:
            return function(*args, **kwargs)
        future: Future[Result] = Future()
        self._calls.put((future, lambda: function(*args, **kwargs)))
        return future.result()

    def close(self) -> None:
        """End the thread after the calls that wait; a later call may start another."""
        if self._calls is not None:
            self._calls.put(None)
        self._calls = self._thread = None


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    for future, call in iter(calls.get, None):
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            future.set_exception(error)
