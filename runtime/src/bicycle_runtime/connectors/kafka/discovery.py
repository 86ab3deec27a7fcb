"""Discovery of new and removed partitions, at the start and at runtime.

Policy for where a partition begins: a job that never ran, and a topic that a later version of the
job adds by name, begin at ``starting_offsets``; whatever appears by itself later (partitions,
topics of the pattern) begins at its earliest offset, so that nothing of it is left out.

A removal by retention is certain at once, and so is a topic that was deleted and created again
(with another id). Ids are compared at each look, once a second while there is input, and at once
when an end moves back, a partition is missing, or a task cannot read its slice, and before an epoch
with messages is sealed. An end before our
position, or an unknown partition, may be a broker that just starts: only after a while it is taken
for a loss.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Literal

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.kafka.cluster import Brokers, ClusterSilentError, IdentityQuery
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_UNREACHABLE,
    KafkaTopicReplacedError,
    topic_missing,
)
from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_runtime.connectors.kafka.reader import accept_loss, partition_of
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.kafka.options import KafkaSourceOptions
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.offsets import EARLIEST, LATEST

_logger = logging.getLogger(__name__)
_REQUEST_S = 1.0
_AGAIN_S = 2.0
_IDENTITY_INTERVAL_S = 1.0
_IDENTITY_WAIT_S = 0.05
# Before a seal: longer than the request itself may take.
_SEAL_WAIT_S = 5.0
DOUBT_S = 10.0
_Doubt = Literal["absent", "short"]  # No answer, or an end before the position.
_CREATED_AGAIN = "the topic was deleted and recreated"


class Discovery:
    """Keeps the partitions of a source's progress complete and its positions valid.

    Args:
        cluster: Answers.
        progress: Is changed.
        options: Topics, start offsets, policies, intervals.
        clock: For intervals between looks.
    """

    def __init__(
        self,
        cluster: Brokers,
        progress: Progress,
        options: KafkaSourceOptions,
        *,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._options = options
        self._starting = options.starting_offsets
        self._vertex = cluster.properties.vertex
        self._clock = clock
        self._was_blank = progress.is_blank
        self._is_first = True
        self._looked_s = self._next_look_s = 0.0
        self._doubts: dict[str, tuple[_Doubt, float]] = {}  # Each with the time of its begin.
        self._identities: IdentityQuery | None = None
        self._next_identities_s = 0.0
        self._must_compare = False

    def start(self) -> None:
        """Begin with the partitions that are known, then look.

        Raises:
            ClusterSilentError: no broker answers, and the job ran before: it waits.
            KAFKA_UNREACHABLE: no broker answers a job that never ran.
            KafkaAccessError: a broker refused it.
            KAFKA_TOPIC_MISSING: a named topic does not exist.
            CONNECTOR_OPTION_WRONG: an offset to start at is named for an absent partition.
            KafkaOffsetsLostError: see ``look``.
        """
        for shard in sorted(self._progress.known(), key=partition_of):
            if self._options.reads(partition_of(shard)[0]):
                self._progress.resume(shard)
        if not self._was_blank:
            try:
                self.look()
            except ClusterSilentError as error:
                self._raise_refusal(error)
                raise
            return
        waits = SystemClock()  # Real time passes in real requests.
        deadline_s = waits.monotonic() + self._options.connect_timeout_ms / 1_000
        while True:
            try:
                self.look()
                return
            except ClusterSilentError as error:
                self._raise_refusal(error)
                if waits.monotonic() > deadline_s:
                    raise KAFKA_UNREACHABLE(
                        vertex=self._vertex,
                        brokers=self._options.brokers,
                        waited_ms=self._options.connect_timeout_ms,
                        reason=error.reason,
                    ) from None

    def _raise_refusal(self, error: ClusterSilentError) -> None:
        """Raise our error if a certificate or the login was refused."""
        if error.refusal is not None:
            raise self._cluster.properties.error(error.refusal, "the connection") from None

    def is_due(self) -> bool:
        """Return whether it is time to look."""
        now_s = self._clock.monotonic()
        if any(now_s - since_s >= DOUBT_S for _, since_s in self._doubts.values()):
            return now_s >= min(self._looked_s + _AGAIN_S, self._next_look_s)
        return now_s >= self._next_look_s

    def look(self) -> None:
        """Look once.

        1. Topics: the existing topics, with all their partitions.
        2. Partitions: new ones begin by the policy above.
        3. Positions: each must be between the first remaining offset and the end.

        Raises:
            ClusterSilentError: no broker answered, or none for a partition that must be known.
            KAFKA_TOPIC_MISSING: a named topic that was never read does not exist.
            CONNECTOR_OPTION_WRONG: see ``start``.
            KafkaOffsetsLostError: the next message is removed, and the policy is to fail.
        """
        self._looked_s = self._clock.monotonic()
        self._next_look_s = self._looked_s + _AGAIN_S
        # 1. Topics: the existing topics, with all their partitions.
        names = self._names()
        counts = self._cluster.partition_counts(names, _REQUEST_S)
        self._refuse_missing([name for name in names if name not in counts])
        # Before the offsets: an id that is newer than they are would hide that they are obsolete.
        identities = self._ask_identities(counts)
        shards = self._shards(counts)
        if self._was_blank and self._is_first:
            self._refuse_unknown_starts(shards)
        lows, ends = (self._cluster.ask(shards, at).result() for at in (EARLIEST, LATEST))
        # 2. Partitions: new ones begin by the policy above.
        new = [shard for shard in shards if shard not in self._progress.positions]
        silent = [shard for shard in new if shard not in lows or shard not in ends]
        if silent and self._was_blank and self._is_first:
            raise ClusterSilentError(f"partition {silent[0]} has no leader")
        self._begin([shard for shard in new if shard not in silent], lows, ends)
        # 3. Positions: each must be between the first remaining offset and the end.
        renewed = self._renew(identities, set(shards) - (lows.keys() & ends.keys()))
        self._check_positions(shards, lows, ends, renewed=renewed)
        is_bound = self._bind(shards, ends)
        if not silent:
            self._is_first = False
        if is_bound and not silent:
            self._next_look_s = self._looked_s + self._options.discovery_interval_ms / 1_000

    def doubt(self, ends: Mapping[str, int]) -> None:
        """Note the newest ends: partitions that are absent or end early are doubtful."""
        for shard, position in self._progress.positions.items():
            doubt: _Doubt | None = None
            if not self._progress.is_finished_at(shard) and ends.get(shard, -1) < position:
                doubt = "short" if shard in ends else "absent"
            if doubt is not None and self._doubts.get(shard, (None,))[0] != doubt:
                self.compare_soon()
            self._is_certain(shard, doubt)

    def compare_soon(self) -> None:
        """Compare the ids of topics at the next poll: one may have been created again."""
        self._must_compare = True

    def compare_identities(self, *, has_input: bool) -> None:
        """Request the ids of topics if due, and look at once for partitions on a change.

        Called at each poll: before an epoch the answer must not be older than a second. Waits 50 ms
        at most.
        """
        now_s = self._clock.monotonic()
        if self._identities is None:
            is_due = has_input and now_s >= self._next_identities_s
            if not is_due and not self._must_compare:
                return
            self._must_compare = False
            self._next_identities_s = now_s + _IDENTITY_INTERVAL_S
            self._identities = self._cluster.ask_identities(sorted(self._progress.topics()))
        if self._identities.is_done(_IDENTITY_WAIT_S):
            query, self._identities = self._identities, None
            if self._find_changes(query.result()):
                self._next_look_s = now_s

    def require_same_topics(self, topics: Iterable[str]) -> None:
        """Compare the ids of topics that an epoch has read, before the epoch is sealed.

        Waits as long as a broker may take for a response. Where none answers, it is an outage: the
        comparison after it has to find a change.

        Raises:
            KafkaTopicReplacedError: a topic was created again.
            KafkaOffsetsLostError: likewise, and the policy is to fail.
        """
        if not (names := sorted(topics)):
            return
        query = self._cluster.ask_identities(names)
        query.is_done(_SEAL_WAIT_S)
        self._next_identities_s = self._clock.monotonic() + _IDENTITY_INTERVAL_S
        if changed := sorted(self._find_changes(query.result())):
            if self._options.on_data_loss == "fail":
                with contextlib.suppress(ClusterSilentError):  # The restart looks again.
                    self.look()
            raise KafkaTopicReplacedError(vertex=self._vertex, topic=changed[0])

    def _check_positions(
        self,
        shards: list[str],
        lows: Mapping[str, int],
        ends: Mapping[str, int],
        *,
        renewed: set[str],
    ) -> None:
        existing = set(shards)
        for shard, position in list(self._progress.positions.items()):
            if self._progress.is_finished_at(shard):
                continue
            is_renewed = partition_of(shard)[0] in renewed
            if shard not in existing:
                if is_renewed or self._is_certain(shard, "absent"):
                    self._lose(shard, -1, -1, "the partition no longer exists")
                continue
            low, end = lows.get(shard), ends.get(shard)
            if low is None or end is None:
                continue
            if is_renewed:
                self._lose(shard, low, end, _CREATED_AGAIN)
            elif position < low:
                self._lose(shard, low, end, "it was removed by retention")
            elif self._is_certain(shard, "short" if position > end else None):
                self._lose(shard, low, end, "the partition ends before this offset")

    def _is_certain(self, shard: str, doubt: _Doubt | None) -> bool:
        """Return whether one doubt lasts long enough to be a loss.

        Another doubt starts its own clock: the first answer after a long silence is not certain.
        """
        if doubt is None:
            self._doubts.pop(shard, None)
            return False
        now_s = self._clock.monotonic()
        known, since_s = self._doubts.get(shard, (None, now_s))
        if known != doubt:
            since_s = now_s
        self._doubts[shard] = doubt, since_s
        return now_s - since_s >= DOUBT_S

    def _names(self) -> list[str]:
        if self._options.topic_pattern is None:
            return sorted(self._options.topics)
        return [name for name in self._cluster.names(_REQUEST_S) if self._options.reads(name)]

    def _refuse_missing(self, missing: list[str]) -> None:
        """Refuse names that lead to nothing; a topic that was read may come back."""
        for name in missing:
            if not self._progress.has_topic(name):
                raise topic_missing(self._vertex, name, self._cluster.names(_REQUEST_S))

    def _refuse_unknown_starts(self, shards: list[str]) -> None:
        """Refuse start offsets of missing partitions, which would be ignored later."""
        unknown = sorted(self._starting.offsets.keys() - set(shards), key=partition_of)
        if unknown:
            topic, number = partition_of(unknown[0])
            raise CONNECTOR_OPTION_WRONG(
                vertex=self._vertex,
                connector="kafka",
                name="starting_offsets",
                problem=f"it names partition {number} of topic {topic!r}, which does not exist",
                hint="correct or remove the number; nothing was read",
            )

    def _shards(self, counts: Mapping[str, int]) -> list[str]:
        found = [f"{name}/{n}" for name in sorted(counts) for n in range(counts[name])]
        stops = self._progress.stops
        if not self._options.bounded or stops is None:
            return found
        return [shard for shard in found if shard in stops]

    def _ask_identities(self, topics: Iterable[str]) -> dict[str, str]:
        query = self._cluster.ask_identities(sorted(topics))
        query.is_done(_REQUEST_S)
        self._next_identities_s = self._clock.monotonic() + _IDENTITY_INTERVAL_S
        return query.result()

    def _renew(self, identities: Mapping[str, str], silent: set[str]) -> set[str]:
        """Return the topics that were created again, and note their ids.

        Raises:
            ClusterSilentError: a position in such a topic is obsolete, but there is no answer to
                replace it. Once the id is noted, nothing would tell that it is obsolete.
        """
        renewed = self._find_changes(identities)
        for shard in sorted(silent & self._progress.positions.keys(), key=partition_of):
            if partition_of(shard)[0] in renewed and not self._progress.is_finished_at(shard):
                self._next_look_s = self._looked_s  # At each poll: until then, nothing is read.
                raise ClusterSilentError(f"partition {shard} has no leader")
        for name, identity in identities.items():
            self._progress.identify(name, identity)
        return renewed

    def _bind(self, shards: list[str], ends: Mapping[str, int]) -> bool:
        """Return whether it is known where bounded reading ends, or it is not bounded.

        Without an answer for each partition, nothing is set: one without a stop is not read.
        """
        if not self._options.bounded or self._progress.stops is not None:
            return True
        wanted = {*shards, *self._progress.positions}
        if wanted <= ends.keys():
            stops = self._cluster.high_ends(shards)
            if wanted <= stops.keys():
                self._progress.stop_at(stops)
                return True
        return False

    def _find_changes(self, identities: Mapping[str, str]) -> set[str]:
        known = self._progress.topic_ids
        return {name for name, found in identities.items() if known.get(name, found) != found}

    def _begin(self, shards: list[str], lows: Mapping[str, int], ends: Mapping[str, int]) -> None:
        begun = {partition_of(shard)[0] for shard in self._progress.known()}
        is_named = self._options.topic_pattern is None
        by_option = [
            shard
            for shard in shards
            if self._is_first
            and (self._was_blank or is_named)
            and partition_of(shard)[0] not in begun
        ]
        starts = {**lows, **self._choose(by_option, lows, ends)}
        for shard in shards:
            self._progress.decide(shard, starts[shard])
            log_event(
                _logger,
                "kafka_partition_found",
                vertex=self._vertex,
                partition=shard,
                start=starts[shard],
            )

    def _choose(
        self, shards: list[str], lows: Mapping[str, int], ends: Mapping[str, int]
    ) -> dict[str, int]:
        """Return where partitions start by the option.

        Raises:
            ClusterSilentError: there is no answer where a time is in a partition.
        """
        match self._starting.mode:
            case "earliest":
                return {shard: lows[shard] for shard in shards}
            case "latest":
                return {shard: ends[shard] for shard in shards}
            case "offsets":
                return {s: self._starting.offsets.get(s, lows[s]) for s in shards}
            case "timestamp":
                found = self._cluster.ask(shards, self._starting.timestamp_ms).result()
                for shard in shards:
                    if shard not in found:  # Unlike -1: all its messages are older.
                        raise ClusterSilentError(f"partition {shard} has no leader")
                return {s: found[s] if found[s] >= 0 else ends[s] for s in shards}

    def _lose(self, shard: str, low: int, high: int, problem: str) -> None:
        """Apply the policy to a position that is not in the partition any more."""
        position = self._progress.positions[shard]
        policy = self._options.on_data_loss
        go_on = low if policy == "earliest" else high
        # Offsets of one topic are not valid for another, nor after a partition shrank.
        is_known = go_on > position and problem != _CREATED_AGAIN
        accept_loss(
            shard, policy, vertex=self._vertex, next=position, low=low, high=high, problem=problem,
            record_count=go_on - position if is_known else None,
        )  # fmt: skip
        self._doubts.pop(shard, None)
        if high < 0:
            self._progress.drop(shard)
            return
        self._progress.decide(shard, go_on)
        stop = (self._progress.stops or {}).get(shard)
        if stop is not None and (high < stop or problem == _CREATED_AGAIN):
            self._progress.stop_before(shard, high)
