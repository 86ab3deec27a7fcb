"""Positions of groups in a SQLite database beside the file, by shard."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.errors import POSITIONS_UNUSABLE

_TABLE = """
CREATE TABLE IF NOT EXISTS positions (
    consumer_group TEXT NOT NULL, stream TEXT NOT NULL, shard INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL, PRIMARY KEY (consumer_group, stream, shard)
) WITHOUT ROWID
"""
_PUT = "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)"
_GET = "SELECT stream, shard, next_sequence FROM positions WHERE consumer_group = ?"
_ALL = "SELECT consumer_group, stream, shard, next_sequence FROM positions"
_WAIT_S = 10.0


class Positions:
    """The committed positions of one group.

    Args:
        path: The database; it comes to be with the first commit.
        group: The group.
    """

    def __init__(self, path: Path, group: str) -> None:
        self._path = path
        self._group = group

    def read(self) -> dict[tuple[StreamKey, int], int]:
        """Return the next sequence of each shard that was ever committed."""
        rows = _rows(self._path, _GET, self._group)
        return {(StreamKey(stream), shard): sequence for stream, shard, sequence in rows}

    def write(self, positions: dict[tuple[StreamKey, int], int]) -> None:
        """Keep positions; they are durable when this returns."""
        rows = [(self._group, str(k), shard, n) for (k, shard), n in sorted(positions.items())]
        try:
            with closing(_connect(self._path)) as database, database:
                database.executemany(_PUT, rows)
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from None


def positions_of_groups(path: Path) -> list[tuple[str, StreamKey, int, int]]:
    """Return group, stream, shard and next sequence of all groups of a file."""
    return [(g, StreamKey(stream), shard, n) for g, stream, shard, n in _rows(path, _ALL)]


def _rows(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a database query, empty without a database."""
    if not path.exists():
        return []
    try:
        with closing(_connect(path)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise _unusable(path, error) from None


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        database.execute(_TABLE)
    except BaseException:
        database.close()
        raise
    return database


def _unusable(path: Path, error: sqlite3.Error) -> Exception:
    return POSITIONS_UNUSABLE(address=str(path), path=str(path), reason=str(error))
