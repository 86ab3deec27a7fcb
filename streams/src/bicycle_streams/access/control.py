"""Control tables of a home: jobs, events, operations, tokens, the audit log.

The service and the subscriber server of a home share them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bicycle_streams.access.database import Connection, SchemaScript

SERVICE_FOLDER = "service"  # In the home.
CONTROL = (
    SchemaScript(common="""
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
    """, sqlite="""
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit log is not changed'); END;
    CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit log is not changed'); END;
    """, postgres="""
    CREATE FUNCTION audit_is_not_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE integrity_constraint_violation USING MESSAGE = 'the audit log is not changed';
        END $$;
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        EXECUTE FUNCTION audit_is_not_changed();
    ALTER TABLE state_changes ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
    """),
    SchemaScript(common="""
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BLOB NOT NULL, role TEXT NOT NULL,
        made_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked_ms INTEGER);
    CREATE TABLE sessions (
        hash BLOB PRIMARY KEY, token TEXT NOT NULL, made_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL);
    """, postgres="""
    ALTER TABLE tokens ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
    """),
    SchemaScript(common="""
    CREATE TABLE owners (job TEXT PRIMARY KEY, owner TEXT NOT NULL);
    CREATE TABLE quotas (
        owner TEXT PRIMARY KEY, jobs INTEGER, slots INTEGER, upload_bytes INTEGER);
    """),
    SchemaScript(common="""
    ALTER TABLE tokens ADD COLUMN owners TEXT;
    ALTER TABLE operations ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    UPDATE operations SET owner =
        coalesce((SELECT owner FROM owners WHERE job = operations.job), '');
    ALTER TABLE audit ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    CREATE INDEX owners_by_owner ON owners (owner);
    """),
    SchemaScript(common="""
    ALTER TABLE jobs ADD COLUMN dismissed TEXT;
    """),
)  # fmt: skip


def note_audit(
    connection: Connection, entry: Mapping[str, str], facts: Mapping[str, Any], *,
    at_ms: int,
) -> None:  # fmt: skip
    """Write one line of the audit log: actor, address, action, target and outcome.

    ``owner`` of the entry is the owner of the target; without an owner, only callers with access to
    all owners see the line.
    """
    words = [entry[name] for name in ("actor", "address", "action", "target", "outcome")]
    connection.execute(
        "INSERT INTO audit (at_ms, actor, address, action, target, outcome, facts, owner)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (at_ms, *words, json.dumps(facts), entry.get("owner", "")),
    )
