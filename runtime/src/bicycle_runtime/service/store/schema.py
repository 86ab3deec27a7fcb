"""Tables of the two databases, and migrations of older files.

``control.db`` has operations and events. ``history.db`` has samples, may be deleted, and has a
fixed size: the time of a row determines its slot, and a newer row replaces it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bicycle_runtime.service.errors import DATABASE_UNUSABLE
from bicycle_sdk.errors import BicycleError

_LOST = {
    "control.db": "tokens, owners of jobs, quotas, events, operations and the audit log",
    "history.db": "the samples of seven days",
}
# Name of a tier -> its number in the table, seconds between two samples, samples kept.
TIERS: dict[str, tuple[int, int, int]] = {"5s": (0, 5, 720), "5m": (1, 300, 2_016)}

CONTROL: tuple[str, ...] = (
    """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY, run INTEGER NOT NULL, state TEXT NOT NULL, plugin TEXT NOT NULL,
        pid INTEGER NOT NULL, pid_started INTEGER NOT NULL, supervisor_pid INTEGER NOT NULL,
        supervisor_started INTEGER NOT NULL, restarts INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
        suspended_run INTEGER, savepoint TEXT, removed_ms INTEGER);
    CREATE TABLE state_changes (
        job TEXT NOT NULL, at_ms INTEGER NOT NULL, old TEXT, new TEXT NOT NULL,
        cause TEXT NOT NULL, actor TEXT NOT NULL);
    CREATE INDEX state_changes_by_job ON state_changes (job, at_ms);
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL, level TEXT NOT NULL, facts TEXT NOT NULL);
    CREATE INDEX events_by_job ON events (job, id);
    CREATE TABLE operations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, actor TEXT NOT NULL, idempotency_key TEXT,
        body_digest TEXT NOT NULL, job TEXT NOT NULL, kind TEXT NOT NULL, facts TEXT NOT NULL,
        state TEXT NOT NULL, asked_ms INTEGER NOT NULL, ended_ms INTEGER, result TEXT, error TEXT,
        UNIQUE (actor, idempotency_key));
    CREATE INDEX operations_by_job ON operations (job, id);
    CREATE INDEX operations_open ON operations (state) WHERE state IN ('waiting', 'running');
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, actor TEXT NOT NULL,
        address TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL,
        facts TEXT NOT NULL);
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit log is not changed'); END;
    CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit log is not changed'); END;
    """,
    """
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BLOB NOT NULL, role TEXT NOT NULL,
        made_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked_ms INTEGER);
    CREATE TABLE sessions (
        hash BLOB PRIMARY KEY, token TEXT NOT NULL, made_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL);
    """,
    """
    CREATE TABLE owners (job TEXT PRIMARY KEY, owner TEXT NOT NULL);
    CREATE TABLE quotas (
        owner TEXT PRIMARY KEY, jobs INTEGER, slots INTEGER, upload_bytes INTEGER);
    """,
    """
    ALTER TABLE tokens ADD COLUMN owners TEXT;
    ALTER TABLE operations ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    UPDATE operations SET owner =
        coalesce((SELECT owner FROM owners WHERE job = operations.job), '');
    ALTER TABLE audit ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    CREATE INDEX owners_by_owner ON owners (owner);
    """,
    """
    ALTER TABLE jobs ADD COLUMN dismissed TEXT;
    """,
)
HISTORY: tuple[str, ...] = (
    """
    CREATE TABLE job_numbers (number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT UNIQUE NOT NULL);
    CREATE TABLE samples (
        job_number INTEGER NOT NULL, tier INTEGER NOT NULL, slot INTEGER NOT NULL,
        at_s INTEGER NOT NULL, records_per_second REAL, lag_records INTEGER, lag_ms INTEGER,
        state_bytes INTEGER, errors INTEGER, late INTEGER,
        PRIMARY KEY (job_number, tier, slot)) WITHOUT ROWID;
    """,
    """
    ALTER TABLE samples ADD COLUMN lag_bytes INTEGER;
    """,
    """
    ALTER TABLE samples ADD COLUMN operators BLOB;
    """,
)


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
