"""One SQLite file: a thread that writes, and reads from any other thread.

Waiting changes share one transaction, so that many small changes need one write to the disk. Each
change is independent: a change that fails is undone alone. A reader has a
connection per thread, which may only read, and sees whole transactions.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, TypeVar

from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.errors import DATABASE_UNUSABLE

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
_Entry = tuple[Work, "Future[Any]"]

_BUSY_MS = 5_000
_WAL_BYTES_MAX = 16 << 20
_QUEUE_MAX = 10_000
_BATCH_MAX = 500
_LOST = {
    "control.db": "tokens, owners of jobs, quotas, events, operations and the audit log",
    "history.db": "the samples of seven days",
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Database:
    """A context manager; the thread runs between entering and leaving.

    Args:
        path: The file; made with its folder when missing, readable by its owner only.
        versions: See ``prepare``.
        synchronous: ``FULL``: a completed ``write`` survives a power failure. ``NORMAL``: it
            survives the end of the process.
    """

    def __init__(
        self, path: Path, versions: tuple[str, ...], *, synchronous: Literal["FULL", "NORMAL"]
    ) -> None:
        self._path = path
        self._versions = versions
        self._synchronous = synchronous
        self._queue: queue.Queue[_Entry | None] = queue.Queue(_QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name=f"write {path.name}", daemon=True)
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None

    def __enter__(self) -> Database:
        """Open the file, and bring it to the newest version.

        Raises:
            DATABASE_UNUSABLE: it is of a newer version, damaged, or no database of ours.
        """
        # Made here, so that it is never readable by others, not even for a moment.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with contextlib.ExitStack() as opened:
            self._writer = opened.enter_context(contextlib.closing(self._connect()))
            known_version(self._writer, self._path, self._versions)  # Before anything is changed.
            try:
                _settle(self._writer, self._synchronous)
                prepare(self._writer, self._path, self._versions)
            except sqlite3.DatabaseError as error:
                raise self._as_ours(error) from error
            self._thread.start()
            opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Write queued work, and close."""
        self._queue.put(None)
        self._thread.join()
        for connection in self._readers:
            connection.close()
        if self._writer is not None:
            self._writer.close()

    def write(self, work: Work) -> Future[Any]:
        """Queue work for the writer's transaction; the future completes with the commit.

        Args:
            work: Called with the connection; returns the result. It must not commit.
        """
        done: Future[Any] = Future()
        self._queue.put((work, done))
        return done

    def settle(self) -> None:
        """Wait until all that was to be written before is written, or has failed."""
        self.write(lambda _connection: None).exception()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of reading in this thread.

        Raises:
            DATABASE_UNUSABLE: the file is damaged.
        """
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            connection.execute("PRAGMA query_only = 1")
            self._local.connection = connection
            self._readers.append(connection)
        try:
            return work(connection)
        except sqlite3.DatabaseError as error:
            raise self._as_ours(error) from error

    def _as_ours(self, error: BaseException) -> BaseException:
        """Return the error for a damaged file with advice, and any other as it is."""
        code = getattr(error, "sqlite_errorcode", None)  # Its lowest byte is the kind.
        if code is None or code & 0xFF not in _DAMAGED:
            return error
        return unusable(self._path, str(error))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return connection

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._batch()
            if batch:
                self._write_batch(batch)

    def _batch(self) -> tuple[list[_Entry], bool]:
        """Return the next work to write, and False if it is the last."""
        entry = self._queue.get()
        batch: list[_Entry] = []
        while entry is not None:
            batch.append(entry)
            if len(batch) >= _BATCH_MAX:
                return batch, True
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _write_batch(self, batch: list[_Entry]) -> None:
        connection = self._writer
        assert connection is not None
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for work, done in batch:
                results.append((done, *_attempt(connection, work)))
            connection.execute("COMMIT")
        except sqlite3.Error as error:  # For example a full disk: nothing of the batch was written.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            results = [(done, None, error) for _, done in batch]
        for done, result, failure in results:
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(self._as_ours(failure))


def _settle(connection: sqlite3.Connection, synchronous: str) -> None:
    """Set up write-ahead logging, and durability in a power cut."""
    for setting in (
        "journal_mode = WAL",
        f"journal_size_limit = {_WAL_BYTES_MAX}",
        f"synchronous = {synchronous}",
    ):
        connection.execute(f"PRAGMA {setting}")


def _attempt(connection: sqlite3.Connection, work: Work) -> tuple[Any, BaseException | None]:
    """Return the result of one piece of work, or its error, when it is undone."""
    connection.execute("SAVEPOINT work")
    try:
        result = work(connection)
    except Exception as error:  # noqa: BLE001 - It is raised to the caller, in another thread.
        connection.execute("ROLLBACK TO work")
        connection.execute("RELEASE work")
        return None, error
    connection.execute("RELEASE work")
    return result, None


def prepare(connection: sqlite3.Connection, path: Path, versions: tuple[str, ...]) -> None:
    """Bring a database to the newest version; one of a newer version is refused.

    Args:
        connection: A new one, in no transaction.
        path: Its file, for the error.
        versions: The scripts from each version to the next, the first for an empty file.

    Raises:
        DATABASE_UNUSABLE: the file is of a newer version, or no database of ours.
    """
    for number in range(known_version(connection, path, versions), len(versions)):
        script = f"BEGIN IMMEDIATE; {versions[number]} PRAGMA user_version = {number + 1}; COMMIT;"
        connection.executescript(script)


def known_version(connection: sqlite3.Connection, path: Path, versions: tuple[str, ...]) -> int:
    """Return the version of a database; nothing is written.

    Raises:
        DATABASE_UNUSABLE: the file is of a newer version, or no database of ours.
    """
    try:
        [(found,)] = connection.execute("PRAGMA user_version").fetchall()
    except sqlite3.DatabaseError as error:
        raise unusable(path, str(error)) from error
    if found > len(versions):
        reason = f"it has format version {found}, but this runtime supports {len(versions)}"
        raise unusable(path, reason)
    return int(found)


def unusable(path: Path, reason: str) -> BicycleError:
    """Return the error of an unusable database, with the data that would be lost."""
    lost = _LOST.get(path.name, "its rows")
    return DATABASE_UNUSABLE(path=str(path), reason=reason, lost=lost)
