"""Event time by shard, and the watermark: pure functions of sealed times.

Driver and tasks compute the same with them, and the driver loads no operator for that.

Source: ADR-0013 (watermarks by epoch).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bicycle_runtime.layouts.manifest import ShardTime, ShardTimes
from bicycle_runtime.operators.spec import WatermarkSpec
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN


def joined_times(*parts: Mapping[str, Mapping[str, ShardTime]]) -> ShardTimes:
    """Return the furthest time of each shard over all parts.

    The empty shard represents shards that a generator has not read yet; the first shard that
    appears replaces it. Driver and tasks must use the same rule, or they compute different
    watermarks.
    """
    joined: ShardTimes = {}
    for part in parts:
        for uid, shards in part.items():
            known = joined.setdefault(uid, {})
            for shard, time in shards.items():
                before = known.get(shard)
                known[shard] = time if before is None else _furthest(before, time)
    for known in joined.values():
        if len(known) > 1:
            known.pop("", None)
    return joined


def _furthest(first: ShardTime, second: ShardTime) -> ShardTime:
    return ShardTime(
        watermark_ms=max(first.watermark_ms, second.watermark_ms),
        event_ms=max(first.event_ms, second.event_ms),
        active_ms=max(first.active_ms, second.active_ms),
    )


def watermark_of(
    generators: Iterable[WatermarkSpec],
    times: Mapping[str, Mapping[str, ShardTime]],
    *,
    finished: Iterable[str],
    clock_ms: int,
) -> int:
    """Return the watermark downstream of generators; the caller prevents a decrease.

    1. Generators whose input has ended are ignored; if all have ended, it is ``WATERMARK_MAX``.
    2. A shard is idle if it had no record for the idle timeout of its strategy.
    3. The result is the minimum over the shards that are not idle.
    4. If all shards are idle, the result advances with the clock, from the watermark of the shard
       with the latest activity.

    Args:
        generators: The generators upstream of the operator.
        times: The shards of each generator.
        finished: Generators whose input has ended.
        clock_ms: The job's clock.
    """
    # 1. Generators whose input has ended are ignored; if all have ended, it is ``WATERMARK_MAX``.
    above, ended = list(generators), set(finished)
    counting = [spec for spec in above if spec.uid not in ended]
    if not counting:
        return WATERMARK_MAX if above else WATERMARK_MIN
    # 2. A shard is idle if it had no record for the idle timeout of its strategy.
    active: list[int] = []
    idle: list[ShardTime] = []
    for spec in counting:
        for time in times.get(spec.uid, {}).values():
            silent_ms = clock_ms - time.active_ms
            if spec.idle_timeout_ms is None or silent_ms < spec.idle_timeout_ms:
                active.append(time.watermark_ms)
            elif time.watermark_ms > WATERMARK_MIN:
                idle.append(time)
    # 3. The result is the minimum over the shards that are not idle.
    if active:
        return min(active)
    # 4. If all shards are idle, the result advances with the clock, from the watermark of the shard
    # with the latest activity.
    if not idle:
        return WATERMARK_MIN
    heard_ms = max(time.active_ms for time in idle)
    last = min(time.watermark_ms for time in idle if time.active_ms == heard_ms)
    return last + clock_ms - heard_ms


def before_end(
    generators: Iterable[WatermarkSpec],
    times: Mapping[str, Mapping[str, ShardTime]],
    *,
    clock_ms: int,
) -> int:
    """Return the watermark by records, as if no input had ended.

    The arguments are those of ``watermark_of``.
    """
    known = {
        uid: {shard: time for shard, time in shards.items() if time.watermark_ms > WATERMARK_MIN}
        for uid, shards in times.items()
    }
    return watermark_of(generators, known, finished=(), clock_ms=clock_ms)


def lagging(watermark: int, lag_ms: int) -> int:
    """Return the watermark of an operator that stays behind its generators.

    Args:
        watermark: The result of ``watermark_of``.
        lag_ms: How far it stays behind.
    """
    return watermark if watermark in (WATERMARK_MIN, WATERMARK_MAX) else watermark - lag_ms


def subtask_shard(subtask: int) -> str:
    """Return the shard of a generator behind an exchange."""
    return f"subtask {subtask}"


def source_shard(source: str, shard: str) -> str:
    """Return the shard of an assigner in the chain of a source."""
    return f"{source}: {shard}"
