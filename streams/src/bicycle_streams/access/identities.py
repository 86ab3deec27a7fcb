"""Callers identified in threads where the server of the tokens may not respond.

Otherwise a caller is identified at once: a client that sends a request and no more is answered.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.roles import Identity

_THREADS = ThreadPoolExecutor(8, thread_name_prefix="identify")  # None is started here.
_T = TypeVar("_T")


async def identify(
    authenticator: Authenticator, headers: Mapping[str, str], *, scheme: str, client: str
) -> Identity:
    """Return the identity of a caller, without blocking the loop."""
    call = functools.partial(authenticator.identity, headers, scheme=scheme, client=client)
    may_wait = authenticator.is_remote and ("authorization" in headers or "cookie" in headers)
    return await _in_thread(call) if may_wait else call()


async def is_still(authenticator: Authenticator, identity: Identity) -> bool:
    """Return whether a caller would be admitted now, without blocking the loop."""
    call = functools.partial(authenticator.is_still, identity)
    return await _in_thread(call) if authenticator.is_remote else call()


async def _in_thread(call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
