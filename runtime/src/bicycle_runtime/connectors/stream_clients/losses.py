"""Messages of a stream that were removed before a job read them.

A range that a task reads has a count, so that nothing is missed within an epoch. This module finds
messages removed between epochs, or while the job did not run: a stream that was trimmed behind the
position, one that was made again, and one that was deleted. Messages deleted one by one are no
loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.connectors.stream_clients.backends import Extent
from bicycle_sdk.quantities import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Messages of a shard that are gone. ``count`` is None where it is not known.

    ``next`` is the position from which to read on. With ``is_replaced`` the stream that was read is
    not there any more.
    """

    problem: str
    count: int | None
    next: int
    is_replaced: bool = True


class _Known(msgspec.Struct, frozen=True):
    """The number of messages before the position, and in all, when last certain."""

    read_count: int
    added_count: int
    deletion: str


class LossWatch:
    """A comparison of the messages in shards with the messages read.

    Args:
        state: As ``snapshot`` returned it, or nothing.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._known = msgspec.convert(state, prepare_type(dict[str, _Known]))
        self._ends: dict[str, int] = {}

    def snapshot(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """Return plain JSON as of the end of an epoch.

        Args:
            counts: How many messages the epoch reads of each shard.
        """
        found: dict[str, Any] = msgspec.to_builtins(self._behind(counts))
        return found

    def sealed(self, counts: Mapping[str, int]) -> None:
        """Take note that an epoch is sealed."""
        self._known = self._behind(counts)

    def _behind(self, counts: Mapping[str, int]) -> dict[str, _Known]:
        return {
            shard: msgspec.structs.replace(
                known, read_count=known.read_count + counts.get(shard, 0)
            )
            for shard, known in self._known.items()
        }

    def see(self, shard: str, position: int, extent: Extent) -> Loss | None:
        """Return the messages lost between a shard's position and its end, or None.

        1. A stream whose last message was before the position was made again.
        2. One that has had fewer messages than it had was made again as well.
        3. If a stream has only messages behind the position, the unread and absent ones were
           trimmed.
        """
        known = self._known.get(shard)
        self._ends[shard] = extent.end
        # 1. A stream whose last message was before the position was made again.
        if extent.last_end is not None and extent.last_end < position:
            self._known.pop(shard, None)
            unread = None if known is None else known.added_count - known.read_count
            problem = f"was recreated: its last message is {extent.last_end - 1}"
            return Loss(problem=problem, count=unread or None, next=0)
        if extent.added_count is None:
            return None
        removed_count = extent.added_count - extent.count
        loss = None
        # 2. One that has had fewer messages than it had was made again as well.
        if known is not None and extent.added_count < known.added_count:
            unread = known.added_count - known.read_count
            if unread > 0:
                loss = Loss(problem="was recreated", count=unread, next=position)
            known = None
        is_behind = not extent.count or extent.first >= position
        if position >= (extent.last_end or 0) or (extent.count and position >= extent.end):
            known = _Known(extent.added_count, extent.added_count, extent.deletion)
        elif known is None:
            if not is_behind:
                return loss  # How many of its messages were read is not known.
            known = _Known(removed_count, extent.added_count, extent.deletion)
        # 3. If a stream has only messages behind the position, the unread and absent ones were
        # trimmed.
        elif is_behind:
            trimmed = removed_count - known.read_count
            if trimmed > 0 and extent.deletion == known.deletion:
                problem = f"was trimmed and lost {amount(trimmed, 'message')}"
                loss = Loss(problem=problem, count=trimmed, next=position, is_replaced=False)
            known = _Known(removed_count, extent.added_count, extent.deletion)
        self._known[shard] = msgspec.structs.replace(known, added_count=extent.added_count)
        return loss

    def miss(self, shard: str, position: int, end: int) -> Loss | None:
        """Return the lost messages of a shard that its backend no longer has, or None.

        Args:
            shard: Its name.
            position: The next position to read.
            end: Where it must be read up to, 0 where that is not known.
        """
        known, end = self._known.pop(shard, None), max(end, self._ends.pop(shard, 0))
        if position >= end:
            return None
        unread = None if known is None else known.added_count - known.read_count
        return Loss(problem="is gone", count=unread or None, next=position)
