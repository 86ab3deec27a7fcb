"""``async`` functions without ``await``, called without a coroutine per call.

Most ``async`` functions of jobs never wait: there is no ``await`` in them. A coroutine would cost
as much as a small body. Such a body differs from that of a plain function in its first two
instructions only, which make the coroutine; without them it is the same function, called within
the event loop as before. A function that is not of this shape is called as it is.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

_WAITS = frozenset({"SEND", "YIELD_VALUE"})
_BEFORE = frozenset({"COPY_FREE_VARS", "MAKE_CELL"})
_START = ("RETURN_GENERATOR", "POP_TOP")
_KNOWN_MAX = 256


def direct(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the plain function of an ``async`` function without ``await``, or None.

    Call it instead of the ``await``, on the event loop, because its body may read the running loop.

    Returns:
        The plain function; None for any other function.
    """
    called = function.__func__ if isinstance(function, MethodType) else function
    plain = _plain(called) if isinstance(called, FunctionType) else None
    if plain is not None and isinstance(function, MethodType):
        return MethodType(plain, function.__self__)
    return plain


@functools.lru_cache(_KNOWN_MAX)
def _plain(function: FunctionType) -> FunctionType | None:
    code = _plain_code(function.__code__)
    if code is None:
        return None
    plain = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__qualname__ = function.__qualname__
    return plain


def _plain_code(code: CodeType) -> CodeType | None:
    if not code.co_flags & inspect.CO_COROUTINE:
        return None
    instructions = list(dis.get_instructions(code))
    if any(instruction.opname in _WAITS for instruction in instructions):
        return None
    start = [at for at in instructions if at.opname not in _BEFORE][: len(_START)]
    if tuple(instruction.opname for instruction in start) != _START:
        return None
    body = bytearray(code.co_code)
    for instruction in start:
        body[instruction.offset] = dis.opmap["NOP"]
    return code.replace(co_code=bytes(body), co_flags=code.co_flags & ~inspect.CO_COROUTINE)
