"""A user function of any kind, called once: plain, ``async``, or a generator.

All that awaits in a worker runs on one event loop, which lives as long as the process: clients that
functions open are bound to it. Calls of a whole batch are the subject of ``batches``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import cloudpickle

from bicycle_runtime.base.user_code import CALLS, is_async
from bicycle_runtime.operators.user_calls.blocking import LOOP_WATCH
from bicycle_sdk.functions import as_callable

Result = TypeVar("Result")
_loop: asyncio.AbstractEventLoop | None = None


def eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function; a generator function is wrapped to run fully in each call.

    The body of a generator must run while its record is the current one: state and side outputs
    depend on that.
    """
    target: Any = inspect.unwrap(function)
    if inspect.isasyncgenfunction(target):
        return functools.partial(_collect, function)
    if inspect.isgeneratorfunction(target):
        return functools.partial(_to_list, function)
    return function


def selector_of(
    payloads: Mapping[str, bytes], payload_id: str | None
) -> Callable[[Any], Any] | None:
    """Return the key selector of a payload, or None without a key."""
    if payload_id is None:
        return None
    selector = as_callable(cloudpickle.loads(payloads[payload_id]), "get_key")
    return functools.partial(resolve, selector) if is_async(selector) else selector


async def _collect(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [result async for result in function(*arguments)]


def _to_list(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return list(function(*arguments))


def resolve(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook or a key selector and wait for it when it is ``async``."""
    value = function(*arguments)
    if not inspect.isawaitable(value):
        return value
    if not _is_in_loop():
        return run_watched(_wait(value))
    # An ``async`` function reads its key: the loop of this thread is busy with the function.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, _wait(value)).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the worker's event loop, which lives as long as the process."""
    loop = _worker_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        # A task that user code started may end the loop, by ``sys.exit()``, before ours is done.
        if not task.done() and not loop.is_closed():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        raise


def _worker_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603  # clients that user code opens are bound to one loop for good
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    return _loop


def run_watched(coroutine: Coroutine[Any, Any, Result], done: Sized = ()) -> Result:
    """Run a coroutine of user code, and find out when it keeps the loop for long.

    Args:
        coroutine: The coroutine to run.
        done: Results so far, when calls are made one after another: then each is a sign of life.
    """
    with LOOP_WATCH.watching(_worker_loop(), done):
        return run(coroutine)


def cancel_calls() -> bool:
    """Cancel all tasks in the worker's event loop; return False if it does not run.

    Meant for a signal handler: it writes to the pipe of the loop, which does the rest. The caller
    of the loop raises CancelledError.
    """
    if _loop is None or not _loop.is_running():
        return False
    CALLS.are_cancelled = True
    _loop.call_soon_threadsafe(_cancel_tasks)
    return True


def _cancel_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
