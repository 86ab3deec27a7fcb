"""Callers identified in threads: the database of tokens may not respond."""

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
    needs_database = "authorization" in headers or "cookie" in headers
    return await _in_thread(call) if needs_database else call()


async def is_still(authenticator: Authenticator, identity: Identity) -> bool:
    """Return whether a caller would be admitted now, without blocking the loop."""
    return not identity.token or await _in_thread(lambda: authenticator.is_still(identity))


async def _in_thread(call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
