"""Databases of a home, by its options: SQLite files, or tables on a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bicycle_streams.access.database import Database, DatabaseServer, SchemaScript, SqliteDatabase
from bicycle_streams.access.errors import DATABASE_SERVER_UNUSABLE


def database_of(
    folder: Path, name: str, versions: Sequence[SchemaScript], *,
    server: DatabaseServer | None, synchronous: Literal["FULL", "NORMAL"], is_owned: bool = False,
) -> Database:  # fmt: skip
    """Return a database of a home: a file of the folder, or tables on the server.

    Args:
        folder: Folder of the file.
        name: Name of the file without its suffix, and of the set of tables.
        versions: The scripts from each version to the next.
        server: The server; None for a file.
        synchronous: See ``SqliteDatabase``.
        is_owned: Whether this process must be the only service of the tables; a file is protected
            by the lock of its home.

    Raises:
        DATABASE_SERVER_UNUSABLE: the URL is invalid, or the library is not installed.
    """
    if server is None:
        return SqliteDatabase(folder / f"{name}.db", versions, synchronous=synchronous)
    try:
        # An optional extra.
        from bicycle_streams.access.postgres import PostgresDatabase
    except ImportError as error:
        reason = f"{error}; install it with `pip install 'bicycle-streams[postgres]'`"
        raise DATABASE_SERVER_UNUSABLE(server="of PostgreSQL", reason=reason) from error
    return PostgresDatabase(server, versions, name=name, is_owned=is_owned)
