"""The service of one home: all resources of the doors, opened and closed together.

One process serves a home. Its files are in ``<home>/service``: ``lock``, ``control.db`` and
``history.db`` unless a database server is used, and, while it runs, ``address.json``, in which
commands find its address.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import msgspec

import bicycle_runtime
from bicycle_runtime.base.files import own_folder
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING
from bicycle_runtime.service.address import read_address, service_folder
from bicycle_runtime.service.errors import READING_TIMED_OUT, SERVICE_RUNNING
from bicycle_runtime.service.metrics.figures import ServiceFigures
from bicycle_runtime.service.metrics.metrics import MetricsText
from bicycle_runtime.service.operations.admission import Slots
from bicycle_runtime.service.operations.kinds import EXCEPTIONS
from bicycle_runtime.service.operations.operations import Operations
from bicycle_runtime.service.operations.pipeline_files import clear_pipelines
from bicycle_runtime.service.plugins.uploaded_plugins import Plugins, clear_leftovers, clear_uploads
from bicycle_runtime.service.readings import Readings
from bicycle_runtime.service.state_lookups import StateLookups
from bicycle_runtime.service.store.history import HISTORY, History, Operation
from bicycle_runtime.service.threads import Threads
from bicycle_runtime.service.tracing.receiver import is_receiver_configured
from bicycle_runtime.service.users.owners import Owners, Quota
from bicycle_runtime.service.users.redaction import JobSecrets, redacted
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.summaries import KnownJob
from bicycle_runtime.service.watching.watcher import Watcher
from bicycle_sdk.clock import Clock
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import DatabaseServer
from bicycle_streams.access.logins import Sessions
from bicycle_streams.access.opening import database_of
from bicycle_streams.access.roles import LOCAL, Identity
from bicycle_streams.access.tokens import Tokens

P = ParamSpec("P")
T = TypeVar("T")
_READ_THREAD_COUNT = 8
_READ_TIMEOUT_MS = 10_000
_CHECK_THREAD_COUNT = 2
_CHECKS_WAITING_MAX = 20
_CHECK_TIMEOUT_MS = 120_000


class Service:
    """A context manager: from entering to leaving this process serves the home.

    Entering finds all jobs; running jobs are found by process id and start time. Leaving stops no
    job.

    Args:
        home: The home.
        clock: The time of day.
        slots: Slots of masters, by URL: see ``Slots``.
        database: The server of its databases. Default: files in the home.

    Attributes:
        owners: The owners of jobs and their quotas.
        tokens: The access tokens.
        sessions: The logins to the pages.
        fleet: The snapshot of all jobs.
        history: The history of states, failures and samples.
        operations: The requested operations.
        readings: Data of one job that is read on request, through ``slow``.
        secrets: The values of jobs that are never shown.
        plugins: The uploaded wheels.
        lookups: Look-ups in the state of jobs.
        watcher: The thread that checks the jobs.
        metrics: The metrics of all jobs as text.
        figures: The metrics of the service itself.
        closing: Set when the service ends; streams then end.
    """

    def __init__(
        self, home: Home, *, clock: Clock, slots: Mapping[str, int | str] | None = None,
        database: DatabaseServer | None = None,
    ) -> None:  # fmt: skip
        self.home = home
        self.clock = clock
        self.started_ms = clock.now_ms()
        self.closing = asyncio.Event()
        folder = service_folder(home)
        self._control = database_of(
            folder, "control", CONTROL, server=database, synchronous="FULL", is_owned=True
        )
        self._samples = database_of(
            folder, "history", HISTORY, server=database, synchronous="NORMAL", is_owned=True
        )
        self.tokens = Tokens(self._control, clock)
        self.sessions = Sessions(self._control, self.tokens, clock)
        self.fleet = Fleet()
        self.history = History(self._control, self._samples)
        self.owners = Owners(self._control)
        self.operations = Operations(
            self._control, self.fleet, self._operation_done, home=home, clock=clock,
            owners=self.owners, slots=Slots(slots),
        )  # fmt: skip
        self.plugins = Plugins(home, limit_of=lambda who: self.owners.quota(who).upload_bytes)
        self.secrets = JobSecrets(home)
        self.readings = Readings(
            home, self.fleet, self.history, secrets=self.secrets, clock=clock, exceptions=EXCEPTIONS
        )
        self.watcher = Watcher(
            home, fleet=self.fleet, history=self.history, intents=self.operations,
            owners=self.owners, secrets=self.secrets, clock=clock,
        )  # fmt: skip
        self.lookups = StateLookups()
        self.metrics = MetricsText(self.fleet)
        self.figures = ServiceFigures()
        self._threads = Threads(_READ_THREAD_COUNT, name="read")
        self._checks = Threads(_CHECK_THREAD_COUNT, name="check")
        self._opened = ExitStack()

    def __enter__(self) -> Service:
        """Take the home.

        Raises:
            SERVICE_RUNNING: another process serves it.
            DATABASE_UNUSABLE: a database of it cannot be used.
            TRACING_EXTRA_MISSING: a receiver of spans is set, and the libraries are missing.
            HomeError: the home cannot be created.
        """
        self.home.prepare()
        own_folder(service_folder(self.home))
        with ExitStack() as opened:
            opened.enter_context(self._lock())
            opened.enter_context(self._control)
            opened.enter_context(self._samples)
            self.owners.load()
            opened.enter_context(self.watcher)
            opened.enter_context(self._trace())
            clear_leftovers(self.home)
            opened.enter_context(self.operations)
            waiting = {str(each.facts["digest"]) for each in self.operations.open("install")}
            clear_uploads(self.home, waiting=waiting)
            starts = self.operations.open("submit")
            clear_pipelines(self.home, waiting={str(each.facts["plugin"]) for each in starts})
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.close()
        self._threads.close()
        self._checks.close()
        self.lookups.close()
        self._opened.close()

    @property
    def about(self) -> dict[str, Any]:
        """The description of this service: version, home, start time and uptime."""
        return {
            "version": bicycle_runtime.__version__,
            "home": str(self.home.path),
            "started_ms": self.started_ms,
            "uptime_ms": max(0, self.clock.now_ms() - self.started_ms),
        }

    async def slow(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a blocking call, run in a thread with a time limit.

        Raises:
            READING_TIMED_OUT: it took more than 10 s. It continues, without a caller that waits.
            BicycleError: the error that it raised.
        """
        call = functools.partial(function, *args, **kwargs)
        what = getattr(function, "__name__", "it")
        return await self._threads.run(call, what=what, timeout_ms=_READ_TIMEOUT_MS)

    async def check(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a call that checks a pipeline, in separate threads.

        Raises:
            SERVICE_BUSY: many others wait to be checked.
            READING_TIMED_OUT: it did not come to its end.
            BicycleError: whatever it raised.
        """
        call = functools.partial(function, *args, **kwargs)
        return await self._checks.run(
            call, what="the check of a pipeline", timeout_ms=_CHECK_TIMEOUT_MS,
            waiting_max=_CHECKS_WAITING_MAX,
        )  # fmt: skip

    def _trace(self) -> AbstractContextManager[object]:
        """Return a context that exports spans of epochs, if a receiver is configured.

        Raises:
            TRACING_EXTRA_MISSING: one is, and its libraries are not installed.
        """
        if not is_receiver_configured():
            return nullcontext()
        # Optional: the libraries are needed where there is a receiver.
        from bicycle_runtime.service.tracing.spans import Tracing

        return Tracing(self.home, self.fleet, self.figures, clock=self.clock)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        location = str(self.home.path)
        with ExitStack() as held:
            try:
                path = service_folder(self.home) / "lock"
                held.enter_context(FileLock(path, job="service", location=location))
            except JobRunningError as error:  # Its holder is a service, not a job.
                address = read_address(self.home)
                url = f" at {address['url']}" if address is not None else ""
                raise SERVICE_RUNNING(home=location, pid=error.facts["pid"], url=url) from None
            yield

    async def known(self, job: str) -> KnownJob:
        """Return a job of the snapshot, after the next look for a job that just started.

        Raises:
            JobNotFoundError: there is no such job.
            READING_TIMED_OUT: it is there, and no look comes.
        """
        found = self.fleet.view.get(job)
        if found is not None:
            return found
        await self.slow(self.home.find, job)
        self.watcher.wake()
        try:
            async with asyncio.timeout(_READ_TIMEOUT_MS / 1_000), self.fleet.changes() as changes:
                async for _change in changes:
                    found = self.fleet.view.get(job)
                    if found is not None:
                        return found
        except TimeoutError:
            await self.slow(self.home.find, job)
        raise READING_TIMED_OUT(
            what=f"job {job}",
            waited_ms=_READ_TIMEOUT_MS,
            busy="the watcher has not scanned it",
        )

    async def state(self, job: str, about: str, **words: Any) -> dict[str, Any]:
        """Return the answer to a query about a job's state, as of a retained epoch.

        Args:
            job: The job.
            about: ``outline``, ``operators``, ``entries`` or ``changes``.
            words: Further arguments of the question; see ``state_child``.

        Raises:
            JOB_NOT_FOUND: there is no such job.
            CHECKPOINT_MISSING: it has sealed no epoch.
            SERVICE_BUSY: too many wait for an answer already.
            READING_TIMED_OUT: there was no response within a minute.
            STATE_READER_ENDED: the reading process ended before it responded.
            BicycleError: there is no such epoch or operator, or its files cannot be read.
        """
        known = await self.known(job)
        url = known.status.checkpoint
        if not url:
            hint = "repeat the request after it has sealed an epoch"
            raise CHECKPOINT_MISSING(url=job, found="", hint=hint)
        answer = await self.lookups.ask(url, {"about": about, **words})
        return {**answer, **redacted({"url": answer["url"]})}

    def quota_of(self, owner: str) -> dict[str, Any]:
        """Return the quota of an owner, and its use."""
        jobs = self.operations.jobs
        claims = [claim for claim in jobs.claims() if claim.owner == owner]
        waiting = [job.job for job in jobs.waiting() if job.owner == owner]
        return {
            "owner": owner,
            **msgspec.structs.asdict(self.owners.quota(owner)),
            "used_jobs": len({*waiting, *(claim.job for claim in claims)}),
            "used_slots": sum(claim.slots for claim in claims),
            "used_upload_bytes": self.plugins.used_bytes(owner),
        }

    def set_quota(self, owner: str, quota: Quota, *, identity: Identity, address: str = "") -> None:
        """Set the quota of an owner, and start jobs that fit now."""
        entry = {"actor": identity.name, "address": address, "action": "quota", "target": owner,
                 "outcome": "accepted", "owner": owner}  # fmt: skip
        self.owners.set_quota(owner, quota, entry, at_ms=self.clock.now_ms())
        self.operations.jobs.wake()

    def slots(self, identity: Identity = LOCAL) -> list[dict[str, Any]]:
        """Return the slots of masters: total, used, jobs that wait.

        These are the masters with a known number of slots, and the masters of visible jobs.
        """
        jobs = self.operations.jobs
        claims, waiting = jobs.claims(), jobs.waiting()
        pools = set(jobs.slots.pools())
        pools |= {claim.pool for claim in claims if identity.sees(claim.owner)}
        pools |= {job.pool for job in waiting if identity.sees(job.owner)}
        return [
            {
                "master": pool,
                "total": jobs.slots.of(pool),
                "used": sum(claim.slots for claim in claims if claim.pool == pool),
                "waiting_jobs": sum(job.pool == pool for job in waiting),
            }
            for pool in sorted(pools)
        ]

    def _operation_done(self, operation: Operation) -> None:
        """Apply a finished operation to the shown state of its job, and look at the job."""
        if (dismissal := (operation.result or {}).get("dismissed")) is not None:
            self.watcher.note_dismissed(operation.job, json.dumps(dismissal))
        self.watcher.wake()
