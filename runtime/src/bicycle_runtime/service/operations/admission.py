"""The admission of waiting jobs: functions of slots, quotas, and running jobs.

A slot is room for one subtask at a time. The next job is a job of the owner who uses the smallest
share of their quota, now and in the last hour; of that owner, the job that has waited longest. A
job that has waited for ten minutes reserves slots of the master as they become free, so that small
jobs do not delay a wide job forever. The reservation applies to jobs of its owner at once, and to
jobs of other owners if its owner got no slots in that time.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from bicycle_runtime.service.users.owners import Quota

LOCAL = "local"
_LOCAL_SLOTS_MIN = 4
_LOCAL_MASTER = re.compile(r"local(\[.*\]|-cluster.*)?")

_RESERVING_MS = 600_000
_HALF_LIFE_S = 3_600.0
_BEGIN_S = 1.0  # The minimum use of a start: a job may end between two checks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job that runs, or begins."""

    job: str
    owner: str
    pool: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that waits to begin; ``number`` is that of its operation."""

    number: int
    job: str
    owner: str
    pool: str
    slots: int
    asked_ms: int

    def claim(self) -> Claim:
        """Return the resources that the job uses once it begins."""
        return Claim(job=self.job, owner=self.owner, pool=self.pool, slots=self.slots)


class Slots:
    """The slots of each master.

    Args:
        declared: By master URL, the number of slots, or the address of the master's page with it;
            ``local`` is this machine, for all embedded Sparks together.

    Attributes:
        pages: The addresses of these pages, by master URL.
    """

    def __init__(self, declared: Mapping[str, int | str] | None = None) -> None:
        here = max(_LOCAL_SLOTS_MIN, os.cpu_count() or 1)
        given = {LOCAL: here, **(declared or {})}
        self.pages = {pool: page for pool, page in given.items() if isinstance(page, str)}
        self._fixed = {pool: number for pool, number in given.items() if isinstance(number, int)}
        self._told: dict[str, int] = {}

    def of(self, pool: str) -> int | None:
        """Return the slots of a master, or None if unknown, so that it queues by itself."""
        return self._fixed.get(pool, self._told.get(pool))

    def is_fixed(self, pool: str) -> bool:
        """Return whether the number was declared, so that the master need not be asked."""
        return pool in self._fixed

    def tell(self, pool: str, slots: int | None) -> None:
        """Record the slots that a master reports; without an answer, the last ones remain."""
        if slots is not None:
            self._told[pool] = slots

    def pools(self) -> list[str]:
        """Return the masters that were declared."""
        return sorted({*self._fixed, *self.pages})


def pool_of(master: str | None) -> str:
    """Return the slot pool of a master URL; embedded Sparks share one.

    Example:
        >>> pool_of(None), pool_of("local[4]"), pool_of("spark://head:7077")
        ('local', 'local', 'spark://head:7077')
    """
    return LOCAL if not master or _LOCAL_MASTER.fullmatch(master) else master


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Numbers of the jobs that begin now, in order, and why the others wait."""

    begun: list[int] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)


class KeptUse(msgspec.Struct, frozen=True, kw_only=True):
    """Past use as stored; ``begun`` has owner, master and time of the last start."""

    at_ms: int
    slot_seconds: dict[str, float]
    begun: list[tuple[str, str, int]]


class PastUse:
    """The slots that each owner used, as a mean with a half-life of one hour.

    Attributes:
        begun_ms: When a job began last, by owner and master.
    """

    def __init__(self) -> None:
        self._slot_seconds: dict[str, float] = {}
        self._noted_s: float | None = None
        self.begun_ms: dict[tuple[str, str], int] = {}

    def keep(self, *, now_ms: int) -> KeptUse:
        """Return the use as stored, for the next process."""
        begun = [(owner, pool, at_ms) for (owner, pool), at_ms in self.begun_ms.items()]
        return KeptUse(at_ms=now_ms, slot_seconds=dict(self._slot_seconds), begun=begun)

    def restore(self, kept: KeptUse, *, now_ms: int) -> None:
        """Begin with the use that another process has stored."""
        left = 0.5 ** (max(0, now_ms - kept.at_ms) / 1_000 / _HALF_LIFE_S)
        self._slot_seconds = {owner: each * left for owner, each in kept.slot_seconds.items()}
        self.begun_ms = {(owner, pool): at_ms for owner, pool, at_ms in kept.begun}

    def note(self, claims: Iterable[Claim], *, now_s: float) -> None:
        """Add the running claims for the time since the last call."""
        passed_s = 0.0 if self._noted_s is None else max(0.0, now_s - self._noted_s)
        self._noted_s = now_s
        left = 0.5 ** (passed_s / _HALF_LIFE_S)
        self._slot_seconds = {owner: each * left for owner, each in self._slot_seconds.items()}
        for claim in claims:
            self._add(claim.owner, claim.slots * passed_s)

    def begin(self, job: WaitingJob, *, now_ms: int) -> None:
        """Count the start of a job."""
        self._add(job.owner, job.slots * _BEGIN_S)
        self.begun_ms[job.owner, job.pool] = now_ms

    def slots(self, owner: str) -> float:
        """Return how many slots an owner has used on average."""
        return self._slot_seconds.get(owner, 0.0) * math.log(2) / _HALF_LIFE_S

    def _add(self, owner: str, slot_seconds: float) -> None:
        self._slot_seconds[owner] = self._slot_seconds.get(owner, 0.0) + slot_seconds


def admit(
    waiting: Sequence[WaitingJob], running: Iterable[Claim], *, slots: Slots,
    quotas: Mapping[str, Quota], now_ms: int, past: PastUse | None = None,
) -> Admission:  # fmt: skip
    """Return the jobs that begin now.

    Args:
        waiting: The waiting jobs.
        running: The running jobs, including jobs that the service did not start.
        slots: The slots of the masters.
        quotas: The quotas by owner.
        now_ms: The time.
        past: The past use of owners; None for no use.
    """
    use = _Use(running, slots, quotas, past or PastUse())
    begun: list[int] = []
    reasons: dict[int, str] = {}
    left = list(waiting)
    reserved: dict[str, WaitingJob] = {}
    own: dict[tuple[str, str], WaitingJob] = {}
    while left:
        job = min(left, key=lambda each: use.order(each, now_ms))
        left.remove(job)
        reason = use.problem(job)
        first = reserved.get(job.pool) or own.get((job.pool, job.owner))
        if reason is None and first is not None:
            whose = first.job if first.owner == job.owner else "another owner's job"
            reason = f"waits for {whose}, which gets the next slots of {job.pool}"
        if reason is None:
            use.take(job.claim())
            begun.append(job.number)
            continue
        reasons[job.number] = reason
        waits_for_slots = use.owner_problem(job) is None
        if waits_for_slots and now_ms - job.asked_ms >= _RESERVING_MS:
            own.setdefault((job.pool, job.owner), job)
            if use.is_passed_over(job, now_ms):
                reserved.setdefault(job.pool, job)
    return Admission(begun=begun, reasons=reasons)


class _Use:
    """The present use, by master and by owner."""

    def __init__(
        self, running: Iterable[Claim], slots: Slots, quotas: Mapping[str, Quota], past: PastUse
    ) -> None:
        self._past = past
        self._slots = slots
        self._quotas = quotas
        self._by_pool: Counter[str] = Counter()
        self._by_owner: Counter[str] = Counter()
        for claim in running:
            self.take(claim)

    def take(self, claim: Claim) -> None:
        needed = self._slots_needed(claim.pool, claim.slots)
        self._by_pool[claim.pool] += needed
        self._by_owner[claim.owner] += needed

    def order(self, job: WaitingJob, now_ms: int) -> tuple[bool, float, int, int]:
        """Return a sort key: jobs with a reservation are first, the oldest of them first."""
        if self.is_passed_over(job, now_ms):
            return (False, 0.0, job.asked_ms, job.number)
        limit = self._quotas.get(job.owner, Quota()).slots or self._slots.of(job.pool)
        share = (self._by_owner[job.owner] + self._past.slots(job.owner)) / (limit or 1)
        return (True, share, job.asked_ms, job.number)

    def is_passed_over(self, job: WaitingJob, now_ms: int) -> bool:
        """Return whether a job has waited for long without a start of its owner's jobs."""
        since_ms = max(job.asked_ms, self._past.begun_ms.get((job.owner, job.pool), 0))
        return now_ms - since_ms >= _RESERVING_MS

    def problem(self, job: WaitingJob) -> str | None:
        return self.owner_problem(job) or self._pool_problem(job)

    def owner_problem(self, job: WaitingJob) -> str | None:
        limit = self._quotas.get(job.owner, Quota()).slots
        needed, used = self._slots_needed(job.pool, job.slots), self._by_owner[job.owner]
        if limit is None or used + min(needed, limit) <= limit:
            return None
        return f"needs {_count(needed)}; {job.owner} uses {used} of a quota of {limit}"

    def _pool_problem(self, job: WaitingJob) -> str | None:
        total = self._slots.of(job.pool)
        needed, used = self._slots_needed(job.pool, job.slots), self._by_pool[job.pool]
        if total is None or used + needed <= total:
            return None
        pool = "this machine" if job.pool == LOCAL else job.pool
        return f"needs {_count(needed)}; {max(total - used, 0)} of {total} slots on {pool} are free"

    def _slots_needed(self, pool: str, slots: int) -> int:
        """Return the slots that a job takes: at most all of its master, and at least one."""
        total = self._slots.of(pool)
        return slots if total is None else min(slots, max(total, 1))


def _count(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"
