"""Access of commands to jobs: through a service if there is one, else by files.

``reached_jobs`` decides, the same for all commands: ``--service`` wins over ``BICYCLE_SERVICE``,
and that over the service of this home. The latter is asked only where it lets the command in:
nobody is locked out of files that are his own. Both ways answer the same objects.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

import bicycle_runtime
from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.cli.errors import TOKEN_UNREADABLE
from bicycle_runtime.cli.log_reading import local_pieces, remote_pieces
from bicycle_runtime.cli.parameters import (
    SERVICE_CA,
    SERVICE_TOKEN_FILE,
    SERVICE_URL,
    chosen_service,
    home,
    service_options,
)
from bicycle_runtime.cli.remote import Remote, job_path
from bicycle_runtime.cli.uploading import job_facts
from bicycle_runtime.engine.loop.rescaling import Rescaled
from bicycle_runtime.jobs.control.dead_letters import DeadLetter, dead_letter, dead_letters
from bicycle_runtime.jobs.control.ending import cancel_job, drain_job, publish_remaining, stop_job
from bicycle_runtime.jobs.control.job_queries import is_supervised, job_status, list_jobs
from bicycle_runtime.jobs.control.letter_replay import (
    LetterReplay,
    LetterReplayOptions,
    ask_for_replay,
    chosen_letters,
)
from bicycle_runtime.jobs.control.rescaling import RescaleOptions, ask_for_rescale
from bicycle_runtime.jobs.control.submitting import resume_job
from bicycle_runtime.jobs.control.topology import Topology, job_node, topology_of
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.errors import SERVICE_GONE
from bicycle_runtime.service.metrics.metrics import MetricSample, job_samples
from bicycle_runtime.service.watching.fleet import FleetView, view_of
from bicycle_runtime.service.watching.workers import worker_rows

__all__ = ["JobAccess", "reached_jobs", "reached_service", "remote_start", "service_options"]

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

    def stop(self, job: str) -> JobStatus:
        """Stop a job after its epoch."""

    def drain(self, job: str) -> JobStatus:
        """End a job as if its input had ended."""

    def cancel(self, job: str) -> JobStatus:
        """End a job at once."""

    def resume(self, job: str) -> JobStatus:
        """Start a job that has ended again, after its last sealed epoch."""

    def save(self, job: str, *, name: str | None, to: str | None, timeout_ms: int) -> Any:
        """Take a savepoint, and return its description."""

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        """Return the savepoints of a job, or of all."""

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        """Return the report of a job's savepoint; ``is_thorough`` compares checksums, too."""

    def delete_savepoint(self, job: str, name: str) -> dict[str, Any]:
        """Remove a savepoint of a job, and return where it was."""

    def restore(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Restore a job from a savepoint; the facts are as in ``RestoreFacts``."""

    def rescale(
        self, job: str, options: RescaleOptions, operators: Mapping[str, int]
    ) -> Rescaled:  # fmt: skip
        """Change the parallelism of a running job."""

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        """Return dead letters of a job, and the position after them, or None."""

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        """Return one dead letter."""

    def replay_letters(
        self, job: str, letters: Sequence[str], options: LetterReplayOptions, *,
        operator: str | None,
    ) -> LetterReplay:  # fmt: skip
        """Replay dead letters: named ones, or all new ones of an operator or of the job."""

    def log(self, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
        """Yield the text of a job's log: the last lines, and with ``follow`` new ones."""

    def workers(self) -> list[dict[str, Any]]:
        """Return the processes of the jobs that have not ended."""

    def figures(self, job: str | None) -> list[MetricSample]:
        """Return the figures of a job, or of all."""

    def totals(self) -> dict[str, Any]:
        """Return the totals over all jobs."""

    def topology(self) -> Topology:
        """Return the topology of jobs and the streams that they read and write."""


class LocalJobs:
    """Jobs of this machine, by their files and signals."""

    is_remote = False

    def __init__(self, place: Home) -> None:
        self._home = place
        self._clock = SystemClock()

    def statuses(self) -> list[JobStatus]:
        return list_jobs(self._home)

    def status(self, job: str) -> JobStatus:
        return job_status(self._home, job)

    def is_supervised(self, status: JobStatus) -> bool | None:
        return is_supervised(status)

    def stop(self, job: str) -> JobStatus:
        return stop_job(self._home, job, clock=self._clock)

    def drain(self, job: str) -> JobStatus:
        return drain_job(self._home, job, clock=self._clock)

    def cancel(self, job: str) -> JobStatus:
        is_over = job_status(self._home, job).state.is_final
        status = cancel_job(self._home, job, clock=self._clock)
        return status if is_over else publish_remaining(self._home, status, clock=self._clock)

    def resume(self, job: str) -> JobStatus:
        return resume_job(self._home, job, python=sys.executable)

    def save(self, job: str, *, name: str | None, to: str | None, timeout_ms: int) -> Any:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import create_savepoint

        clock = self._clock
        return create_savepoint(
            self._home, job, name=name, to=to, clock=clock, timeout_ms=timeout_ms
        )

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import known_savepoints

        return [entry.to_json() for entry in known_savepoints(self._home, job)]

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import savepoint_of, savepoint_report

        storage = savepoint_of(self._home, job, name)
        return savepoint_report(storage, is_thorough=is_thorough, now_ms=self._clock.now_ms())

    def delete_savepoint(self, job: str, name: str) -> dict[str, Any]:
        # Slow to import, and needed for this alone.
        from bicycle_runtime.jobs.savepoints.commands import remove_savepoint

        return remove_savepoint(self._home, job, name)

    def restore(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        # Slow to import, and not needed to show the help.
        from bicycle_runtime.jobs.savepoints.commands import restore_to

        return restore_to(
            self._home, facts["url"], checkpoint_dir=facts["checkpoint_dir"], job=facts["name"],
            trusts=facts["trust"], key_file=facts["savepoint_key"], clock=self._clock,
        )  # fmt: skip

    def rescale(
        self, job: str, options: RescaleOptions, operators: Mapping[str, int]
    ) -> Rescaled:  # fmt: skip
        return ask_for_rescale(self._home, job, options, operators, clock=self._clock)

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        return dead_letters(self._home, job, operator=operator, limit=limit, after=after)

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        return dead_letter(self._home, job, letter, is_revealed=is_revealed)

    def replay_letters(
        self, job: str, letters: Sequence[str], options: LetterReplayOptions, *,
        operator: str | None,
    ) -> LetterReplay:  # fmt: skip
        chosen = chosen_letters(self._home, job, letters, operator=operator)
        return ask_for_replay(self._home, job, chosen, options, clock=self._clock)

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

    def topology(self) -> Topology:
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

    def stop(self, job: str) -> JobStatus:
        return self._end(job, "stop")

    def drain(self, job: str) -> JobStatus:
        return self._end(job, "drain")

    def cancel(self, job: str) -> JobStatus:
        return self._end(job, "cancel")

    def resume(self, job: str) -> JobStatus:
        return self._end(job, "resume")

    def save(self, job: str, *, name: str | None, to: str | None, timeout_ms: int) -> Any:
        facts = {"name": name, "to": to, "timeout_ms": timeout_ms}
        return self._remote.operation(job_path(job, "savepoints"), facts)

    def savepoints(self, job: str | None) -> list[dict[str, Any]]:
        path = "/savepoints" if job is None else job_path(job, "savepoints")
        found: list[dict[str, Any]] = self._remote.get(path)["items"]
        return found

    def savepoint(self, job: str, name: str, *, is_thorough: bool) -> dict[str, Any]:
        path = job_path(job, "savepoints", name)
        found: dict[str, Any] = self._remote.get(path, verify=str(is_thorough).lower())
        return found

    def delete_savepoint(self, job: str, name: str) -> dict[str, Any]:
        return self._remote.removal(job_path(job, "savepoints", name))

    def restore(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: _absolute(facts[name]) for name in ("url", "checkpoint_dir", "savepoint_key")}
        return self._remote.operation("/savepoints/restore", {**facts, **own})

    def rescale(
        self, job: str, options: RescaleOptions, operators: Mapping[str, int]
    ) -> Rescaled:  # fmt: skip
        facts = {**dataclasses.asdict(options), "operators": dict(operators)}
        path = job_path(job, "rescale")
        return msgspec.convert(self._remote.operation(path, facts), Rescaled)

    def letters(
        self, job: str, *, operator: str | None, after: str | None, limit: int
    ) -> tuple[list[DeadLetter], str | None]:
        found: list[DeadLetter] = []
        while True:
            count = min(limit - len(found), _LETTERS_PAGE)
            page = self._remote.get(
                job_path(job, "dead-letters"), operator=operator, after=after, limit=count
            )
            found += [msgspec.convert(plain, DeadLetter) for plain in page["items"]]
            after = page["next"]
            if after is None or len(found) >= limit:
                return found, after

    def letter(self, job: str, letter: str, *, is_revealed: bool) -> dict[str, Any]:
        query = {"reveal": "true"} if is_revealed else {}
        path = job_path(job, "dead-letters", letter)
        found: dict[str, Any] = self._remote.get(path, **query)
        return found

    def replay_letters(
        self, job: str, letters: Sequence[str], options: LetterReplayOptions, *,
        operator: str | None,
    ) -> LetterReplay:  # fmt: skip
        facts = {**dataclasses.asdict(options), "letters": [*letters], "operator": operator}
        path = job_path(job, "dead-letters", "replay")
        return msgspec.convert(self._remote.operation(path, facts), LetterReplay)

    def log(self, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
        return remote_pieces(self._remote, job, line_count=line_count, follow=follow)

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._remote.get("/cluster/workers")["items"]
        return found

    def figures(self, job: str | None) -> list[MetricSample]:
        path = "/cluster/metrics" if job is None else job_path(job, "metrics")
        return [msgspec.convert(each, MetricSample) for each in self._remote.get(path)["items"]]

    def totals(self) -> dict[str, Any]:
        found: dict[str, Any] = self._remote.get("/cluster")
        return found

    def topology(self) -> Topology:
        return Topology.from_json(self._remote.get("/topology"))

    def _end(self, job: str, how: str) -> JobStatus:
        self._remote.operation(job_path(job, how))
        return self.status(job)


def reached_jobs() -> JobAccess:
    """Return the jobs of the command: of a service, or of the files of the home.

    Raises:
        SERVICE_URL_UNUSABLE: what is named is no URL.
        TOKEN_EXPOSED: the token would travel without TLS.
        TOKEN_UNREADABLE: the file with the token cannot be read.
    """
    remote = _named_service() or _service_of_home()
    return LocalJobs(home()) if remote is None else RemoteJobs(remote)


def reached_service() -> Remote:
    """Return the service of the command, for operations that need a service.

    Raises:
        SERVICE_GONE: none is named, and none runs for this home.
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


def _absolute(place: str | None) -> str | None:
    """Return an absolute path for a service in another folder; URLs are unchanged."""
    if place is None or "://" in place:
        return place
    return str(Path(place).expanduser().absolute())


def _status(plain: Mapping[str, Any]) -> JobStatus:
    return msgspec.convert(plain, JobStatus, str_keys=True)
