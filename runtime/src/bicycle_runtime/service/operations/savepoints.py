"""Operations on savepoints: facts and execution."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.home import checkpoint_of
from bicycle_runtime.jobs.savepoints.commands import (
    create_savepoint,
    find_restored,
    known_savepoints,
    remove_savepoint,
    restore_to,
    savepoint_of,
)
from bicycle_runtime.jobs.savepoints.paths import require_savepoint_name
from bicycle_runtime.recovery.errors import SavepointMissingError
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID
from bicycle_runtime.service.operations.operation_kind import Kind, Result, Surroundings

__all__ = [
    "SAVEPOINT_KINDS",
    "DeleteSavepointFacts",
    "RestoreFacts",
    "SavepointFacts",
    "name_savepoint",
    "take_savepoint",
]

_SAVEPOINT_TIMEOUT_MS = 600_000


class SavepointFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of ``savepoint``: its ``name``, by default a time; ``to``, a location."""

    name: str | None = None
    to: str | None = None
    timeout_ms: int = _SAVEPOINT_TIMEOUT_MS


class DeleteSavepointFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name`` of a savepoint beside the checkpoints of the job."""

    name: str


class RestoreFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of ``restore``: a savepoint's ``url``, the new job, its directory.

    Its checkpoints lie below ``checkpoint_dir``. ``trust`` and ``savepoint_key`` are those of
    ``JobOptions``. Paths are those of the service's machine.
    """

    url: str
    checkpoint_dir: str
    name: str
    trust: bool = False
    savepoint_key: str | None = None


def name_savepoint(
    where: Surroundings, job: str, facts: SavepointFacts, now_ms: int
) -> SavepointFacts:
    """Determine the name of a savepoint without one, by which it is found again."""
    if not 1_000 <= facts.timeout_ms <= 3_600_000:
        raise OPERATION_FACTS_INVALID(
            kind="savepoint", problem=f"timeout_ms is {facts.timeout_ms}",
            hint="use 1,000 to 3,600,000 ms",
        )  # fmt: skip
    if not job_status(where.home, job).checkpoint:
        raise OPERATION_FACTS_INVALID(
            kind="savepoint", problem=f"job {job!r} has no checkpoint directory",
            hint="start the job, and repeat the request when it runs",
        )  # fmt: skip
    name = facts.name or f"service-{now_ms}"
    require_savepoint_name(name)
    return msgspec.structs.replace(facts, name=name)


def take_savepoint(where: Surroundings, job: str, facts: SavepointFacts) -> Result:
    """Take a savepoint whose name is settled."""
    assert facts.name is not None
    return create_savepoint(
        where.home, job, name=facts.name, to=facts.to, clock=where.clock,
        timeout_ms=facts.timeout_ms,
    )  # fmt: skip


def _found_savepoint(
    where: Surroundings, job: str, facts: SavepointFacts, _asked_ms: int
) -> Result | None:
    if facts.to is not None:  # Nobody lists all places of the world.
        return None
    for entry in known_savepoints(where.home, job):
        if entry.name == facts.name and entry.problem is None:
            return {name: value for name, value in entry.to_json().items() if name != "problem"}
    return None


def _check_deletion(
    where: Surroundings, job: str, facts: DeleteSavepointFacts, _now_ms: int
) -> DeleteSavepointFacts:  # fmt: skip
    storage = savepoint_of(where.home, job, facts.name)
    if not storage.list(""):
        raise SavepointMissingError(url=storage.url)
    return facts


def _delete_savepoint(where: Surroundings, job: str, facts: DeleteSavepointFacts) -> Result:
    return remove_savepoint(where.home, job, facts.name)


def _found_deletion(
    where: Surroundings, job: str, facts: DeleteSavepointFacts, _asked_ms: int
) -> Result | None:
    storage = savepoint_of(where.home, job, facts.name)
    return None if storage.list("") else {"url": storage.url}


def _check_restore(
    _where: Surroundings, _job: str, facts: RestoreFacts, _now_ms: int
) -> RestoreFacts:  # fmt: skip
    checkpoint_of(facts.checkpoint_dir, facts.name)
    return facts


def _restore(where: Surroundings, _job: str, facts: RestoreFacts) -> Result:
    return restore_to(
        where.home, facts.url, checkpoint_dir=facts.checkpoint_dir, job=facts.name,
        trusts=facts.trust, key_file=facts.savepoint_key, clock=where.clock,
    )  # fmt: skip


def _found_restore(
    _where: Surroundings, _job: str, facts: RestoreFacts, _asked_ms: int
) -> Result | None:
    return find_restored(facts.url, checkpoint_dir=facts.checkpoint_dir, job=facts.name)


SAVEPOINT_KINDS: Mapping[str, Kind] = {
    "savepoint": Kind(
        facts=SavepointFacts, settle=name_savepoint, meet=take_savepoint, find=_found_savepoint
    ),
    "delete_savepoint": Kind(
        facts=DeleteSavepointFacts, settle=_check_deletion, meet=_delete_savepoint,
        find=_found_deletion,
    ),
    "restore": Kind(
        facts=RestoreFacts, settle=_check_restore, meet=_restore, find=_found_restore
    ),
}  # fmt: skip
