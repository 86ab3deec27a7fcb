"""Access of commands to jobs: through a service if there is one, else by files.

``reached_jobs`` decides for all commands: ``--service`` has precedence over ``BICYCLE_SERVICE``,
which has precedence over the service of this home. A command uses the service of this home only if
that service accepts it; otherwise it reads the files of the home. Both return the same objects.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

import bicycle_runtime
from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.cli.errors import TOKEN_UNREADABLE
from bicycle_runtime.cli.log_reading import local_pieces, remote_pieces
from bicycle_runtime.cli.parameters import (
    SERVICE_CA,
    SERVICE_TOKEN_FILE,
    SERVICE_URL,
    chosen_service,
    home,
)
from bicycle_runtime.cli.remote import Remote, job_path
from bicycle_runtime.cli.uploading import job_facts
from bicycle_runtime.jobs.control.dead_letters import DeadLetter, dead_letter, dead_letters
from bicycle_runtime.jobs.control.job_queries import is_supervised, job_status, list_jobs
from bicycle_runtime.jobs.control.topology import JobTopology, job_node, topology_of
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.errors import SERVICE_GONE
from bicycle_runtime.service.metrics.metrics import MetricSample, job_samples
from bicycle_runtime.service.watching.fleet import FleetView, view_of
from bicycle_runtime.service.watching.workers import worker_rows
from bicycle_sdk.clock import SystemClock

_TOKEN = "BICYCLE_TOKEN"
_LETTERS_PAGE = 500


class JobAccess(Protocol):
    """The interface of jobs for commands; each call raises the errors of ``jobs``.

    ``is_remote`` means that reported processes may be on another machine.
    """

    is_remote: bool

    def statuses(self) -> list[JobStatus]:
        """Return the status of every job, the newest first."""

    def status(self, job: str) -> JobStatus:
        """Return the status of a job."""

    def is_supervised(self, status: JobStatus) -> bool | None:
        """Return whether a process restarts the driver when it dies, None if unknown."""

    def perform(self, kind: OperationKind, job: str, options: Any) -> Result:
        """Run an operation, and return its result.

        ``job`` is empty for an operation without a job.
        """

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        """Return the savepoints of a job, or of all."""

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        """Return the report of a job's savepoint; ``is_thorough`` compares checksums, too."""

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        """Return dead letters of a job, and the position after them, or None."""

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        """Return one dead letter."""

    def log(self, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
        """Yield the text of a job's log: the last lines, and with ``follow`` new ones."""

    def workers(self) -> list[dict[str, Any]]:
        """Return the processes of the jobs that have not ended."""

    def figures(self, job: str | None) -> list[MetricSample]:
        """Return the figures of a job, or of all."""

    def totals(self) -> dict[str, Any]:
        """Return the totals over all jobs."""

    def topology(self) -> JobTopology:
        """Return the topology of jobs and the streams that they read and write."""


class LocalJobs:
    """Jobs of this machine, by their files and signals."""

    is_remote = False

    def __init__(self, folder: Home) -> None:
        self._home = folder
        self._clock = SystemClock()

    def statuses(self) -> list[JobStatus]:
        return list_jobs(self._home)

    def status(self, job: str) -> JobStatus:
        return job_status(self._home, job)

    def is_supervised(self, status: JobStatus) -> bool | None:
        return is_supervised(status)

    def perform(self, kind: OperationKind, job: str, options: Any) -> Result:
        call = OperationCall(
            home=self._home, clock=self._clock, job=job, token=secrets.token_hex(8),
            asked_ms=self._clock.now_ms(),
        )  # fmt: skip
        return kind.perform(call, options)

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import known_savepoints

        return [dataclasses.asdict(entry) for entry in known_savepoints(self._home, job)]

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import savepoint_of, savepoint_report

        storage = savepoint_of(self._home, job, name)
        return savepoint_report(storage, is_thorough=is_thorough, now_ms=self._clock.now_ms())

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        return dead_letters(self._home, job, operator=operator, limit=limit, after=after)

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        return dead_letter(self._home, job, letter, is_revealed=is_revealed)

    def log(self, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
        return local_pieces(self._home, job, line_count=line_count, follow=follow)

    def workers(self) -> list[dict[str, Any]]:
        return worker_rows(self._view().jobs)

    def figures(self, job: str | None) -> list[MetricSample]:
        found = list_jobs(self._home) if job is None else [job_status(self._home, job)]
        now_ms = self._clock.now_ms()
        jobs = view_of(found, now_ms=now_ms).jobs
        return [sample for known in jobs for sample in job_samples(known, now_ms=now_ms)]

    def totals(self) -> dict[str, Any]:
        about = {"version": bicycle_runtime.__version__, "home": str(self._home.path)}
        return {**about, "started_ms": None, "uptime_ms": None, **self._view().totals()}

    def topology(self) -> JobTopology:
        return topology_of([job_node(status) for status in list_jobs(self._home)])

    def _view(self) -> FleetView:
        return view_of(list_jobs(self._home), now_ms=self._clock.now_ms())


class RemoteJobs:
    """Jobs of a service, which may be on another machine."""

    is_remote = True

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def statuses(self) -> list[JobStatus]:
        items = self._remote.get("/statuses")["items"]
        return [_status(plain) for plain in items]

    def status(self, job: str) -> JobStatus:
        return _status(self._remote.get(job_path(job, "status"))["status"])

    def is_supervised(self, status: JobStatus) -> bool | None:  # noqa: ARG002 - the contract
        return None

    def perform(self, kind: OperationKind, job: str, options: Any) -> Result:
        facts = dataclasses.asdict(options)
        words = {word: str(facts.pop(word, job)) for word in re.findall(r"\{(\w+)\}", kind.path)}
        path = kind.path.format_map({name: quote(text, safe="") for name, text in words.items()})
        return self._remote.operation(path, facts, method=kind.method)

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        path = "/savepoints" if job is None else job_path(job, "savepoints")
        found: list[dict[str, Any]] = self._remote.get(path)["items"]
        return found

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        path = job_path(job, "savepoints", name)
        found: dict[str, Any] = self._remote.get(path, verify=str(is_thorough).lower())
        return found

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        found: list[DeadLetter] = []
        while True:
            count = min(limit - len(found), _LETTERS_PAGE)
            page = self._remote.get(
                job_path(job, "dead-letters"), operator=operator, after=after, limit=count
            )
            found += msgspec.convert(page["items"], prepare_type(list[DeadLetter]))
            after = page["next"]
            if after is None or len(found) >= limit:
                return found, after

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        query = {"reveal": "true"} if is_revealed else {}
        path = job_path(job, "dead-letters", letter)
        found: dict[str, Any] = self._remote.get(path, **query)
        return found

    def log(self, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
        return remote_pieces(self._remote, job, line_count=line_count, follow=follow)

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._remote.get("/cluster/workers")["items"]
        return found

    def figures(self, job: str | None) -> list[MetricSample]:
        path = "/cluster/metrics" if job is None else job_path(job, "metrics")
        found: list[dict[str, Any]] = self._remote.get(path)["items"]
        return msgspec.convert(found, prepare_type(list[MetricSample]))

    def totals(self) -> dict[str, Any]:
        found: dict[str, Any] = self._remote.get("/cluster")
        return found

    def topology(self) -> JobTopology:
        return JobTopology.from_json(self._remote.get("/topology"))


def reached_jobs() -> JobAccess:
    """Return the jobs of the command: of a service, or of the files of the home.

    Raises:
        SERVICE_URL_UNUSABLE: the address is not a URL.
        TOKEN_EXPOSED: the token would travel without TLS.
        TOKEN_UNREADABLE: the file with the token cannot be read.
    """
    remote = _named_service() or _service_of_home()
    return LocalJobs(home()) if remote is None else RemoteJobs(remote)


def reached_service() -> Remote:
    """Return the service of the command, for operations that need a service.

    Raises:
        SERVICE_GONE: the call names no service, and no service runs for this home.
        BicycleError: see ``reached_jobs``.
    """
    remote = _named_service() or _service_of_home(is_needed=True)
    if remote is None:
        raise SERVICE_GONE(home=str(home().path))
    return remote


def remote_start(request: JobRequest) -> JobStatus | None:
    """Start a job where a service is *named*, and return its status, or None.

    The service of this home is not asked: a job that is started here has the files and variables
    of this place, and the service shows it as well.

    Raises:
        BicycleError: see ``reached_jobs``; or the service refuses, or the job fails at its start.
    """
    remote = _named_service()
    if remote is None:
        return None
    done = remote.operation("/jobs", job_facts(request))
    return RemoteJobs(remote).status(str(done["job_id"]))


def _named_service() -> Remote | None:
    url = chosen_service(SERVICE_URL)
    return None if url is None else _remote(url)


def _service_of_home(*, is_needed: bool = False) -> Remote | None:
    """Return the service of this home if the command may use it, or has to."""
    address = read_address(home())
    if address is None:
        return None
    if not is_needed and not address.get("is_open") and _token() is None:
        return None
    return _remote(str(address["url"]))


def _remote(url: str) -> Remote:
    ca = chosen_service(SERVICE_CA)
    return Remote(url=url, token=_token(), ca=ca)


def _token() -> str | None:
    path = chosen_service(SERVICE_TOKEN_FILE)
    if path is None:
        return chosen_variables([_TOKEN]).get(_TOKEN) or None
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise TOKEN_UNREADABLE(path=path, reason=str(error)) from error
    if not text or not text.isascii() or len(text.split()) > 1:
        raise TOKEN_UNREADABLE(path=path, reason="it must contain exactly one word")
    return text


def _status(plain: Mapping[str, Any]) -> JobStatus:
    return msgspec.convert(plain, prepare_type(JobStatus), str_keys=True)
