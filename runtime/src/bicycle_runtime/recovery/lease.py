"""The lease of a job: it decides which driver may advance a checkpoint directory.

The idea a reader needs: leases have numbers, and ``lease/<number>`` can be created only once. The
highest number counts; a driver with a lower one is *fenced* for good, even if it slept for a year.
So before each step that lasts, a driver looks whether the next number exists.

A driver takes over only from one that ended, that is surely dead, or whose heartbeat does not
change for a few beats; a live one is never robbed. Only the own clock counts: a heartbeat is a
counter. Nothing here keeps a driver from acting between its look and its act; ADR-0017 has the
consequences.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Protocol
from zlib import crc32

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.process_identity import ProcessIdentity, is_surely_gone, this_process
from bicycle_runtime.base.storage import (
    LocalStorage,
    ObjectExistsError,
    ObjectMissingError,
    Storage,
    StorageError,
)
from bicycle_runtime.base.stored import STORED_VERSION, VERSION_FIELD, refuse_newer
from bicycle_runtime.layouts.paths import (
    LEASE,
    LEASE_BEAT,
    LEASE_DIGITS,
    LEASE_RELEASED,
    LEASE_SETTLED,
)
from bicycle_runtime.recovery.errors import CHECKPOINT_GONE, LEASE_LOST, LeaseHeldError
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
WATCH_BEATS = 4
_LOOKS_PER_BEAT = 4
_ROUNDS_MAX = 8
_KEPT_NUMBERS = 1_000
_COMPANIONS = (LEASE_BEAT, LEASE_RELEASED, LEASE_SETTLED)
_JOIN_S = 5.0

_Fate = Literal["gone", "silent", "alive"]


class Fence(Protocol):
    """The check whether another driver has taken over."""

    @property
    def is_contested(self) -> bool:
        """Return whether the previous driver may be alive, so the next epoch is occupied."""

    def require(self) -> None:
        """Raise LEASE_LOST when another driver has taken over. From any thread."""

    def settle(self) -> None:
        """Note that no earlier driver can seal an epoch; raises like ``require``."""


class Unfenced:
    """The fence of jobs with a single possible driver, such as tests."""

    is_contested = False

    def require(self) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """The holder of a lease; ``since_ms`` is informative, ``token`` makes it unique.

    ``is_contested`` means that a driver before it may still live; see ``Fence``.
    """

    number: int
    job: str
    process: ProcessIdentity
    since_ms: int
    beat_ms: int
    token: str
    is_contested: bool

    def to_bytes(self) -> bytes:
        """Return one line of JSON, with format version and checksum."""
        data = {VERSION_FIELD: STORED_VERSION, **asdict(self)}
        return json.dumps({**data, "crc32": _checksum(data)}, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> LeaseHolder | None:
        """Read the result of ``to_bytes``, or return None for damage.

        Raises:
            STORED_NEWER: a newer version of the runtime wrote the file ``path``.
        """
        try:
            fields = json.loads(data)
            if fields.pop("crc32") != _checksum(fields):
                return None
            refuse_newer(fields.pop(VERSION_FIELD), path=path)
            return cls(**{**fields, "process": ProcessIdentity(**fields["process"])})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def facts(self) -> dict[str, object]:
        """Return the facts about the holder, for errors."""
        since = datetime.fromtimestamp(self.since_ms / 1_000, UTC).isoformat(timespec="seconds")
        return {
            "number": self.number,
            "host": self.process.host,
            "pid": self.process.pid,
            "since": since,
        }


class Lease:
    """One driver's claim on a job.

    It starts no thread: ``LeaseKeeper`` makes its heartbeats.

    Args:
        storage: Checkpoint storage of the job.
        job: Job id, for errors.
        clock: Measures since when the lease is held, and how long a heartbeat does not change.
        source: Makes the token.
        beat_ms: Time between two heartbeats of ours.
        pause: Waits for so many seconds.
        process: Our own process.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        job: str,
        clock: Clock,
        source: random.Random,
        beat_ms: int = 1_000,
        pause: Callable[[float], object] | None = None,
        process: ProcessIdentity | None = None,
    ) -> None:
        self._storage = storage
        self._job = job
        self._clock = clock
        self._source = source
        self._beat_ms = beat_ms
        self._pause = pause or threading.Event().wait
        self._process = process or this_process()
        self._number = 0
        self._beat_count = 0
        self._is_lost = False
        self.is_contested = False

    @property
    def number(self) -> int:
        """The number of the lease; 0 before it is taken."""
        return self._number

    @property
    def is_lost(self) -> bool:
        """Return whether an earlier check found the lease taken or removed.

        Reads no storage.
        """
        return self._is_lost

    def acquire(self) -> None:
        """Acquire the lease, at once or after the heartbeat of its holder stopped.

        Raises:
            LeaseHeldError: a live driver holds it, or was faster.
        """
        for _ in range(_ROUNDS_MAX):
            newest = self._newest_number()
            holder = self._holder(newest)
            fate = self._fate_of(newest, holder)
            if fate == "alive":
                if self._newest_number() == newest and not self._has(newest, LEASE_RELEASED):
                    raise self._held_error(newest, holder)
                continue
            mine = self._claim(
                newest + 1,
                is_contested=fate == "silent" or self._is_unsettled(newest, holder),
            )
            try:
                self._storage.create(_path(mine.number), mine.to_bytes())
            except ObjectExistsError:  # A faster driver has just shown that it lives.
                raise self._held_error(mine.number, self._holder(mine.number)) from None
            self._number, self.is_contested = mine.number, mine.is_contested
            self._write_beat()
            self._forget_former()
            log_event(
                _LOG, "lease_taken", job=self._job, number=mine.number,
                is_contested=mine.is_contested,
            )  # fmt: skip
            return
        newest = self._newest_number()
        raise self._held_error(newest, self._holder(newest))

    def refuse_holder(self) -> None:
        """Ensure that no live driver holds the lease; nothing is written.

        Raises:
            LeaseHeldError: one does.
        """
        newest = self._newest_number()
        holder = self._holder(newest)
        if self._fate_of(newest, holder) == "alive" and not self._has(newest, LEASE_RELEASED):
            raise self._held_error(newest, holder)

    def require(self) -> None:
        """Ensure that no driver has taken over, with one or two reads of the storage.

        Raises:
            LEASE_LOST: another driver has taken over.
            CHECKPOINT_GONE: the lease is gone, and no driver has taken over.
        """
        is_local = isinstance(self._storage, LocalStorage)  # A bucket is not unmounted.
        if not self._is_lost and (
            self._storage.exists(_path(self._number + 1)) or (is_local and self._is_missing())
        ):
            self._is_lost = True
        if self._is_lost:
            raise self._lost_error()

    def settle(self) -> None:
        if self.is_contested:
            self.require()
            self._storage.write(_path(self._number, LEASE_SETTLED), b"")
            self.is_contested = False

    def beat(self) -> bool:
        """Write a heartbeat; return False if the lease is taken or removed for good."""
        self._is_lost = (
            self._is_lost or self._storage.exists(_path(self._number + 1)) or self._is_missing()
        )
        if not self._is_lost:
            self._write_beat()
        return not self._is_lost

    def release(self) -> None:
        """Release the lease, so that the next driver takes over at once.

        Harmless if the lease was taken.
        """
        if self._number and not self._is_lost:
            self._storage.write(_path(self._number, LEASE_RELEASED), b"")

    def abandon(self) -> None:
        """Skip the release at the end: the storage is away, the next driver waits."""
        self._number = 0

    def _fate_of(self, number: int, holder: LeaseHolder | None) -> _Fate:
        """Return the fate of a holder: surely gone, silent, or alive."""
        if number == 0 or self._has(number, LEASE_RELEASED):
            return "gone"
        if holder is not None and is_surely_gone(holder.process, seen_by=self._process):
            return "gone"
        beat_s = (holder.beat_ms if holder else self._beat_ms) / 1_000
        first = self._beat_of(number)
        deadline = self._clock.monotonic() + WATCH_BEATS * beat_s
        while self._clock.monotonic() < deadline:
            self._pause(beat_s / _LOOKS_PER_BEAT)
            if self._has(number, LEASE_RELEASED) or self._beat_of(number) != first:
                return "alive"
        return "silent"

    def _is_unsettled(self, number: int, holder: LeaseHolder | None) -> bool:
        """Return whether a driver even before this holder may still live."""
        if number == 0:
            return False
        return (holder is None or holder.is_contested) and not self._has(number, LEASE_SETTLED)

    def _claim(self, number: int, *, is_contested: bool) -> LeaseHolder:
        return LeaseHolder(
            number=number,
            job=self._job,
            process=self._process,
            since_ms=self._clock.now_ms(),
            beat_ms=self._beat_ms,
            token=attempt_id(source=self._source),
            is_contested=is_contested,
        )

    def _write_beat(self) -> None:
        self._beat_count += 1
        storage = self._storage
        if isinstance(storage, LocalStorage):  # A power cut ends the heart as well.
            storage = replace(storage, is_synced=False)
        storage.write(_path(self._number, LEASE_BEAT), str(self._beat_count).encode())

    def _beat_of(self, number: int) -> bytes | None:
        try:
            return self._storage.read(_path(number, LEASE_BEAT))
        except ObjectMissingError:
            return None

    def _has(self, number: int, companion: str) -> bool:
        return self._storage.exists(_path(number, companion))

    def _holder(self, number: int) -> LeaseHolder | None:
        try:
            if not number:
                return None
            path = f"{self._storage.url}/{_path(number)}"
            return LeaseHolder.from_bytes(self._storage.read(_path(number)), path=path)
        except ObjectMissingError:
            return None

    def _newest_number(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        names = (path.rpartition("/")[2] for path in self._storage.list(LEASE))
        return [int(name) for name in names if name.isdigit()]

    def _forget_former(self) -> None:
        """Remove obsolete files; the numbers remain for long, since they are the fence."""
        for path in self._storage.list(LEASE):
            name, _, companion = path.rpartition("/")[2].partition(".")
            number = int(name) if name.isdigit() else self._number
            is_old = number < self._number and companion in _COMPANIONS
            if is_old or number < self._number - _KEPT_NUMBERS:
                self._storage.delete(path)

    def _held_error(self, number: int, holder: LeaseHolder | None) -> LeaseHeldError:
        return LeaseHeldError(job=self._job, url=self._storage.url, **_facts(number, holder))

    def _is_missing(self) -> bool:
        """Return whether our own lease was removed."""
        return not self._storage.exists(_path(self._number))

    def _lost_error(self) -> BicycleError:
        newest = self._newest_number()
        if newest <= self._number:
            return CHECKPOINT_GONE(
                job=self._job, url=self._storage.url, missing=_path(self._number)
            )
        return LEASE_LOST(
            job=self._job,
            url=self._storage.url,
            own_number=self._number,
            **_facts(newest, self._holder(newest)),
        )


class LeaseKeeper:
    """A context that holds a lease, with heartbeats in a separate thread.

    The thread calls nothing but the storage, so a job whose functions hang is not taken for dead.

    Args:
        lease: The lease, which is not yet taken.
        beat_ms: Time between two heartbeats.
        on_lost: Called once, in the thread, when the lease is taken or gone.
        on_refused: Called in the thread with the error of each beat that the storage refuses, and
            with None by the first that it takes again.
    """

    def __init__(
        self, lease: Lease, *, beat_ms: int, on_lost: Callable[[], object],
        on_refused: Callable[[StorageError | None], object] = lambda _: None,
    ) -> None:  # fmt: skip
        self._lease = lease
        self._beat_ms = beat_ms
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-beats", daemon=True)

    def __enter__(self) -> Lease:
        self._lease.acquire()
        self._thread.start()
        return self._lease

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_JOIN_S)  # It may be in a call to a storage that does not answer.
        try:
            self._lease.release()
        except StorageError as failure:  # The next driver waits for the heartbeat instead.
            log_event(_LOG, "lease_not_released", level=logging.WARNING, error=failure)

    def _run(self) -> None:
        refused_count = 0
        while not self._is_over.wait(self._beat_ms / 1_000):
            try:
                is_ours = self._lease.beat()
            except StorageError as error:  # The next beat may succeed; the fence does not need it.
                if not refused_count:  # A beat a second would fill the log.
                    log_event(_LOG, "lease_beat_failed", level=logging.WARNING, error=error)
                refused_count += 1
                self._on_refused(error)
                continue
            if refused_count:
                log_event(_LOG, "lease_beats_again", refused_count=refused_count)
                self._on_refused(None)
                refused_count = 0
            if not is_ours:
                self._on_lost()
                return


def _path(number: int, companion: str = "") -> str:
    name = f"{LEASE}/{number:0{LEASE_DIGITS}}"
    return f"{name}.{companion}" if companion else name


def _checksum(data: dict[str, object]) -> int:
    return crc32(json.dumps(data, sort_keys=True).encode())


def _facts(number: int, holder: LeaseHolder | None) -> dict[str, object]:
    if holder is None:
        return {"number": number, "host": "unknown", "pid": "unknown", "since": "unknown"}
    return holder.facts()
