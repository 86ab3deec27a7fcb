"""The history of jobs: state changes, events, samples and the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_streams.access.control import note_audit
from bicycle_streams.access.database import Connection, Database, SchemaScript

# Name of a tier -> its number in the table, seconds between two samples, samples kept.
TIERS: dict[str, tuple[int, int, int]] = {"5s": (0, 5, 720), "5m": (1, 300, 2_016)}
HISTORY = (
    SchemaScript(common="""
    CREATE TABLE job_numbers (number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT UNIQUE NOT NULL);
    CREATE TABLE samples (
        job_number INTEGER NOT NULL, tier INTEGER NOT NULL, slot INTEGER NOT NULL,
        at_s INTEGER NOT NULL, records_per_second REAL, lag_records INTEGER, lag_ms INTEGER,
        state_bytes INTEGER, errors INTEGER, late INTEGER,
        PRIMARY KEY (job_number, tier, slot)) WITHOUT ROWID;
    """),
    SchemaScript(common="""
    ALTER TABLE samples ADD COLUMN lag_bytes INTEGER;
    """),
    SchemaScript(common="""
    ALTER TABLE samples ADD COLUMN operators BLOB;
    """),
)  # fmt: skip
_PRUNE_S = 86_400
_EVENTS_MAX = 10_000  # Of one job; older ones go.
_REMOVED_MS = 7 * 86_400_000  # For so long, as for samples, removed jobs have events and states.
SAMPLED = (
    "records_per_second", "lag_records", "lag_bytes", "lag_ms", "state_bytes", "errors", "late",
)  # fmt: skip
# The values of an operator in a sample, in this order: counts of the run, and current values.
OPERATOR_SAMPLED = (
    "records_in", "records_out", "failed", "late", "busy_share", "record_p99_ms", "state_bytes",
)  # fmt: skip
_OPERATOR_SAMPLES = (
    "SELECT at_s, operators FROM samples JOIN job_numbers ON number = job_number"
    " WHERE job = ? AND tier = ? ORDER BY at_s"
)
_SAMPLES = (
    f"SELECT at_s, {', '.join(SAMPLED)} FROM samples JOIN job_numbers"
    " ON number = job_number WHERE job = ? AND tier = ? ORDER BY at_s"
)
_SUMS = (f"{'max' if name == 'lag_ms' else 'sum'}({name}) AS {name}" for name in SAMPLED)
_ALL_SAMPLES = (
    f"SELECT at_s, {', '.join(_SUMS)} FROM samples JOIN job_numbers ON number = job_number"
    " WHERE tier = ? {where} GROUP BY at_s ORDER BY at_s"
)
_AUDIT = "id, at_ms, actor, address, action, target, outcome, facts"


Operators = Mapping[str, Sequence[Any]]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event; ``kind`` is state, refused, failure, operation or service."""

    id: int
    job: str
    at_ms: int
    kind: str
    level: str
    facts: dict[str, Any]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One requested change, and whether it was permitted."""

    id: int
    at_ms: int
    actor: str
    address: str
    action: str
    target: str
    outcome: str
    facts: dict[str, Any]


class JobStateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One step in the life of a job; ``old`` is None for an unknown job."""

    at_ms: int
    old: str | None
    new: str
    cause: str
    actor: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One requested operation.

    ``actor`` is the caller, ``owner`` the owner of the job, or without a job the caller. ``state``
    is waiting, running, done, failed, interrupted or canceled; ``reason`` is the reason for which
    the start of a job waits. ``error`` has code, message, fix and facts of the error that ended it,
    and ``is_temporary``: the same request may succeed later. ``key`` is the idempotency key.
    """

    id: int
    actor: str
    job: str
    kind: str
    facts: dict[str, Any]
    state: str
    asked_ms: int
    ended_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    reason: str = ""
    owner: str = ""
    key: str | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the operation has ended."""
        return self.state not in ("waiting", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRow:
    """The stored row of a job.

    ``run`` is when its run began, in ms since 1970, and names the run. ``dismissed`` is JSON of a
    ``Dismissal``.
    """

    id: str
    run: int
    state: str
    plugin: str
    pid: int
    pid_started: int
    supervisor_pid: int
    supervisor_started: int
    restarts: int
    dismissed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The findings of one look at a job: its row, its steps, and failures.

    Steps are former state, state and time; events kind, level, facts and time, in ms since 1970.
    """

    row: KnownRow
    steps: tuple[tuple[str | None, str, int], ...] = ()
    cause: str = ""
    actor: str = ""
    events: tuple[tuple[str, str, Mapping[str, Any], int], ...] = ()


def note_event(
    connection: Connection, job: str, kind: str, facts: Mapping[str, Any], *, level: str,
    at_ms: int,
) -> int:  # fmt: skip
    """Write one event and return its number; very old ones of a job are removed."""
    values = (job, at_ms, kind, level, json.dumps(facts))
    connection.execute(
        "INSERT INTO events (job, at_ms, kind, level, facts) VALUES (?, ?, ?, ?, ?)", values
    )
    number = _last_event(connection)
    if number % 100 == 0:
        connection.execute(
            "DELETE FROM events WHERE job = ? AND id <= (SELECT id FROM events WHERE job = ?"
            " ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (job, job, _EVENTS_MAX),
        )
    return number


def _forget_removed(connection: Connection, *, before_ms: int) -> None:
    """Delete all but the last event of jobs that were removed before a time."""
    jobs = "(SELECT id FROM jobs WHERE removed_ms < ?)"
    connection.execute(f"DELETE FROM state_changes WHERE job IN {jobs}", (before_ms,))
    connection.execute(
        f"DELETE FROM events WHERE job IN {jobs} AND id < (SELECT max(id) FROM events)",
        (before_ms,),
    )


def _last_event(connection: Connection) -> int:
    row = connection.execute("SELECT coalesce(max(id), 0) AS id FROM events").fetchone()
    return int(row["id"])


class History:
    """The reader and writer of the history.

    Args:
        control: The database with jobs and events.
        samples: The database with samples.
    """

    def __init__(self, control: Database, samples: Database) -> None:
        self._control = control
        self._samples = samples
        self._pruned_s = 0

    def known_rows(self) -> dict[str, KnownRow]:
        """Return the stored row of each job whose folder existed at the last look."""
        names = ", ".join(KnownRow.__dataclass_fields__)
        sql = f"SELECT {names} FROM jobs WHERE removed_ms IS NULL"
        rows = self._control.read(lambda connection: connection.execute(sql).fetchall())
        return {row["id"]: KnownRow(**dict(row)) for row in rows}

    def note(self, found: Iterable[Noted], removed: Iterable[str], *, at_ms: int) -> Future[int]:
        """Write the findings of one look; the result is the last event's number, or 0.

        When jobs are removed, so are events and states of jobs that were removed a week before.
        """
        noted, gone = tuple(found), tuple(removed)

        def work(connection: Connection) -> int:
            last = 0
            for each in noted:
                last = max(last, _note(connection, each, at_ms=at_ms))
            for job in gone:
                connection.execute("UPDATE jobs SET removed_ms = ? WHERE id = ?", (at_ms, job))
            if gone:
                _forget_removed(connection, before_ms=at_ms - _REMOVED_MS)
            return last

        return self._control.write(work)

    def note_dismissed(self, job: str, dismissed: str) -> Future[None]:
        """Store that the present problems of a job need no attention."""
        sql = "UPDATE jobs SET dismissed = ? WHERE id = ?"

        def work(connection: Connection) -> None:
            connection.execute(sql, (dismissed, job))

        return self._control.write(work)

    def note_audit(
        self, entry: Mapping[str, str], facts: Mapping[str, Any], *, at_ms: int
    ) -> Future[None]:
        """Write a line into the audit log: see the function of this name."""
        return self._control.write(
            lambda connection: note_audit(connection, entry, facts, at_ms=at_ms)
        )

    def latest_event(self) -> int:
        """Return the number of the last event, or 0."""
        return int(self._control.read(_last_event))

    def events(
        self, job: str | None = None, *, after: int = 0, limit: int = 200,
        owners: Sequence[str] | None = None,
    ) -> list[Event]:  # fmt: skip
        """Return events after a number, oldest first, of a job, of owners, or all."""
        where, values = _about(job, owners)
        sql = f"SELECT * FROM events WHERE id > ? {where} ORDER BY id LIMIT ?"
        return self._rows(sql, (after, *values, limit), Event)

    def latest_events(
        self, job: str | None = None, *, limit: int = 50, owners: Sequence[str] | None = None
    ) -> list[Event]:
        """Return events, the newest first, of one job, of owners, or of all."""
        where, values = _about(job, owners)
        return self._rows(
            f"SELECT * FROM events WHERE 1 = 1 {where} ORDER BY id DESC LIMIT ?",
            (*values, limit), Event,
        )  # fmt: skip

    def audit(
        self, *, after: int = 0, limit: int = 200, owners: Sequence[str] | None = None
    ) -> list[AuditEntry]:
        """Return lines of the audit log after a number, oldest first, of owners or all."""
        where, values = one_of("owner", owners)
        sql = f"SELECT {_AUDIT} FROM audit WHERE id > ? {where} ORDER BY id LIMIT ?"
        return self._audit_rows(sql, (after, *values, limit))

    def latest_audit(
        self, *, before: int | None = None, limit: int = 50, owners: Sequence[str] | None = None
    ) -> list[AuditEntry]:
        """Return lines of the audit log before a number, newest first."""
        where, values = one_of("owner", owners)
        sql = f"SELECT {_AUDIT} FROM audit WHERE id < ? {where} ORDER BY id DESC LIMIT ?"
        return self._audit_rows(sql, (2**62 if before is None else before, *values, limit))

    def _audit_rows(self, sql: str, values: tuple[Any, ...]) -> list[AuditEntry]:
        """Return lines of the audit log, including lines of recent responses."""
        self._control.settle()
        return self._rows(sql, values, AuditEntry)

    def state_changes(self, job: str, *, limit: int = 200) -> list[JobStateChange]:
        """Return the steps in the life of a job, the newest first."""
        sql = (
            "SELECT at_ms, old, new, cause, actor FROM state_changes WHERE job = ?"
            " ORDER BY rowid DESC LIMIT ?"
        )
        return self._rows(sql, (job, limit), JobStateChange)

    def note_samples(
        self, jobs: Iterable[tuple[str, Mapping[str, Any], Operators]], *, at_s: int
    ) -> Future[None]:
        """Store a sample of each job, and every five minutes a mean.

        Once a day, and first, samples are removed that are older than those of any tier.

        Args:
            jobs: Ids, values by the names in ``SAMPLED``, and values of operators by uid, in the
                order of ``OPERATOR_SAMPLED``; of operators, the last value of five minutes counts.
            at_s: The time, a multiple of 5 s since 1970.
        """
        rows = [
            (job, *(values[name] for name in SAMPLED), msgspec.msgpack.encode(operators))
            for job, values, operators in jobs
        ]
        is_pruning = at_s - self._pruned_s >= _PRUNE_S
        self._pruned_s = at_s if is_pruning else self._pruned_s
        return self._samples.write(_samples_writer(rows, at_s, is_pruning=is_pruning))

    def operator_samples(self, job: str, operator: str, *, tier: str = "5s") -> dict[str, Any]:
        """Return columns of one operator over time, oldest first; None is a gap.

        Args:
            job: The job's id.
            operator: Its uid, as a status calls it; of an unknown one the columns are empty.
            tier: A word of ``TIERS``.
        """
        number = TIERS[tier][0]
        rows = self._samples.read(
            lambda connection: connection.execute(_OPERATOR_SAMPLES, (job, number)).fetchall()
        )
        found = []
        for row in rows:
            operators = msgspec.msgpack.decode(row["operators"]) if row["operators"] else {}
            if operator in operators:
                values = dict(zip(OPERATOR_SAMPLED, operators[operator], strict=True))
                found.append({"at_s": row["at_s"], **values})
        return _columns(found, OPERATOR_SAMPLED, tier)

    def samples(self, job: str, *, tier: str = "5s") -> dict[str, Any]:
        """Return columns over time, the oldest first; None in a column is a gap.

        Args:
            job: The job's id.
            tier: A word of ``TIERS``: an hour in steps of 5 s, or 7 days in steps of 5 minutes.
        """
        return self._sample(_SAMPLES, (job, TIERS[tier][0]), tier)

    def samples_of_all(
        self, *, tier: str = "5s", jobs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return the same of the sums of some jobs, or of all; of ``lag_ms`` the greatest."""
        where, values = one_of("job", jobs)
        sql = _ALL_SAMPLES.format(where=where)
        return self._sample(sql, (TIERS[tier][0], *values), tier)

    def _sample(self, sql: str, values: tuple[Any, ...], tier: str) -> dict[str, Any]:
        rows = self._samples.read(lambda connection: connection.execute(sql, values).fetchall())
        return _columns(rows, SAMPLED, tier)

    def _rows(self, sql: str, values: tuple[Any, ...], kind: type[Any]) -> list[Any]:
        rows = self._control.read(lambda connection: connection.execute(sql, values).fetchall())
        return [kind(**_plain(row)) for row in rows]


def one_of(column: str, words: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a query condition that a column is one of some words, and its values.

    Example:
        >>> one_of("owner", ["ada", "bob"]), one_of("owner", None)
        (('AND owner IN (?, ?)', ('ada', 'bob')), ('', ()))
    """
    if words is None:
        return "", ()
    return f"AND {column} IN ({', '.join('?' * len(words))})", tuple(words)


def _about(job: str | None, owners: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition that an event is about one job, and one of some owners."""
    whose, values = one_of("owner", owners)
    where = f"AND job IN (SELECT job FROM owners WHERE 1 = 1 {whose})" if whose else ""
    return (where, values) if job is None else (f"{where} AND job = ?", (*values, job))


def _columns(
    rows: Sequence[Mapping[str, Any] | Any], names: Sequence[str], tier: str
) -> dict[str, Any]:
    """Return the columns of rows in the order of time, with gaps for missing rows."""
    _number, step_s, count = TIERS[tier]
    columns: dict[str, list[Any]] = {name: [] for name in ("at_s", *names)}
    last_s: int | None = None
    oldest_s = 0 if not rows else rows[-1]["at_s"] - step_s * count
    for row in rows:
        if row["at_s"] <= oldest_s:
            continue
        if last_s is not None and row["at_s"] - last_s > 2 * step_s:
            columns["at_s"].append(last_s + step_s)
            for name in names:
                columns[name].append(None)
        for name, column in columns.items():
            column.append(row[name])
        last_s = row["at_s"]
    return {"tier": tier, "step_s": step_s, **columns}


def _plain(row: Any) -> dict[str, Any]:
    plain = dict(row)
    if "facts" in plain:
        plain["facts"] = json.loads(plain["facts"])
    return plain


def _note(connection: Connection, noted: Noted, *, at_ms: int) -> int:
    row, last = noted.row, 0
    names = tuple(KnownRow.__dataclass_fields__)
    values = [getattr(row, name) for name in names]
    kept = ("id", "dismissed")  # Dismissals are stored separately.
    news = ", ".join(f"{n} = excluded.{n}" for n in names if n not in kept)
    connection.execute(
        f"INSERT INTO jobs ({', '.join(names)}, seen_ms) VALUES ({', '.join('?' * len(names))}, ?)"
        f" ON CONFLICT (id) DO UPDATE SET {news}, seen_ms = excluded.seen_ms, removed_ms = NULL",
        (*values, at_ms),
    )
    for old, new, step_ms in noted.steps:
        connection.execute(
            "INSERT INTO state_changes VALUES (?, ?, ?, ?, ?, ?)",
            (row.id, step_ms, old, new, noted.cause, noted.actor),
        )
        step = {"old": old, "new": new, "cause": noted.cause}
        last = note_event(connection, row.id, "state", step, level="info", at_ms=step_ms)
    for kind, level, facts, event_ms in noted.events:
        last = note_event(connection, row.id, kind, facts, level=level, at_ms=event_ms)
    return last


def _samples_writer(
    rows: list[tuple[Any, ...]], at_s: int, *, is_pruning: bool
) -> Callable[[Connection], None]:
    values = ("at_s", "operators", *SAMPLED)
    names, marks = ", ".join(("job_number, tier, slot", *values)), ", ".join("?" * len(SAMPLED))
    news = ", ".join(f"{name} = excluded.{name}" for name in values)
    replace = f"ON CONFLICT (job_number, tier, slot) DO UPDATE SET {news}"
    fine, fine_s, fine_count = TIERS["5s"]
    coarse, coarse_s, coarse_count = TIERS["5m"]
    means = ", ".join(f"avg({name})" for name in SAMPLED)
    is_coarse = at_s // fine_s * fine_s % coarse_s == 0
    oldest_s = at_s - max(step_s * count for _, step_s, count in TIERS.values())

    def work(connection: Connection) -> None:
        for job, *values, operators in rows:
            connection.execute(
                "INSERT INTO job_numbers (job) VALUES (?) ON CONFLICT (job) DO NOTHING", (job,)
            )
            known = "SELECT number FROM job_numbers WHERE job = ?"
            number = connection.execute(known, (job,)).fetchone()["number"]
            connection.execute(
                f"INSERT INTO samples ({names}) VALUES (?, ?, ?, ?, ?, {marks}) {replace}",
                (number, fine, at_s // fine_s % fine_count, at_s, operators, *values),
            )
            if is_coarse:
                slot = at_s // coarse_s % coarse_count
                connection.execute(
                    f"INSERT INTO samples ({names}) SELECT ?, ?, ?, ?, ?, {means} FROM samples"
                    " WHERE job_number = ? AND tier = ? AND at_s > ? AND at_s <= ?"
                    f" {replace}",
                    (number, coarse, slot, at_s, operators, number, fine, at_s - coarse_s, at_s),
                )
        if is_pruning:
            connection.execute("DELETE FROM samples WHERE at_s <= ?", (oldest_s,))
            unused = "number NOT IN (SELECT job_number FROM samples)"
            connection.execute(f"DELETE FROM job_numbers WHERE {unused}")

    return work
