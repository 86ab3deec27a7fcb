"""Readings about one job on demand: its folder, and its checkpoint storage.

These calls may take as long as a storage takes to answer. They run in threads (``Service.slow``),
and the list of jobs never needs one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, BinaryIO

import msgspec

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.checkpoints.epoch_reports import report_checkpoints
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.topology import JobNode, JobTopology, job_node, topology_of
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.journal import EpochLine, recent_lines
from bicycle_runtime.jobs.plugins.graph_view import GraphView, graph_view
from bicycle_runtime.jobs.savepoints.commands import SavepointEntry, list_savepoints
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.jobs.supervision.restarts import position_of
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING
from bicycle_runtime.recovery.savepoints import job_facts
from bicycle_runtime.service.errors import GRAPH_UNKNOWN
from bicycle_runtime.service.store.history import History
from bicycle_runtime.service.users.redaction import JobSecrets, redacted
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.summaries import KnownJob
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import JobGraph

LOG_CHUNK_BYTES_MAX = 1 << 20
_STORAGE_PATIENCE_S = 8.0
_JOURNAL_LINES = 60
_NAMES_MAX = 64


class Readings:
    """Reads about one job at a time.

    Args:
        home: The home with the jobs.
        fleet: The snapshot with the status of each job.
        history: The history with earlier failures.
        secrets: The values of jobs that are never shown.
        clock: The clock for ages.
    """

    def __init__(
        self, home: Home, fleet: Fleet, history: History, *, secrets: JobSecrets, clock: Clock,
        exceptions: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._exceptions = exceptions
        self._secrets = secrets
        self._home = home
        self._fleet = fleet
        self._history = history
        self._clock = clock
        self._names: dict[str, tuple[str, dict[str, str]]] = {}
        self._nodes: dict[str, tuple[str, JobNode]] = {}

    def status(self, job: str) -> JobStatus:
        """Return the status of a job, of the snapshot when it is there.

        Raises:
            JOB_NOT_FOUND: there is no such job.
        """
        known = self._fleet.view.get(job)
        if known is not None:
            return known.status
        return self._secrets.hide_in_status(job_status(self._home, job))

    def tasks(self, job: str) -> list[dict[str, Any]]:
        """Return a row for each operator of a job, with the counts of this run."""
        status = self.status(job)
        known = self._fleet.view.get(job)
        state = status.state.value if known is None else known.summary.state
        return [
            {
                "task_id": _task_id(job, uid),
                "operator_name": uid,
                "state": state,
                "parallelism": operator.parallelism or 1,
                "records_processed": operator.records_in or operator.records_out,
                "bytes_processed": operator.bytes_out,
                "records_in": operator.records_in,
                "records_out": operator.records_out,
                "failed": operator.failed,
                "retried": operator.retried,
                "late": operator.late,
                "watermark_ms": operator.watermark_ms,
                "slowest_input": operator.slowest_input,
                "skew": operator.skew,
                "hot_keys": msgspec.to_builtins(operator.hot_keys),
            }
            for uid, operator in status.operators.items()
        ]

    def recent_epochs(self, job: str) -> list[EpochLine]:
        """Return the journal's lines about a job's last epochs, newest first."""
        return recent_lines(self._home.find(job).journal_path)[::-1][:_JOURNAL_LINES]

    def operator_names(self, job: str) -> dict[str, str]:
        """Return the names of operators by their ids in a status, empty if unknown."""
        status = self.status(job)
        known = self._names.get(job)
        if known is None or known[0] != status.bundle_digest:
            try:
                vertices = self.graph(job)["vertices"]
            except BicycleError:
                return {}
            names = {each["uid"] or each["id"]: each["name"] for each in vertices}
            known = self._names[job] = (status.bundle_digest, names)
            while len(self._names) > _NAMES_MAX:
                self._names.pop(next(iter(self._names)))
        return known[1]

    def graph(self, job: str) -> dict[str, Any]:
        """Return the graph of a job as it runs, with the counts of its operators.

        Raises:
            JOB_NOT_FOUND: there is no such job.
            GRAPH_UNKNOWN: it has not begun to run.
            BicycleError: its storage cannot be read.
        """
        status = self.status(job)
        facts = job_facts(self._storage(status)) if status.checkpoint else {}
        if "graph" not in facts:
            raise GRAPH_UNKNOWN(job=job)
        text = msgspec.json.encode(facts["graph"])
        view = graph_view(JobGraph.from_json(text))
        return {
            "job": job,
            "digest": hashlib.sha256(text).hexdigest()[:16],
            **_plain_graph(view, status),
        }

    def topology(self, jobs: Iterable[KnownJob]) -> JobTopology:
        """Return the topology of some jobs and the streams that they read and write."""
        nodes = {known.status.id: self._node(known.status) for known in jobs}
        there = self._fleet.view.by_id
        kept = {name: node for name, node in self._nodes.items() if name in there}
        self._nodes = kept | {name: each for name, each in nodes.items() if not each[1].problem}
        return topology_of([node for _, node in nodes.values()])

    def _node(self, status: JobStatus) -> tuple[str, JobNode]:
        """Return the streams of a job; its storage is asked once for each version of it."""
        digest, node = self._nodes.get(status.id, ("", None))
        if node is not None and digest == status.bundle_digest:
            return digest, replace(node, state=status.state.value)
        return status.bundle_digest, job_node(status, self._secrets.hide)

    def epochs(self, job: str, *, limit: int = 50, after: int | None = None) -> dict[str, Any]:
        """Return the epochs that the storage of a job retains, the newest first.

        Args:
            job: The job's id.
            limit: How many at most.
            after: Only epochs older than this one.
        """
        status = self.status(job)
        if not status.checkpoint:
            return {"items": [], "next": None}
        try:
            found = report_checkpoints(self._storage(status), now_ms=self._clock.now_ms())
        except BicycleError as error:
            if error.code != CHECKPOINT_MISSING.code:
                raise
            return {"items": [], "next": None}
        older = [each for each in found if after is None or each.epoch < after]
        page = older[:limit]
        following = str(page[-1].epoch) if len(older) > len(page) else None
        return {"items": [asdict(each) for each in page], "next": following}

    def savepoints(self, job: str) -> list[SavepointEntry]:
        """Return the savepoints beside the checkpoints of a job, the newest first."""
        status = self.status(job)
        if not status.checkpoint:
            return []
        return list_savepoints(self._storage(status), is_job=True)

    def exceptions(self, job: str) -> list[dict[str, Any]]:
        """Return the failures of a job, newest first, each kind once with its count.

        They include failures of records after which the job continued, with ``is_record`` true and
        the times at which their epochs were sealed.
        """
        status = self.status(job)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for event in reversed(self._history.latest_events(job, limit=500)):
            is_failed = "code" in event.facts and event.facts.get("kind") in self._exceptions
            if event.kind == "failure" or (event.kind == "operation" and is_failed):
                entry = _exception(status, event.facts, at_ms=event.at_ms)
                _add(found, entry)
        for uid, operator in status.operators.items():
            for kind, failure in operator.failures.items():
                facts = {"message": failure.example, "operator": uid}
                entry = _exception(status, facts, at_ms=failure.last_ms, is_record=True)
                # A kind is a word for the error and the user's line.
                location = kind.partition(" at ")[2] or None
                more = {"location": location, "count": failure.count, "first_ms": failure.first_ms}
                found[uid, kind] = {**entry, **more}
        rows = sorted(found.values(), key=lambda row: -(row["last_ms"] or 0))
        if status.error is not None:
            _detail(rows, status.error)
        return rows

    def config(self, job: str) -> dict[str, Any]:
        """Return the configuration of a job's start, without secrets."""
        folder = self._home.find(job)
        try:
            request = folder.read_request()
        except FileNotFoundError:
            raise JOB_NOT_FOUND(
                job=job, known=[], known_text="none", suggestion="", home=str(self._home.path)
            ) from None
        plain = redacted(request.to_json())
        shown = type(request).from_json(plain)
        words = self._secrets.hide(job, shown.command_words("submit"))
        return {**self._secrets.hide(job, plain), "command": words}

    def logs(self, job: str, *, after: int | None = None, limit: int = 500) -> dict[str, Any]:
        """Return lines of the log of a job.

        Args:
            job: The job's id.
            after: Byte at which to begin, as ``next`` of a former answer; None for the last lines.
            limit: How many lines at most.

        Returns:
            ``lines``, the positions ``start`` and ``next`` of their bytes, and the ``size``. An
            incomplete line is omitted until it is complete or the job has ended.
        """
        folder = self._home.find(job)
        is_over = self.status(job).state.is_final
        try:
            stream = folder.log_path.open("rb")
        except FileNotFoundError:
            return {"lines": [], "start": 0, "next": 0, "size": 0}
        with stream:
            size = os.fstat(stream.fileno()).st_size
            is_tail = after is None
            start = max(0, size - LOG_CHUNK_BYTES_MAX) if after is None else min(after, size)
            page = _lines(stream, start, limit, size, is_tail=is_tail, is_over=is_over)
        return {**page, "lines": self._secrets.hide(job, page["lines"])}

    def _storage(self, status: JobStatus) -> Any:
        return open_storage(status.checkpoint, patience_s=_STORAGE_PATIENCE_S)


def _lines(
    stream: BinaryIO, start: int, limit: int, size: int, *, is_tail: bool, is_over: bool
) -> dict[str, Any]:
    """Return whole lines from a place on, or the last ones."""
    stream.seek(start)
    data = stream.read(LOG_CHUNK_BYTES_MAX)
    is_end = is_over and start + len(data) >= size
    end = len(data) if is_end else data.rfind(b"\n") + 1
    if not end and len(data) == LOG_CHUNK_BYTES_MAX:  # One line of more than a MiB.
        end = len(data)
    pieces = data[:end].splitlines(keepends=True)
    if is_tail:
        if start and pieces:
            start += len(pieces[0])
            pieces = pieces[1:]  # It began before.
        left = pieces[:-limit] if limit else pieces
        start += sum(map(len, left))
        pieces = pieces[len(left) :]
    else:
        pieces = pieces[:limit]
    following = start + sum(map(len, pieces))
    lines = [piece.decode(errors="replace").rstrip("\r\n") for piece in pieces]
    return {"lines": lines, "start": start, "next": following, "size": size}


def _task_id(job: str, operator: str) -> str:
    return f"{job}-{operator}"


def _plain_graph(view: GraphView, status: JobStatus) -> dict[str, Any]:
    vertices = []
    for chain in view.chains:
        for each in chain.operators:
            counts = status.operators.get(each.uid or each.id, OperatorStatus())
            vertices.append(
                {
                    "id": each.id,
                    "uid": each.uid,
                    "name": each.name,
                    "operator_type": each.kind,
                    "description": each.description,
                    "parallelism": counts.parallelism or each.parallelism,
                    "slot_sharing_group": chain.slot_sharing_group,
                    "chain": chain.index,
                    "is_source": chain.is_source and each is chain.operators[0],
                    "is_sink": chain.is_sink and each is chain.operators[-1],
                    "records_in": counts.records_in,
                    "records_out": counts.records_out,
                    "failed": counts.failed,
                    "late": counts.late,
                    "watermark_ms": counts.watermark_ms,
                    "busy_share": counts.busy_share,
                    "backpressure": counts.backpressure,
                    "slowest_input": counts.slowest_input,
                    "skew": counts.skew,
                }
            )
    inner = [
        {"source": before.id, "target": behind.id, "partitioning": "FORWARD",
         "exchange": "chain", "link": "chain", "tag": None}
        for chain in view.chains
        for before, behind in zip(chain.operators, chain.operators[1:], strict=False)
    ]  # fmt: skip
    outer = [
        {"source": each.source, "target": each.target, "partitioning": each.partitioning,
         "exchange": each.exchange, "link": each.link, "tag": each.tag}
        for each in view.exchanges
    ]  # fmt: skip
    chains = [
        {"index": chain.index, "name": chain.name, "stage": chain.stage,
         "parallelism": chain.parallelism, "operators": [each.id for each in chain.operators]}
        for chain in view.chains
    ]  # fmt: skip
    return {"vertices": vertices, "edges": [*inner, *outer], "chains": chains}


def _exception(
    status: JobStatus, facts: Mapping[str, Any], *, at_ms: int | None, is_record: bool = False
) -> dict[str, Any]:
    operator = str(facts["operator"]) if facts.get("operator") else None
    is_known = operator in status.operators
    return {
        "timestamp": at_ms,
        "code": facts.get("code", ""),
        "message": facts.get("message", ""),
        "fix": facts.get("fix", ""),
        "position": facts.get("position"),
        "task_id": _task_id(status.id, operator) if operator and is_known else None,
        "task_index": facts.get("subtask") if is_known else None,
        "operator_name": operator,
        "epoch": facts.get("epoch"),
        "is_record": is_record,
        "stack_trace": None,
        "whole_trace": None,
        "root_cause": None,
        "location": None,
        "count": 1,
        "first_ms": at_ms,
        "last_ms": at_ms,
    }


def _add(found: dict[tuple[str, str], dict[str, Any]], entry: dict[str, Any]) -> None:
    """Add a failure to the entry of its kind, which shows the newest one."""
    # A restart records the first line of an error that the last failure has completely.
    key = (entry["code"], entry["message"].split("\n", 1)[0])
    former = found.get(key)
    if former is not None:
        first_ms = former["first_ms"]
        entry = {**entry, "count": former["count"] + entry["count"], "first_ms": first_ms}
        for name in ("fix", "position", "operator_name", "task_id"):
            entry[name] = entry[name] or former[name]
    found[key] = entry


def _detail(rows: list[dict[str, Any]], error: dict[str, Any]) -> None:
    """Add the facts of a job's last error to its entry."""
    facts = error.get("facts", {})
    for row in rows:
        if row["code"] == error["code"] and row["message"] == error["message"]:
            trace = facts.get("traceback") or facts.get("user_traceback")
            row["stack_trace"] = "\n".join(trace) if isinstance(trace, list) else trace
            row["whole_trace"] = facts.get("whole_traceback") or None
            row["location"] = facts.get("location") or facts.get("made")
            row["root_cause"] = facts.get("exception_message") or facts.get("reason")
            row["fix"] = error["fix"]
            row["position"] = (
                row["position"] or position_of(error_from_json(error)) or facts.get("position")
            )
