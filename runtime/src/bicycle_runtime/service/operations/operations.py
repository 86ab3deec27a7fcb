"""Operations: requests from their start to their end, across service restarts.

An operation is stored as a row before its request is answered. Threads perform a few operations at
a time, so no request waits for a driver. Cancels have separate threads, because another operation
may hang. Changes of plugins have one thread, and are performed in turn. A repeated request with the
same key is the same operation. After an end of the service, an open operation is repeated if that
is harmless, detected as complete, or marked as interrupted. No operation starts a job twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from bicycle_runtime.base.processes import stand_back
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.operations.operation import OperationCall
from bicycle_runtime.service.address import queue_folder
from bicycle_runtime.service.errors import (
    JOB_ENDED,
    OPERATION_BEGUN,
    OPERATION_FACTS_INVALID,
    OPERATION_INTERRUPTED,
    OPERATION_KEY_REUSED,
    OPERATION_UNKNOWN,
    QUOTA_EXCEEDED,
    SERVICE_BUSY,
    START_WITHDRAWN,
    failure_of,
)
from bicycle_runtime.service.operations.admission import Slots
from bicycle_runtime.service.operations.job_queue import JobQueue
from bicycle_runtime.service.operations.kinds import KINDS, STARTING
from bicycle_runtime.service.store.history import Operation, one_of
from bicycle_runtime.service.store.operation_rows import (
    OPEN,
    insert_operation,
    operation_of,
    row_of_key,
    select_operations,
    update_operation,
)
from bicycle_runtime.service.users.owners import Owners
from bicycle_runtime.service.users.redaction import JobSecrets, redacted
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.states import Intent, State
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_streams.access.control import note_audit
from bicycle_streams.access.database import Connection, Database, Work
from bicycle_streams.access.roles import Identity

_LOG = logging.getLogger(__name__)
_THREAD_COUNT = 8
_CANCEL_THREAD_COUNT = 4
_WAITING_MAX = 1_000
_KEY_LENGTH_MAX = 200
_NUMBER_MAX = 2**63 - 1  # The databases know no greater one.
_PAUSE_S, _PAUSE_S_MAX = 0.1, 10.0  # Between two attempts to store the progress of an operation.

_Queue = queue.Queue[tuple[int, Any] | None]


class Operations:
    """A context manager whose threads execute operations; exit does not wait for them.

    Args:
        control: The database with operations and the audit log.
        home, clock: The jobs, and the time of day.
        fleet: The snapshot, which is updated at each step.
        on_done: Called in a thread with each ended operation, before its end is visible.
        owners: The owners of jobs and their quotas.
        slots: The slots of the masters.

    Attributes:
        jobs: Jobs that wait to be started.
    """

    def __init__(
        self, control: Database, fleet: Fleet, on_done: Callable[[Operation], None], *,
        home: Home, clock: Clock, owners: Owners, slots: Slots,
    ) -> None:  # fmt: skip
        self._control = control
        self._secrets = JobSecrets(home)
        self._home = home
        self._clock = clock
        self._fleet = fleet
        self._on_done = on_done
        self._owners = owners
        self.jobs = JobQueue(
            queue_folder(home), fleet, owners, slots, clock=clock,
            begin=lambda number, facts: self._queue.put((number, facts)),
        )  # fmt: skip
        self._queue: _Queue = queue.Queue()
        self._cancels: _Queue = queue.Queue()
        self._plugins: _Queue = queue.Queue()
        self._open: dict[int, Operation] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._closed.set()

    def __enter__(self) -> Operations:
        """Resolve the operations that were open when the service ended, and start threads."""
        self._resume()  # A write that fails ends the start.
        self._closed.clear()
        self.jobs.__enter__()
        for waiting, count in self._queues():
            for number in range(count):
                name = f"operations {number}"
                threading.Thread(target=self._run, args=(waiting,), name=name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.jobs.__exit__()
        for waiting, count in self._queues():
            for _number in range(count):
                waiting.put(None)

    def _queues(self) -> tuple[tuple[_Queue, int], ...]:
        cancels = (self._cancels, _CANCEL_THREAD_COUNT)
        return (self._queue, _THREAD_COUNT), cancels, (self._plugins, 1)

    def _put(self, operation: Operation, settled: Any) -> None:
        if operation.kind in STARTING:
            self.jobs.add(
                operation.id, operation.job, operation.owner, settled, asked_ms=operation.asked_ms
            )
            return
        kind = KINDS[operation.kind]
        is_cancel = kind.shown == State.CANCELING.value
        found = self._cancels if is_cancel else self._queue if kind.path else self._plugins
        found.put((operation.id, settled))

    def ask(
        self, kind: str, job: str | None, facts: Mapping[str, Any], *, identity: Identity,
        key: str | None = None, address: str = "",
    ) -> Operation:  # fmt: skip
        """Start an operation, or return the operation started before with the same key.

        Args:
            kind: A word of ``KINDS``.
            job: The job's id; None for a kind without a job, or that creates one.
            facts: The facts of the kind, as plain data.
            identity: The caller, whose role and access ``Scope`` has checked.
            key: Idempotency key of the caller: a repeated request returns the first operation.
            address: Address of the caller, for the audit log.

        Raises:
            JOB_NOT_FOUND: there is no such job.
            JOB_NAME_TAKEN: a job of this name belongs to another owner.
            JOB_ENDED: it has ended, and the kind requires a running job.
            OPERATION_FACTS_INVALID: the facts do not match the kind.
            OPERATION_KEY_REUSED: the key was used for another request.
            SERVICE_BUSY: a thousand operations wait.
            BicycleError: an option among the facts is refused.
        """
        if key is not None and not 1 <= len(key) <= _KEY_LENGTH_MAX:
            raise OPERATION_FACTS_INVALID(
                kind=kind,
                problem=f"the idempotency key must have 1 to {_KEY_LENGTH_MAX} characters",
                hint=f"give 1 to {_KEY_LENGTH_MAX}",
            )  # fmt: skip
        digest = _digest(kind, job, facts)
        known = key and self._control.read(lambda each: row_of_key(each, identity.name, key))
        if known:
            return _same(known, digest, identity)
        now_ms = self._clock.now_ms()
        try:
            settled = self._settle(kind, job, facts, now_ms)
        except JobRunningError as error:  # Its message has facts that callers may not see.
            taken = str(error.facts["job"])
            self._control.read(lambda each: self._owners.require_free(each, taken, identity))
            raise
        if len(self._open) >= _WAITING_MAX:
            raise SERVICE_BUSY(waiting=len(self._open))
        target = job if job is not None else str(getattr(settled, "name", ""))
        owner = identity.owner if job is None else self._owners.of(job)

        def require(connection: Connection) -> None:
            if kind in STARTING:
                self._require_quota(connection, owner)
            if KINDS[kind].makes_job:
                self._owners.require_free(connection, target, identity)

        self._control.read(require)
        if (verify := KINDS[kind].verify) is not None:
            verify(self._call(target, now_ms), settled)
        who = {"actor": identity.name, "address": address, "owner": owner}
        row, is_new = self._control.write(
            self._inserting(
                kind, target, settled, who=who, key=key, digest=digest, require=require,
                now_ms=now_ms,
            )
        ).result()  # fmt: skip
        if not is_new:
            return _same(row, digest, identity)
        operation = operation_of(row)
        with self._lock:
            self._open[operation.id] = operation
        self._put(operation, settled)
        self._fleet.tell_operation(operation.id)
        return operation

    def _require_quota(self, connection: Connection, owner: str) -> None:
        limit = self._owners.quota(owner).jobs
        if limit is None:
            return
        running = [claim.job for claim in self.jobs.claims() if claim.owner == owner]
        found = select_operations(connection, f"WHERE {OPEN} AND owner = ?", (owner,))
        accepted = [each.job for each in found if each.kind in STARTING]
        if (used := len({*accepted, *running})) >= limit:
            raise QUOTA_EXCEEDED(
                owner=owner, what="jobs", limit=limit, used=used, hint="end one of them"
            )

    def withdraw(self, number: int, *, identity: Identity, address: str = "") -> Operation:
        """Take the start of a job out of the queue.

        Raises:
            OPERATION_UNKNOWN: no operation has this number.
            OPERATION_BEGUN: it is not in the queue.
        """
        operation = self.get(number)
        if operation.kind not in STARTING or not self.jobs.remove(number):
            raise OPERATION_BEGUN(operation=number, state=operation.state)
        entry = {"actor": identity.name, "address": address, "action": "withdraw",
                 "target": operation.job, "outcome": "accepted",
                 "owner": operation.owner}  # fmt: skip
        now_ms = self._clock.now_ms()
        self._store(
            lambda connection: note_audit(connection, entry, {"operation": number}, at_ms=now_ms)
        )
        withdrawn = START_WITHDRAWN(job=operation.job, actor=identity.name)
        self._end(operation, "canceled", result=None, error=withdrawn.to_json())
        return self.get(number)

    def get(self, number: int) -> Operation:
        """Return an operation.

        Raises:
            OPERATION_UNKNOWN: no operation has this number.
        """
        found = self._select("WHERE id = ?", (number,)) if abs(number) <= _NUMBER_MAX else []
        if not found:
            raise OPERATION_UNKNOWN(operation=number)
        return found[0]

    def recent(
        self, *, limit: int = 20, owners: Sequence[str] | None = None, **wanted: str | None
    ) -> list[Operation]:
        """Return operations of some owners, the newest first, by job, kind and state."""
        where, values = one_of("owner", owners)
        for column, word in wanted.items():
            if word is not None:
                where, values = f"{where} AND {column} = ?", (*values, word)
        return self._select(f"WHERE 1 = 1 {where} ORDER BY id DESC LIMIT ?", (*values, limit))

    def queued(self) -> list[Operation]:
        """Return the starts of jobs that wait in the queue, longest wait first."""
        with self._lock:
            found = [self._open.get(job.number) for job in self.jobs.waiting()]
        return [
            msgspec.structs.replace(each, reason=self.jobs.reason(each.id))
            for each in found
            if each is not None
        ]

    def open(self, kind: str) -> list[Operation]:
        """Return the waiting and running operations of a kind."""
        with self._lock:
            return [each for each in self._open.values() if each.kind == kind]

    def open_count(self) -> int:
        """Return how many are waiting or running."""
        return len(self._open)

    def intent(self, job: str) -> tuple[Intent, str] | None:
        """Return the running operation that ends a job, with its requester, or None."""
        with self._lock:
            asked = [each for each in self._open.values() if each.job == job]
        found = [(each, KINDS[each.kind]) for each in asked if each.state == "running"]
        # A cancel is the last word, whatever else is still waited for.
        found.sort(key=lambda pair: (pair[1].shown == State.CANCELING.value, pair[0].id))
        for each, kind in reversed(found):
            if kind.shown:
                return Intent(kind.name, kind.shown, kind.needs_running), each.actor
        return None

    async def wait(self, number: int, timeout_s: float) -> Operation:
        """Wait until an operation is over, or so long; return it as it is then.

        Raises:
            OPERATION_UNKNOWN: no operation has this number.
        """
        operation = await asyncio.to_thread(self.get, number)
        if operation.is_over or timeout_s <= 0:
            return operation
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._fleet.changes() as changes:
                async for change in changes:
                    if not change.operations or number in change.operations:
                        operation = await asyncio.to_thread(self.get, number)
                    if operation.is_over:
                        break
        return operation

    def _call(self, job: str, asked_ms: int) -> OperationCall:
        return OperationCall(
            home=self._home, clock=self._clock, job=job, token=f"service-{asked_ms}",
            asked_ms=asked_ms,
            open_tokens=lambda kind: {f"service-{each.asked_ms}" for each in self.open(kind)},
        )  # fmt: skip

    def _settle(self, kind: str, job: str | None, facts: Mapping[str, Any], now_ms: int) -> Any:
        """Return the checked options of an operation; its job must exist."""
        if kind not in KINDS:
            raise OPERATION_FACTS_INVALID(
                kind=kind, problem="unknown operation", hint=f"use one of {list(KINDS)}"
            )
        rules = KINDS[kind]
        if (job is not None) != rules.has_job:  # The checks of the caller would be of another job.
            problem = "no job is named" if job is None else f"unexpected job {job!r}"
            hint = f"{'name' if rules.has_job else 'omit'} the job"
            raise OPERATION_FACTS_INVALID(kind=kind, problem=problem, hint=hint)
        known = None
        if job is not None:
            known = self._fleet.view.get(job)
            if known is None:
                self._home.find(job)  # Started since the last look, or not there.
        if known is not None and rules.needs_running and known.summary.end_time is not None:
            raise JOB_ENDED(kind=kind, job=job, state=known.summary.state)
        try:
            given = rules.parse(facts)
        except msgspec.ValidationError as error:
            hint = f"its fields are {', '.join(rules.options.__struct_fields__) or 'nothing'}"
            raise OPERATION_FACTS_INVALID(kind=kind, problem=str(error), hint=hint) from None
        return rules.settle(self._call(job or "", now_ms), given)

    def _inserting(
        self, kind: str, job: str, settled: Any, *, who: Mapping[str, str], key: str | None,
        digest: str, require: Callable[[Connection], None], now_ms: int,
    ) -> Callable[[Connection], tuple[Any, bool]]:  # fmt: skip
        shown = redacted(msgspec.to_builtins(settled))

        def work(connection: Connection) -> tuple[Any, bool]:
            if key is not None:  # Two requests with one key at the same time.
                known = row_of_key(connection, who["actor"], key)
                if known is not None:
                    return known, False
            require(connection)  # Others were accepted since the first check.
            row = insert_operation(
                connection, actor=who["actor"], idempotency_key=key, body_digest=digest, job=job,
                kind=kind, facts=json.dumps(shown), asked_ms=now_ms, owner=who["owner"],
            )  # fmt: skip
            if kind in STARTING:
                self.jobs.keep(row["id"], settled)  # If it fails, nothing is accepted.
            entry = {**who, "action": kind, "target": job, "outcome": "accepted"}
            note_audit(connection, entry, {"operation": row["id"], **shown}, at_ms=now_ms)
            if kind == "submit":
                self._owners.note(connection, job, who["owner"])
            return row, True

        return work

    def _run(self, waiting: _Queue) -> None:
        stand_back()  # Jobs that saturate this machine leave time to the service.
        while (entry := waiting.get()) is not None and not self._closed.is_set():
            number, settled = entry
            try:
                self._meet(self._open[number], settled)
            except Exception as error:  # noqa: BLE001 - Else the thread ends; the next start continues it.
                log_event(_LOG, "operation_broke", level=logging.ERROR, error=error)

    def _meet(self, operation: Operation, settled: Any) -> None:
        self._step(msgspec.structs.replace(operation, state="running"))
        result, failure = None, None
        try:
            call = self._call(operation.job, operation.asked_ms)
            result = KINDS[operation.kind].perform(call, settled)
        except BicycleError as error:
            failure = failure_of(error)
        except Exception as error:  # noqa: BLE001 - A thread that dies would leave it open forever.
            log_event(_LOG, "operation_broke", level=logging.ERROR, error=error, job=operation.job)
            text = f"{type(error).__name__}: {error}"
            failure = {"code": BicycleError.code, "message": text, "fix": BicycleError.fix}
        if not self._closed.is_set():
            if operation.kind in STARTING:  # First: its slots are free when its end is visible.
                self.jobs.ended(operation.id, is_good=failure is None)
            self._end(operation, "failed" if failure else "done", result=result, error=failure)

    def _end(
        self, operation: Operation, state: str, *, result: dict[str, Any] | None,
        error: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        plain = json.loads(json.dumps({"result": result, "error": error}, default=str))
        plain = self._secrets.hide(operation.job, redacted(plain))
        now_ms = self._clock.now_ms()
        over = msgspec.structs.replace(operation, state=state, ended_ms=now_ms, **plain)
        self._on_done(over)
        with self._lock:
            self._open.pop(operation.id, None)
        self._step(over)
        log_event(_LOG, "operation_over", job=over.job, kind=over.kind, state=over.state)

    def _step(self, changed: Operation) -> None:
        """Store the progress of an operation, and publish it."""
        now_ms = self._clock.now_ms()
        self._store(lambda connection: update_operation(connection, changed, at_ms=now_ms))
        with self._lock:
            if changed.id in self._open:
                self._open[changed.id] = changed
        self._fleet.tell_operation(changed.id)

    def _store(self, work: Work) -> None:
        """Write, and repeat a write that fails until the service closes.

        Else an operation would stay open until the next start.
        """
        pause_s = _PAUSE_S
        while True:
            try:
                self._control.write(work).result()
                return
            except (self._control.errors, BicycleError) as error:
                if self._closed.wait(pause_s):
                    raise
                log_event(_LOG, "operation_not_stored", level=logging.WARNING, error=error)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _resume(self) -> None:
        """Decide about each operation that was open when the service ended."""
        for operation in self._select(f"WHERE {OPEN} ORDER BY id", ()):
            rules = KINDS[operation.kind]
            self._open[operation.id] = operation
            if operation.kind in STARTING and operation.state == "waiting":
                kept = self.jobs.kept(operation.id, rules.stored or rules.options)
                if kept is not None:  # None: its file is lost or damaged.
                    self._put(operation, kept)
                    continue
            try:
                kind = rules.stored or rules.options
                settled = msgspec.convert(operation.facts, prepare_type(kind))
            except msgspec.ValidationError:  # Of another version, with an unknown meaning.
                self._interrupt(operation)
                continue
            job = self._fleet.view.get(operation.job)
            # Nothing ends a run that was started later: a restart by the supervisor keeps the start
            # of its run. An upgrade starts a run itself.
            is_new_run = job is not None and job.status.started_ms > operation.asked_ms
            if rules.is_repeatable and (rules.wheel or not is_new_run):
                self._put(operation, settled)
                continue
            result = None
            if rules.find is not None:
                with contextlib.suppress(BicycleError):  # Then it is not known to be done.
                    result = rules.find(self._call(operation.job, operation.asked_ms), settled)
            if result is not None:
                self._end(operation, "done", result=result, error=None)
                continue
            self._interrupt(operation)

    def _interrupt(self, operation: Operation) -> None:
        lost = OPERATION_INTERRUPTED(kind=operation.kind, job=operation.job)
        self._end(operation, "interrupted", result=None, error=lost.to_json())

    def _select(self, rest: str, values: tuple[Any, ...]) -> list[Operation]:
        found = self._control.read(lambda each: select_operations(each, rest, values))
        return [
            msgspec.structs.replace(each, reason=self.jobs.reason(each.id))
            if each.state == "waiting"
            else each
            for each in found
        ]


def _digest(kind: str, job: str | None, facts: Mapping[str, Any]) -> str:
    text = json.dumps([kind, job, dict(facts)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _same(row: Any, digest: str, identity: Identity) -> Operation:
    """Return the operation that a key has begun, for the same request."""
    if row["body_digest"] != digest or not identity.sees(row["owner"]):
        raise OPERATION_KEY_REUSED(key=row["idempotency_key"], operation=row["id"])
    return operation_of(row)
