"""The epochs of a checkpoint directory as plain data for a door to show."""

from __future__ import annotations

from dataclasses import dataclass, field

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.engine.epoch.stats import lowest_watermark, state_bytes
from bicycle_runtime.jobs.checkpoints.sealed_states import file_sizes
from bicycle_runtime.recovery.errors import EPOCH_UNKNOWN
from bicycle_runtime.recovery.history import EpochHistory, RetainedEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One epoch of a checkpoint directory.

    ``record_count`` are the records read since the job began, ``watermark_ms`` the least watermark
    of any operator (None while one has no watermark). Sizes are the sizes of the state files that
    the epoch names; epochs share files. ``damage`` is None for an epoch that is whole. With an
    unreadable manifest all fields behind ``damage`` are empty.
    """

    epoch: int
    is_published: bool
    damage: str | None = None
    is_put_aside: bool = False
    sealed_ms: int | None = None
    age_ms: int | None = None
    is_finished: bool = False
    record_count: int = 0
    watermark_ms: int | None = None
    base_bytes: int = 0
    delta_bytes: int = 0
    file_count: int = 0
    parallelism: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    state_bytes: dict[str, int] = field(default_factory=dict)


def report_checkpoints(
    storage: Storage, *, now_ms: int, epoch: int | None = None, is_thorough: bool = False
) -> list[EpochReport]:
    """Return a report on each epoch, the newest first.

    Args:
        storage: Checkpoint storage of the job.
        now_ms: The time from which ages are counted.
        epoch: Only this one.
        is_thorough: Read every state file and compare checksums, instead of sizes only.

    Raises:
        CHECKPOINT_MISSING: no epoch was ever sealed.
        EPOCH_UNKNOWN: the requested epoch does not exist.
    """
    history = EpochHistory(storage)
    found = history.retained(is_thorough=is_thorough)
    if not found:
        history.manifest()
    wanted = [each for each in found if epoch in (None, each.epoch)]
    if not wanted:
        known = [each.epoch for each in found]
        raise EPOCH_UNKNOWN(
            epoch=epoch, url=storage.url, known=known, known_text=", ".join(map(str, known))
        )
    return [_report(each, now_ms) for each in reversed(wanted)]


def _report(found: RetainedEpoch, now_ms: int) -> EpochReport:
    manifest = found.manifest
    if manifest is None:
        return EpochReport(
            epoch=found.epoch,
            is_published=found.is_published,
            damage=found.damage,
            is_put_aside=found.is_put_aside,
        )
    sizes = file_sizes(manifest.states.values())
    return EpochReport(
        epoch=found.epoch,
        is_published=found.is_published,
        damage=found.damage,
        is_put_aside=found.is_put_aside,
        sealed_ms=manifest.plan.now_ms,
        age_ms=max(0, now_ms - manifest.plan.now_ms),
        is_finished=manifest.plan.is_finished,
        record_count=manifest.event_count,
        watermark_ms=lowest_watermark(manifest.time),
        base_bytes=sum(size for size, is_base in sizes if is_base),
        delta_bytes=sum(size for size, is_base in sizes if not is_base),
        file_count=len(sizes),
        parallelism=dict(manifest.plan.parallelism),
        offsets={uid: dict(shards) for uid, shards in sorted(manifest.offsets.items())},
        state_bytes={
            uid: state_bytes({uid: state}) for uid, state in sorted(manifest.states.items())
        },
    )
