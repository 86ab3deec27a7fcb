"""Progress in each partition, with the part that only the next state contains.

The engine seals the offsets of read messages. The *start* of reading (a starting offset, a jump
over lost messages) was decided here, so it goes into the state until the partition is read: a
restart must not decide again, when the topic has changed. Pure: sends no request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bicycle_runtime.connectors.kafka.planning import Backlog


class Progress:
    """Positions and ends of the partitions that are read.

    Args:
        sealed: Offsets of the last epoch, also of partitions that are not read any more: they are
            kept, and a job that reads the topic again continues there.
        state: Result of ``state`` for it.
    """

    def __init__(self, sealed: Mapping[str, int], state: Mapping[str, Any]) -> None:
        self._decided: dict[str, int] = dict(state.get("positions", {}))
        self._known = {**sealed, **self._decided}
        self.topic_ids: dict[str, str] = dict(state.get("topics", {}))
        self.stops: dict[str, int] | None = state.get("stops")
        self.positions: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.is_sealed = True

    @property
    def is_blank(self) -> bool:
        """Return whether the job never ran."""
        return not self._known and not self.topic_ids

    def known(self) -> dict[str, int]:
        """Return every partition that was ever begun, with its next offset."""
        return dict(self._known)

    def topics(self) -> set[str]:
        """Return the topics that are read."""
        return {shard.rpartition("/")[0] for shard in self.positions}

    def has_topic(self, topic: str) -> bool:
        """Return whether a partition of a topic was ever begun."""
        return any(shard.rpartition("/")[0] == topic for shard in self._known)

    def resume(self, shard: str) -> None:
        """Resume reading a partition at its known position."""
        self.positions[shard] = self._known[shard]

    def decide(self, shard: str, position: int) -> None:
        """Begin, or continue, at an offset that no manifest has."""
        self._decided[shard] = self._known[shard] = self.positions[shard] = position
        self.is_sealed = False

    def drop(self, shard: str) -> None:
        """Do not read a partition any more; its offset is kept."""
        self.positions.pop(shard, None)
        self.ends.pop(shard, None)

    def identify(self, topic: str, identity: str) -> None:
        """Take note of which topic of this name is read."""
        if self.topic_ids.get(topic) != identity:
            self.topic_ids[topic] = identity
            self.is_sealed = False

    def stop_at(self, ends: Mapping[str, int]) -> None:
        """Set where bounded reading ends."""
        self.stops = dict(ends)
        self.is_sealed = False

    def stop_before(self, shard: str, end: int) -> None:
        """Lower where bounded reading of a partition ends."""
        self.stops = {**(self.stops or {}), shard: end}
        self.is_sealed = False

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on; all that was decided before is in the manifest now."""
        for shard, end in ends.items():
            self._decided.pop(shard, None)
            self._known[shard] = end
            if shard in self.positions:
                self.positions[shard] = end
        self.is_sealed = True

    def snapshot(self, ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the state beyond offsets, as of an epoch that read up to ``ends``."""
        decided = {shard: at for shard, at in self._decided.items() if shard not in ends}
        state: dict[str, Any] = {"topics": dict(self.topic_ids)}
        if decided:
            state["positions"] = decided
        if self.stops is not None:
            state["stops"] = self.stops
        return state

    def backlogs(self, unreachable: Collection[str]) -> list[Backlog]:
        """Return all partitions in discovery order; unreachable ones are empty."""
        return [
            Backlog(
                shard=shard,
                start=position,
                end=position if shard in unreachable else max(position, self._end(shard)),
            )
            for shard, position in self.positions.items()
        ]

    def is_finished(self) -> bool:
        """Return whether bounded reading has reached its end everywhere."""
        return self.stops is not None and all(map(self.is_finished_at, self.stops))

    def is_finished_at(self, shard: str) -> bool:
        """Return whether a partition is read to its end, so that its fate is irrelevant."""
        stop = None if self.stops is None else self.stops.get(shard, 0)
        return stop is not None and self.positions.get(shard, stop) >= stop

    def _end(self, shard: str) -> int:
        end = self.ends.get(shard, 0)
        if self.stops is None:
            return end
        return min(end, self.stops.get(shard, 0))
