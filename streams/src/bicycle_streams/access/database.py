"""Databases of a home: SQLite files, or tables in PostgreSQL.

One thread writes, any thread reads. Waiting changes share one transaction, so that many small
changes need one write to the disk. Each change is independent: a change that fails is undone alone.
A reader sees whole transactions, and may only read. Statements are written in the SQL that both
databases read, with ``?`` for values.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from bicycle_sdk.errors import BicycleError
from bicycle_sdk.secrets import Secret
from bicycle_streams.access.errors import DATABASE_UNUSABLE

T = TypeVar("T")


class StatementResult(Protocol):
    """The result of a statement; the values of rows have names."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows."""


class Connection(Protocol):
    """A connection to either database."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> StatementResult:
        """Execute a statement with values."""

    def close(self) -> None:
        """Close the connection."""


Work = Callable[[Any], Any]  # Of a ``Connection``.
Entry = tuple[Work, "Future[Any]"]
Result = tuple["Future[Any]", Any, BaseException | None]

_BUSY_MS = 5_000
_WAL_BYTES_MAX = 16 << 20
_QUEUE_MAX = 10_000
_BATCH_MAX = 500
_LOST = {
    "control.db": "tokens, owners of jobs, quotas, events, operations and the audit log",
    "history.db": "the samples of seven days",
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaScript:
    """The change from one version of the tables to the next.

    Attributes:
        common: Statements for both databases, with SQLite's names of types.
        sqlite: Further statements for SQLite alone.
        postgres: Further statements for PostgreSQL alone.
    """

    common: str
    sqlite: str = ""
    postgres: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """A PostgreSQL database with the tables of a home.

    Attributes:
        url: Its URL, without a password.
        password: Reference to the password. Default: libpq finds it, as in ``PGPASSFILE``.
    """

    url: str
    password: Secret | None = None


def server_of(database: str | None, database_password: str | None) -> DatabaseServer | None:
    """Return the server of the options of these names, or None without one."""
    if database is None:
        return None
    secret = None if database_password is None else Secret.parse(database_password)
    return DatabaseServer(url=database, password=secret)


class Database(ABC):
    """A context manager; the thread that writes runs between entering and leaving.

    Args:
        name: Of the thread.

    Attributes:
        errors: The errors of the library.
        is_remote: Whether a read may wait for a server.
    """

    errors: ClassVar[type[Exception]]
    is_remote: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        self._queue: queue.Queue[Entry | None] = queue.Queue(_QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name=f"write {name}", daemon=True)
        self._idle: deque[Connection] = deque()
        self._writer: Any = None
        self._lock = threading.Lock()  # Nothing is queued after the last entry.
        self._is_closed = False

    def __enter__(self) -> Database:
        """Open the database, and bring it to the newest version.

        Raises:
            DATABASE_UNUSABLE: a file is of a newer version, damaged, or no database of ours.
            DATABASE_SERVER_UNUSABLE: the same of tables on a server, or another service uses them.
            DATABASE_SERVER_UNAVAILABLE: the server cannot be reached, or rejects the login.
        """
        try:
            self._writer = self._open()
        except self.errors as error:
            raise self._as_ours(error) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write queued work, and close."""
        with self._lock:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        self._close_idle()
        if self._writer is not None:
            self._writer.close()

    @abstractmethod
    def _open(self) -> Connection:
        """Return the connection that writes, to tables of the newest version."""

    @abstractmethod
    def _connect(self) -> Connection:
        """Return a connection that only reads."""

    @abstractmethod
    def _commit(self, batch: Sequence[Entry]) -> list[Result]:
        """Return the results of a batch that is written; if it raises, nothing is written."""

    @abstractmethod
    def _as_ours(self, error: BaseException) -> BaseException:
        """Return the error with advice for one that has some, and any other as it is."""

    def _is_lost(self, connection: Any) -> bool:
        """Return whether a connection can no longer be used."""
        return False

    def write(self, work: Work) -> Future[Any]:
        """Queue work for the writer's transaction; the future completes with the commit.

        Args:
            work: Called with the connection; returns the result. It must not commit, and may be
                called again if the connection is lost. The write fails if the database is closed.
        """
        done: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                done.set_exception(self.errors("the database is closed"))
            else:
                self._queue.put((work, done))
        return done

    def settle(self) -> None:
        """Wait until all that was to be written before is written, or has failed."""
        self.write(lambda _connection: None).exception()

    def read(self, work: Callable[[Any], T]) -> T:
        """Return the result of reading in this thread.

        Raises:
            DATABASE_UNUSABLE: the file is damaged.
            DATABASE_SERVER_UNAVAILABLE: the server cannot be reached.
        """
        try:
            return self._read(work)
        except self.errors as error:
            raise self._as_ours(error) from error

    def _read(self, work: Callable[[Any], T], *, is_retried: bool = False) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            return work(connection)
        except self.errors:
            if is_retried or not self._is_lost(connection):
                raise
        finally:
            if self._is_closed or self._is_lost(connection):
                connection.close()
            else:
                self._idle.append(connection)
        self._close_idle()  # The server has ended all sessions, for example.
        return self._read(work, is_retried=True)

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # There are no more.
            while True:
                self._idle.pop().close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._batch()
            if batch:
                self._write_batch(batch)

    def _batch(self) -> tuple[list[Entry], bool]:
        """Return the next work to write, and False if it is the last."""
        entry = self._queue.get()
        batch: list[Entry] = []
        while entry is not None:
            batch.append(entry)
            if len(batch) >= _BATCH_MAX:
                return batch, True
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _write_batch(self, batch: list[Entry]) -> None:
        try:
            results = self._commit(batch)
        except Exception as error:  # noqa: BLE001 - Else the thread ends, and all writes wait.
            results = [(done, None, error) for _, done in batch]
        for done, result, failure in results:
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(self._as_ours(failure))


class SqliteDatabase(Database):
    """One SQLite file.

    Args:
        path: The file; made with its folder when missing, readable by its owner only.
        versions: See ``prepare``.
        synchronous: ``FULL``: a completed ``write`` survives a power failure. ``NORMAL``: it
            survives the end of the process.
    """

    errors = sqlite3.DatabaseError

    def __init__(
        self,
        path: Path,
        versions: Sequence[SchemaScript],
        *,
        synchronous: Literal["FULL", "NORMAL"],
    ) -> None:
        super().__init__(path.name)
        self._path = path
        self._versions = versions
        self._synchronous = synchronous

    def _open(self) -> sqlite3.Connection:
        # Made here, so that it is never readable by others, not even for a moment.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with contextlib.ExitStack() as opened:
            writer = opened.enter_context(contextlib.closing(self._connection()))
            known_version(writer, self._path, self._versions)  # Before anything is changed.
            _settle(writer, self._synchronous)
            prepare(writer, self._path, self._versions)
            opened.pop_all()
        return writer

    def _connect(self) -> sqlite3.Connection:
        connection = self._connection()
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return connection

    def _commit(self, batch: Sequence[Entry]) -> list[Result]:
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            results = perform(connection, batch)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def _as_ours(self, error: BaseException) -> BaseException:
        code = getattr(error, "sqlite_errorcode", None)  # Its lowest byte is the kind.
        if code is None or code & 0xFF not in _DAMAGED:
            return error
        return unusable(self._path, str(error))


def _settle(connection: sqlite3.Connection, synchronous: str) -> None:
    """Set up write-ahead logging, and durability in a power cut."""
    for setting in (
        "journal_mode = WAL",
        f"journal_size_limit = {_WAL_BYTES_MAX}",
        f"synchronous = {synchronous}",
    ):
        connection.execute(f"PRAGMA {setting}")


def perform(connection: Connection, batch: Sequence[Entry]) -> list[Result]:
    """Return the result of each piece of work in an open transaction, or its error."""
    return [(done, *_attempt(connection, work)) for work, done in batch]


def _attempt(connection: Connection, work: Work) -> tuple[Any, BaseException | None]:
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


def prepare(connection: sqlite3.Connection, path: Path, versions: Sequence[SchemaScript]) -> None:
    """Bring a database to the newest version; one of a newer version is refused.

    Args:
        connection: A new one, in no transaction.
        path: Its file, for the error.
        versions: The scripts from each version to the next, the first for an empty file.

    Raises:
        DATABASE_UNUSABLE: the file is of a newer version, or no database of ours.
    """
    for number in range(known_version(connection, path, versions), len(versions)):
        script = f"{versions[number].common} {versions[number].sqlite}"
        version = f"PRAGMA user_version = {number + 1}"
        connection.executescript(f"BEGIN IMMEDIATE; {script} {version}; COMMIT;")


def known_version(
    connection: sqlite3.Connection, path: Path, versions: Sequence[SchemaScript]
) -> int:
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
