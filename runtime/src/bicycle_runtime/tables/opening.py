"""The start of a session of SQL in a program, without the parser until then."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.tables.job import building_of
from bicycle_sdk import StreamEnvironment


def sql_session(env: StreamEnvironment, *, location: str) -> Any:
    """Return the session of ``env.sql``, which the SDK finds as an entry point.

    Args:
        env: The environment.
        location: File and line of the call, for errors.

    Raises:
        SQL_LIBRARY_MISSING: the parser is not installed.
    """
    building_of(location)
    from bicycle_runtime.tables.session import TableSession  # It imports the parser, too.

    return TableSession(env)
