"""Owners of jobs, and their quotas."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Annotated

import msgspec

from bicycle_runtime.service.errors import JOB_NAME_TAKEN
from bicycle_streams.access.control import note_audit
from bicycle_streams.access.database import Connection, Database
from bicycle_streams.access.roles import Identity


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The quota of an owner; null means no limit.

    ``jobs`` run or wait, ``slots`` are used by running jobs, ``upload_bytes`` are bytes of all
    stored wheels.
    """

    jobs: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    slots: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    upload_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


_NO_QUOTA = Quota()


class Owners:
    """Owners of jobs and their quotas: in memory, and in the database of the service.

    Args:
        control: The database.
    """

    def __init__(self, control: Database) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._by_job: dict[str, str] = {}
        self._quotas: dict[str, Quota] = {}

    def load(self) -> None:
        """Read the stored owners and quotas."""
        jobs = self._control.read(lambda each: each.execute("SELECT * FROM owners").fetchall())
        quotas = self._control.read(lambda each: each.execute("SELECT * FROM quotas").fetchall())
        with self._lock:
            self._by_job = {row["job"]: row["owner"] for row in jobs}
            names = Quota.__struct_fields__
            self._quotas = {
                row["owner"]: Quota(**{name: row[name] for name in names}) for row in quotas
            }

    def of(self, job: str) -> str:
        """Return the owner of a job, empty for one that no service has started."""
        return self._by_job.get(job, "")

    def require_free(self, connection: Connection, job: str, identity: Identity) -> None:
        """Require a job name that is unused, or belongs to the identity's owners.

        Raises:
            JOB_NAME_TAKEN: it is not.
        """
        if _is_foreign(connection, job, identity):
            raise JOB_NAME_TAKEN(job=job)

    def is_foreign(self, job: str, identity: Identity) -> bool:
        """Return whether a name belongs to a job that the identity cannot see."""
        return self._control.read(lambda connection: _is_foreign(connection, job, identity))

    def note(self, connection: Connection, job: str, owner: str) -> None:
        """Keep whose job it is, in a transaction of the database."""
        connection.execute(
            "INSERT INTO owners VALUES (?, ?)"
            " ON CONFLICT (job) DO UPDATE SET owner = excluded.owner",
            (job, owner),
        )
        with self._lock:
            self._by_job[job] = owner

    def quotas(self) -> dict[str, Quota]:
        """Return all quotas, by owner."""
        with self._lock:
            return dict(self._quotas)

    def quota(self, owner: str) -> Quota:
        """Return the quota of an owner."""
        with self._lock:
            return self._quotas.get(owner, _NO_QUOTA)

    def set_quota(self, owner: str, quota: Quota, entry: Mapping[str, str], *, at_ms: int) -> None:
        """Store the quota of an owner durably, with a line of the audit log."""

        def work(connection: Connection) -> None:
            values = (owner, quota.jobs, quota.slots, quota.upload_bytes)
            note_audit(connection, entry, msgspec.structs.asdict(quota), at_ms=at_ms)
            news = ", ".join(f"{n} = excluded.{n}" for n in Quota.__struct_fields__)
            connection.execute(
                "INSERT INTO quotas (owner, jobs, slots, upload_bytes) VALUES (?, ?, ?, ?)"
                f" ON CONFLICT (owner) DO UPDATE SET {news}",
                values,
            )

        self._control.write(work).result()
        with self._lock:
            self._quotas[owner] = quota


def _is_foreign(connection: Connection, job: str, identity: Identity) -> bool:
    sql = "SELECT owner FROM owners WHERE job = ? UNION ALL SELECT '' FROM jobs WHERE id = ?"
    found = connection.execute(sql, (job, job)).fetchone()
    return found is not None and not identity.sees(found["owner"])
