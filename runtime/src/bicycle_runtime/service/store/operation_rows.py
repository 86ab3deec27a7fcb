"""Rows of operations in the control tables: inserted, updated and read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bicycle_runtime.service.store.history import Operation, note_event
from bicycle_streams.access.database import Connection

OPEN = "state IN ('waiting', 'running')"
_COLUMNS = ("id", "actor", "owner", "job", "kind", "state", "asked_ms", "ended_ms")
_JSON_COLUMNS = ("facts", "result", "error")


def insert_operation(connection: Connection, **values: Any) -> Any:
    """Insert a waiting operation with the values of its columns, and return its row."""
    connection.execute(
        f"INSERT INTO operations ({', '.join(values)}, state)"
        f" VALUES ({', '.join('?' * len(values))}, 'waiting')",
        tuple(values.values()),
    )
    sql = "SELECT * FROM operations ORDER BY id DESC LIMIT 1"  # There is one writer.
    return connection.execute(sql).fetchone()


def update_operation(connection: Connection, changed: Operation, *, at_ms: int) -> None:
    """Store the state and the outcome of an operation, with an event of its job."""
    connection.execute(
        "UPDATE operations SET state = ?, ended_ms = ?, result = ?, error = ? WHERE id = ?",
        (changed.state, changed.ended_ms, _json(changed.result), _json(changed.error), changed.id),
    )
    facts = {"operation": changed.id, "kind": changed.kind, "state": changed.state}
    if changed.error is not None:
        facts |= {"code": changed.error["code"], "message": changed.error["message"]}
    level = "info" if changed.error is None else "warning"
    note_event(connection, changed.job, "operation", facts, level=level, at_ms=at_ms)


def row_of_key(connection: Connection, actor: str, key: str) -> Any | None:
    """Return the row of the operation that a caller has started with a key, or None."""
    sql = "SELECT * FROM operations WHERE actor = ? AND idempotency_key = ?"
    return connection.execute(sql, (actor, key)).fetchone()


def select_operations(connection: Connection, rest: str, values: Sequence[Any]) -> list[Operation]:
    """Return the operations of the rows that the rest of a statement selects."""
    rows = connection.execute(f"SELECT * FROM operations {rest}", values).fetchall()
    return [operation_of(row) for row in rows]


def operation_of(row: Any) -> Operation:
    """Return the operation of a row."""
    read: dict[str, Any] = {
        name: None if row[name] is None else json.loads(row[name]) for name in _JSON_COLUMNS
    }
    return Operation(**{name: row[name] for name in _COLUMNS}, key=row["idempotency_key"], **read)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
