"""Ownership of the parts of a run: a mark in the output directory.

Parts carry the token of a run, and jobs that began with one savepoint share that token: two of them
at once would take back each other's parts. So a run that starts leaves ``.owner-<run>`` in the
output directory, looks at it before each publication, and removes it at the end.

A leftover mark is no obstacle to the job that left it, wherever it starts again, nor to any job
once its process is known to be dead. The newest mark counts: a writer whose mark is not there any
more publishes nothing. This does not replace the lease, which is about one checkpoint directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.process_identity import ProcessIdentity, is_surely_gone, this_process
from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError, Storage, StorageError
from bicycle_runtime.base.stored import STORED_VERSION, VERSION_FIELD, refuse_newer
from bicycle_runtime.connectors.errors import OUTPUT_HELD, OUTPUT_TAKEN_OVER
from bicycle_runtime.contract import DriverServices
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.random_source import system_random

MADE = "file:"  # Among the names of ``Sink.makes``, this prefix marks a directory.

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOwner:
    """The content of a mark.

    ``folder`` contains the files of the sink and is stored as ``place``; ``token`` is unique.
    """

    job: str
    folder: str
    process: ProcessIdentity
    since_ms: int
    token: str

    def to_bytes(self) -> bytes:
        """Return one line of JSON; ``from_bytes`` is the inverse."""
        fields = {VERSION_FIELD: STORED_VERSION, **asdict(self)}
        fields["place"] = fields.pop("folder")
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> OutputOwner | None:
        """Read a mark; None when a power cut has damaged it, and with it ended its owner.

        Raises:
            STORED_NEWER: a newer version of the runtime wrote the file ``path``.
        """
        try:
            found = json.loads(data)
            refuse_newer(found.get(VERSION_FIELD, STORED_VERSION), path=path)
            found["folder"] = found["place"]
            # Another version may note more: it is still an owner.
            fields = {name: found[name] for name in cls.__dataclass_fields__}
            return cls(**{**fields, "process": ProcessIdentity(**fields["process"])})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def gives_way_to(self, other: OutputOwner) -> bool:
        """Return whether another one may continue with the parts.

        1. It has the same folder: the lease sees to it that only one of them lives.
        2. Our process is known to be gone.
        3. It has our name, and our process is not known to live: it is the job, moved elsewhere.
        """
        if self.folder == other.folder or is_surely_gone(self.process, seen_by=other.process):
            return True
        is_seen = bool(self.process.space) and self.process.space == other.process.space
        return self.job == other.job and not is_seen


class OutputClaim:
    """The claim of one sink on the parts of its run.

    Args:
        output: The location of the parts.
        run: Token of the run.
        vertex: The sink, for errors.
        services: Of the sink.
        process: The owner; None for this process.
    """

    def __init__(
        self, output: Storage, *, run: str, vertex: str, services: DriverServices,
        process: ProcessIdentity | None = None,
    ) -> None:  # fmt: skip
        self._storage = output
        self._name = f".owner-{run}"
        self._run = run
        self._vertex = vertex
        self._owner = OutputOwner(
            job=services.job,
            folder=f"{services.storage.url}/{services.prefix}",
            process=process or this_process(),
            since_ms=services.clock.now_ms(),
            token=attempt_id(source=system_random()),
        )

    def refuse_holder(self) -> OutputOwner | None:
        """Return the owner that may be replaced, or None without an owner. Nothing is changed.

        Raises:
            OUTPUT_HELD: a job that may live continues the parts.
        """
        former = self._find_owner()
        if former is not None and not former.gives_way_to(self._owner):
            raise self._held_error(former)
        return former

    def take(self) -> None:
        """Acquire the ownership.

        Raises:
            OUTPUT_HELD: a job that may live continues the parts; nothing was changed.
            StorageError: the mark cannot be written.
        """
        former = self.refuse_holder()
        if former is not None:
            is_moved = former.folder != self._owner.folder
            log_event(
                _LOG, "output_taken_over", level=logging.WARNING if is_moved else logging.INFO,
                path=self._storage.url, job=former.job, host=former.process.host,
                pid=former.process.pid, folder=former.folder,
            )  # fmt: skip
        self._storage.write(self._name, self._owner.to_bytes())

    def require(self, epoch: int) -> None:
        """Ensure that no job has taken over the parts, by reading a small file.

        Raises:
            OUTPUT_TAKEN_OVER: another one has, or had before it ended.
        """
        found = self._find_owner()
        if found is None and self._is_removed():
            self._storage.write(self._name, self._owner.to_bytes())  # All of it was removed.
        elif found is None or found.token != self._owner.token:
            raise OUTPUT_TAKEN_OVER(
                vertex=self._vertex, path=self._storage.url, epoch=epoch, mark=self._name
            )

    def release(self) -> None:
        """Release the ownership.

        Harmless after a takeover.
        """
        with contextlib.suppress(StorageError):  # The next job checks whether we are dead.
            found = self._find_owner()
            if found is not None and found.token == self._owner.token:
                self._storage.delete(self._name)

    def _find_owner(self) -> OutputOwner | None:
        try:
            path = f"{self._storage.url}/{self._name}"
            return OutputOwner.from_bytes(self._storage.read(self._name), path=path)
        except ObjectMissingError:
            return None

    def _is_removed(self) -> bool:
        """Return whether the whole local output directory was removed."""
        return isinstance(self._storage, LocalStorage) and not Path(self._storage.root).exists()

    def _held_error(self, owner: OutputOwner) -> BicycleError:
        since = datetime.fromtimestamp(owner.since_ms / 1_000, UTC).isoformat(timespec="seconds")
        return OUTPUT_HELD(
            vertex=self._vertex,
            path=self._storage.url,
            run=self._run,
            owner=owner.job,
            folder=owner.folder,
            host=owner.process.host,
            pid=owner.process.pid,
            since=since,
            mark=f"{self._storage.url}/{self._name}",
        )


def run_of(state: Mapping[str, Any]) -> str:
    """Return the token that is in names of files; empty before the first start."""
    run = str(state.get("run", ""))
    if run and not run.isalnum():
        raise UnsafePathError(path=run, problem="it is not a token of a file sink run")
    return run


def path_of(state: Mapping[str, Any], storage_id: str, own: str) -> str:
    """Return the output of an epoch: not our own if the job was changed since.

    A job that continues elsewhere has only its own: the other job, which may go on, has the former.
    """
    return str(state.get("path", own)) if state.get("place") == storage_id else own


def output_paths(state: Mapping[str, Any], storage_id: str, own: str) -> list[str]:
    """Return our output, and former ones where something may not be visible yet."""
    is_open = state.get("open") or state.get("held", {}).get("files")
    if not (is_open or state.get("plans")):
        return [own]
    states = (state, {**state, **state.get("former", {})})
    return [own, *sorted({path_of(each, storage_id, own) for each in states} - {own})]


def new_run(services: DriverServices, names: Iterable[str]) -> str:
    """Return a token that is in no name of the output."""
    seed = f"{services.storage.url}\n{services.prefix}\n{services.clock.now_ms()}"
    taken = {name.rpartition("-")[2].partition(".")[0] for name in names}
    salt = 0
    while True:
        token = hashlib.sha256(f"{seed}\n{salt}".encode()).hexdigest()[:6]
        if token not in taken:
            return token
        salt += 1
