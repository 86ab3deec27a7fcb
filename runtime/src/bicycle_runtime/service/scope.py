"""The service in the scope of a caller: jobs of visible owners, and their data.

Doors use a scope, never the service itself, for all data about more than one job. The scope also
checks the job that a request names, before data of that job is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from bicycle_runtime.base.storage_urls import is_within, open_storage, resolve_location
from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.jobs.savepoints.commands import known_savepoints
from bicycle_runtime.recovery.errors import SavepointMissingError
from bicycle_runtime.recovery.savepoints import job_of
from bicycle_runtime.service.errors import LOCATION_TAKEN, OPERATION_UNKNOWN
from bicycle_runtime.service.operations.locations import resolve_facts
from bicycle_runtime.service.plugins.errors import PLUGIN_UNKNOWN
from bicycle_streams.access.roles import Identity, Role, require_all_owners

if TYPE_CHECKING:
    from bicycle_runtime.jobs.control.topology import JobTopology
    from bicycle_runtime.jobs.savepoints.commands import SavepointEntry
    from bicycle_runtime.jobs.status import JobStatus
    from bicycle_runtime.service.plugins.uploaded_plugins import InstallFacts
    from bicycle_runtime.service.plugins.wheels import UploadedPlugin
    from bicycle_runtime.service.service import Service
    from bicycle_runtime.service.store.history import AuditEntry, Event, Operation
    from bicycle_runtime.service.users.owners import Quota
    from bicycle_runtime.service.watching.fleet import Change, FleetView
    from bicycle_runtime.service.watching.summaries import KnownJob
    from bicycle_streams.access.connections import OpenConnection

_NAMES_MAX = 5
_PATIENCE_S = 5.0  # A request waits for the storage of a location that it names.


class Scope:
    """The jobs and artifacts that one identity may see.

    Args:
        service: The service.
        identity: The caller.
        address: Address of the caller, for the audit log.
        connection: Counts the streams of the caller; None for requests without a stream.

    Attributes:
        service: The service, for data of one checked job and for data without secrets.
        identity: The caller.
    """

    def __init__(
        self, service: Service, identity: Identity, *, address: str = "",
        connection: OpenConnection | None = None,
    ) -> None:  # fmt: skip
        self.service = service
        self.identity = identity
        self._address = address
        self._connection = connection

    @property
    def _owners(self) -> Sequence[str] | None:
        return self.identity.owners

    def has(self, job: str) -> bool:
        """Return whether a job is theirs to see, if there is one."""
        return self.identity.sees(self.service.owners.of(job))

    @property
    def view(self) -> FleetView:
        """The newest snapshot of their jobs."""
        whole = self.service.fleet.view
        if self._owners is None:
            return whole
        return replace(whole, jobs=tuple(j for j in whole.jobs if self.has(j.summary.job_id)))

    def begin_stream(self) -> None:
        """Count an answer that streams until its reader is gone.

        Raises:
            CONNECTIONS_TOO_MANY: the caller has as many streams as it may.
            CONNECTIONS_EXHAUSTED: all callers together have.
        """
        if self._connection is not None:
            self._connection.begin_stream()

    def visible(self, change: Change) -> Change:
        """Return the visible part of a change."""
        if self._owners is None:
            return change
        jobs = frozenset(filter(self.has, change.jobs))
        return replace(change, jobs=jobs, removed=frozenset(filter(self.has, change.removed)))

    async def require(self, job: str) -> None:
        """Ensure that a job is there for them.

        Raises:
            JOB_NOT_FOUND: it is not; only their own jobs are named.
        """
        if self._owners is None:
            return
        folder = self.service.home.folder(job)
        if not self.has(job) or not await self.service.slow(folder.status_path.exists):
            names = [known.summary.job_id for known in self.view.jobs[:_NAMES_MAX]]
            raise JOB_NOT_FOUND(
                job=job, known=names, known_text=", ".join(names) or "none", suggestion="",
                home="of the service",
            )  # fmt: skip

    async def known(self, job: str) -> KnownJob:
        """Return a job of the snapshot, after the next look for a job that just started.

        Raises:
            JOB_NOT_FOUND: there is no such job for them.
            READING_TIMED_OUT: it is there, and no look comes.
        """
        await self.require(job)
        return await self.service.known(job)

    async def statuses(self) -> list[JobStatus]:
        """Return the statuses of visible jobs, read from their files now."""
        found = await self.service.slow(list_jobs, self.service.home)
        return [status for status in found if self.has(status.id)]

    async def savepoints(self) -> list[SavepointEntry]:
        """Return the savepoints of their jobs."""
        home, slow = self.service.home, self.service.slow
        if self._owners is None:
            return await slow(known_savepoints, home, None)
        names = [known.summary.job_id for known in self.view.jobs]
        return await slow(lambda: [each for name in names for each in known_savepoints(home, name)])

    async def topology(self) -> JobTopology:
        """Return the topology of their jobs and the streams that these read and write."""
        jobs = self.view.jobs
        return await self.service.slow(self.service.readings.topology, jobs)

    async def metrics_text(self, *, older_names: bool = True) -> str:
        """Return the figures of their jobs as text for Prometheus."""
        now_ms, text = self.service.clock.now_ms(), self.service.metrics.text
        return await self.service.slow(text, self.view, now_ms=now_ms, older_names=older_names)

    async def samples_of_all(self, tier: str) -> dict[str, Any]:
        """Return the sums of their jobs over time."""
        names = None
        if self._owners is not None:
            names = [known.summary.job_id for known in self.view.jobs]
        return await self.service.slow(self.service.history.samples_of_all, tier=tier, jobs=names)

    async def slots(self) -> list[dict[str, Any]]:
        """Return the slots of the masters that were declared, or that jobs of theirs use."""
        return await self.service.slow(self.service.slots, self.identity)

    async def events(self, job: str | None, after: int) -> list[Event]:
        """Return events behind a number, the oldest first, of one job or of all of theirs."""
        read = self.service.history.events
        return await self.service.slow(read, job, after=after, owners=self._owners)

    async def latest_events(self, limit: int) -> list[Event]:
        """Return the latest events of all their jobs, the newest first."""
        read = self.service.history.latest_events
        return await self.service.slow(read, limit=limit, owners=self._owners)

    async def audit(self, after: int, limit: int) -> list[AuditEntry]:
        """Return the visible lines of the audit log, oldest first."""
        read = self.service.history.audit
        return await self.service.slow(read, after=after, limit=limit, owners=self._owners)

    async def latest_audit(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Return the same, the newest first, of the lines before a number."""
        read = self.service.history.latest_audit
        return await self.service.slow(read, before=before, limit=limit, owners=self._owners)

    async def ask(
        self, kind: str, job: str | None, facts: Mapping[str, Any], *, key: str | None = None
    ) -> Operation:
        """Begin an operation: see ``Operations.ask``.

        Raises:
            JOB_NOT_FOUND: there is no such job for them.
            PLUGIN_UNKNOWN: nor such a plugin.
            SavepointMissingError: nor such a savepoint.
            BicycleError: whatever refuses it.
        """
        if job is not None:
            await self.require(job)
        if kind != "install":  # A plugin that was just received belongs to the caller.
            facts = await self.service.slow(resolve_facts, facts)
            await self.service.slow(self._require_named, facts)
        # A pipeline is checked in a separate thread, so that reads do not wait for it.
        run = self.service.check if facts.get("pipeline") else self.service.slow
        return await run(
            self.service.operations.ask, kind, job, facts, identity=self.identity, key=key,
            address=self._address,
        )  # fmt: skip

    def _require_named(self, facts: Mapping[str, Any]) -> None:
        """Check that the resources in a request are visible to the caller."""
        if self._owners is None:
            return
        plugins, named = self.service.plugins, {**(facts.get("options") or {}), **facts}
        environment = str(named.get("plugin_env") or "")
        for digest in filter(None, (named.get("digest"), plugins.digest_of(environment))):
            if not self.identity.sees(plugins.owner_of(str(digest))):
                raise PLUGIN_UNKNOWN(digest=digest)
        read = [str(named[name]) for name in ("url", "from_") if named.get(name)]
        written = [str(named["to"])] if named.get("to") else []
        if named.get("checkpoint_dir"):
            job = str(named.get("name") or "")
            written.append(f"{str(named['checkpoint_dir']).rstrip('/')}/{job}".rstrip("/"))
        foreign = self._foreign_locations() if read or written else []
        for url in read:
            if any(is_within(url, location) for location in foreign) or self._is_foreign(url):
                raise SavepointMissingError(url=url)
        for location in written:
            near = (is_within(location, each) or is_within(each, location) for each in foreign)
            if any(near) or self._is_foreign(location):
                raise LOCATION_TAKEN(location=location)

    def _foreign_locations(self) -> list[str]:
        """Return the checkpoint directories of all jobs that are not theirs, resolved."""
        known = self.service.fleet.view.jobs
        foreign = [each.status.checkpoint for each in known if not self.has(each.summary.job_id)]
        return [resolve_location(location) for location in foreign if location]

    def _is_foreign(self, location: str) -> bool:
        """Return whether a savepoint or checkpoint, wherever it is, is of a job of others."""
        job = job_of(open_storage(location, patience_s=_PATIENCE_S))
        return bool(job) and self.service.owners.is_foreign(job, self.identity)

    async def operation(self, number: int, wait_s: float = 0.0) -> Operation:
        """Return an operation of theirs, when it is over or after so long.

        Raises:
            OPERATION_UNKNOWN: the caller can see no operation with this number.
        """
        found = await self.service.operations.wait(number, 0)
        if not self.identity.sees(found.owner):
            raise OPERATION_UNKNOWN(operation=number)
        if found.is_over or not wait_s:
            return found
        return await self.service.operations.wait(number, wait_s)

    async def operations(self, *, limit: int, **wanted: str | None) -> list[Operation]:
        """Return operations of theirs: see ``Operations.recent``."""
        read = self.service.operations.recent
        return await self.service.slow(read, limit=limit, owners=self._owners, **wanted)

    def queued(self) -> list[Operation]:
        """Return the starts of visible jobs in the queue, longest wait first."""
        found = self.service.operations.queued()
        return [each for each in found if self.identity.sees(each.owner)]

    async def withdraw(self, number: int) -> Operation:
        """Take the start of a job of theirs out of the queue: see ``Operations.withdraw``."""
        await self.operation(number)
        return await self.service.slow(
            self.service.operations.withdraw, number, identity=self.identity,
            address=self._address,
        )  # fmt: skip

    async def plugins(self) -> list[UploadedPlugin]:
        """Return the plugins of theirs, with the jobs of theirs that need them."""
        found = await self.service.slow(self.service.plugins.all)
        return [self._restrict(each) for each in found if self.identity.sees(each.owner)]

    async def plugin(self, digest: str) -> UploadedPlugin:
        """Return one plugin of theirs.

        Raises:
            PLUGIN_UNKNOWN: the caller can see no plugin with this digest.
        """
        found = await self.service.slow(self.service.plugins.get, digest)
        if not self.identity.sees(found.owner):
            raise PLUGIN_UNKNOWN(digest=digest[:100])
        return self._restrict(found)

    def _restrict(self, plugin: UploadedPlugin) -> UploadedPlugin:
        return msgspec.structs.replace(plugin, jobs=[job for job in plugin.jobs if self.has(job)])

    def receive(self, name: str, wheel: BinaryIO, lock: bytes | None) -> InstallFacts:
        """Take the files of an upload: see ``Plugins.receive``."""
        owner, is_shared = self.identity.owner, self._owners is None
        return self.service.plugins.receive(
            name, wheel, lock, owner=owner, is_shared=is_shared,
            may_lock=self.identity.may(Role.OPERATOR),
        )  # fmt: skip

    async def quota(self, owner: str) -> dict[str, Any]:
        """Return the quota of an owner, and its use.

        Raises:
            OWNERS_LIMITED: the token does not cover this owner.
        """
        if not self.identity.sees(owner):
            require_all_owners(self.identity)
        return await self.service.slow(self.service.quota_of, owner)

    async def set_quota(self, owner: str, quota: Quota) -> None:
        """Set the quota of an owner, which requires access to all owners.

        Raises:
            OWNERS_LIMITED: they see some owners only.
        """
        require_all_owners(self.identity)
        await self.service.slow(
            self.service.set_quota, owner, quota, identity=self.identity, address=self._address
        )

    async def note(self, action: str, target: str, facts: Mapping[str, Any]) -> None:
        """Write an action on a job to the audit log before the response."""
        entry = {
            "actor": self.identity.name, "address": self._address, "action": action,
            "target": target, "outcome": "accepted", "owner": self.service.owners.of(target),
        }  # fmt: skip
        now_ms, note = self.service.clock.now_ms(), self.service.history.note_audit
        await self.service.slow(lambda: note(entry, facts, at_ms=now_ms).result())
