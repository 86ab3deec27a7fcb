"""Positions of groups in a SQLite database beside the file: what comes next in each shard."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bicycle_runtime.streams.addresses import StreamKey
from bicycle_runtime.streams.file.errors import POSITIONS_UNUSABLE

__all__ = ["Positions"]

_TABLE = """
CREATE TABLE IF NOT EXISTS positions (
    consumer_group TEXT NOT NULL, stream TEXT NOT NULL, shard INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL, PRIMARY KEY (consumer_group, stream, shard)
) WITHOUT ROWID
"""
_PUT = "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)"
_GET = "SELECT stream, shard, next_sequence FROM positions WHERE consumer_group = ?"
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
        """Return what comes next in each shard that was ever committed."""
        if not self._path.exists():
            return {}
        try:
            with closing(self._connect()) as database:
                rows = database.execute(_GET, (self._group,)).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        return {(StreamKey(stream), shard): sequence for stream, shard, sequence in rows}

    def write(self, positions: dict[tuple[StreamKey, int], int]) -> None:
        """Keep positions; they are durable when this returns."""
        rows = [(self._group, str(k), shard, n) for (k, shard), n in sorted(positions.items())]
        try:
            with closing(self._connect()) as database, database:
                database.executemany(_PUT, rows)
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=_WAIT_S)
        database.execute(_TABLE)
        return database

    def _unusable(self, error: sqlite3.Error) -> Exception:
        return POSITIONS_UNUSABLE(address=str(self._path), path=str(self._path), reason=str(error))
