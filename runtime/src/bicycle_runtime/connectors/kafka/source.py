"""The Kafka source on the driver: available offsets, and an epoch's share.

Shards are partitions, named ``topic/partition``; offsets are Kafka's. Progress is in the manifest
only: offsets are reported to the consumer group afterwards, and no group is joined. Messages before
the last stable offset are readable (``read_committed``, the default). An outage of the brokers is
no error: the source has no input until one answers again.

The age of unread messages is derived from the times at which the ends of partitions were seen.
Timestamps of messages are not read: that would take a fetch for each partition, and producers set
them at will. Messages present at the start of the run wait from then on.

Published offsets are reported to a consumer group, for tools that show lag. Nothing depends on it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from bicycle_runtime.connectors.kafka.cluster import Brokers, ClusterSilentError, OffsetQuery
from bicycle_runtime.connectors.kafka.discovery import Discovery
from bicycle_runtime.connectors.kafka.formats import MessageDecoder, key_format, value_format
from bicycle_runtime.connectors.kafka.listening import Listener
from bicycle_runtime.connectors.kafka.open_transactions import OpenTransactions
from bicycle_runtime.connectors.kafka.planning import plan_slices
from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_runtime.connectors.kafka.reader import KafkaReader, partition_of
from bicycle_runtime.connectors.kafka.settings import ClientProperties, checked_properties
from bicycle_runtime.connectors.kafka.topics import made_topics
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    FollowsPublication,
    Guarantee,
    Lag,
    ReadsOn,
    RereadsEarlierSlices,
    Slice,
    SnapshotsState,
    Source,
    SourceStatus,
    StartsBeforeSinks,
    total_lag,
)
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.kafka.options import KafkaSourceOptions, LossPolicy
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.failures import Rights, is_refusal
from bicycle_streams.kafka.offsets import LATEST

_INTERVAL_S = 1.0
_LAST_WAIT_S = 2.0
_STEP_S = 0.05

_SEEN_COUNT_MAX = 512

_logger = logging.getLogger(__name__)
NEXT_POLL_MS = 10
_IDLE_AFTER_S = 0.5
_IDLE_POLL_MS = 500  # The listener ends the pause before that.
_OUTAGE_POLL_MS = 200
_ANSWER_WAIT_S = 0.05  # An answer takes 0.5 to 3 ms.
_ANSWER_WAIT_MAX_S = 0.5  # The epoch loop stops no longer, however slow answers usually are.
_SILENCE_S = 2.0
_ANY_BYTES = 1 << 62
_NO_LAG = Lag(record_count=0, age_ms=0)


class GroupReporter:
    """A reporter of the newest offsets, at most once a second, one at a time.

    ``report`` is called by the thread that publishes, everything else by the thread that polls.

    Args:
        properties: With the group, and the user unless a certificate identifies it.
    """

    def __init__(self, properties: ClientProperties) -> None:
        self._vertex, self._group = properties.vertex, properties.plain["group.id"]
        self._user = properties.plain.get("sasl.username")
        self._clock = SystemClock()
        self._lock = Lock()
        self._waiting: dict[str, int] = {}
        self._is_under_way = False
        self._sent_s = -_INTERVAL_S
        self._has_failed = False

    def report(self, offsets: Mapping[str, int]) -> None:
        """Take note of published offsets."""
        with self._lock:
            self._waiting.update(offsets)

    def send_due(self, cluster: Brokers) -> None:
        """Send the waiting report, unless the last one was recent or is in progress."""
        cluster.serve()
        if self._clock.monotonic() - self._sent_s >= _INTERVAL_S:
            self._send(cluster)

    def send_last(self, cluster: Brokers) -> None:
        """Send the waiting report, and wait a moment, unless the last one failed."""
        deadline_s = self._clock.monotonic() + _LAST_WAIT_S
        while not self._has_failed and (self._is_under_way or self._waiting):
            self._send(cluster)
            if self._clock.monotonic() > deadline_s:
                self.note_result(KafkaError(KafkaError._TIMED_OUT))
            cluster.serve(_STEP_S)

    def note_result(self, error: KafkaError | None) -> None:
        """Note the result of a report; the first of several failures is logged."""
        self._is_under_way = False
        if error is not None and not self._has_failed:
            lack = Rights(group=self._group).lack(error, self._user) if is_refusal(error) else None
            log_event(
                _logger,
                "kafka_offsets_not_reported",
                level=logging.WARNING,
                vertex=self._vertex,
                group=self._group,
                reason=error.str(),
                fix=lack.hint if lack else None,
            )
        self._has_failed = error is not None

    def _send(self, cluster: Brokers) -> None:
        if self._is_under_way:
            return
        with self._lock:
            offsets, self._waiting = self._waiting, {}
        if not offsets:
            return
        self._sent_s = self._clock.monotonic()
        self._is_under_way = True
        try:
            cluster.report(offsets)
        except KafkaException as error:
            self.note_result(error.args[0])


class WaitingTimes:
    """Remembers for each partition at which times it had grown to which ends.

    Args:
        clock: Returns the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def see(self, shard: str, end: int) -> None:
        """Take note of the end of a partition, as of now; one that shrank is another one."""
        seen = self._seen.setdefault(shard, deque())
        if seen and seen[-1][0] > end:
            seen.clear()
        if not seen or seen[-1][0] < end:
            seen.append((end, self._clock.monotonic()))
        if len(seen) > _SEEN_COUNT_MAX:  # Each second one takes the time of the one before it.
            pairs = list(seen)
            merged = [
                (later[0], earlier[1])
                for earlier, later in zip(pairs[::2], pairs[1::2], strict=False)
            ]
            self._seen[shard] = deque([*merged, *pairs[2 * len(merged) :]])

    def lag(self, shard: str, *, position: int, end: int) -> Lag:
        """Return the unread input from a position on, and the age of its first message."""
        seen = self._seen.get(shard, deque())
        while seen and seen[0][0] <= position:
            seen.popleft()
        if end <= position:
            return Lag(record_count=0, age_ms=0)
        age_s = self._clock.monotonic() - seen[0][1] if seen else 0.0
        return Lag(record_count=end - position, age_ms=round(age_s * 1000))


class KafkaSource(
    SnapshotsState, StartsBeforeSinks, RereadsEarlierSlices, FollowsPublication, ReadsOn, Source
):
    """Reads topics of Kafka, exactly once; endless unless ``bounded`` is set."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = KafkaSourceOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(KafkaSourceOptions, spec)
        options = self._options
        self._values = value_format(
            spec, str(options.value_format or ""), options.value_format_options
        )
        self._keys = key_format(spec, str(options.key_format), options.key_format_options)
        self.gives_fields = MessageDecoder(self._values, self._keys).give_fields()
        given = checked_properties(
            options.client_properties(), vertex=spec.vertex_id, reserved=options.reserved
        )
        cluster = {"bootstrap.servers": options.brokers, "group.id": options.group_id}
        self._properties = given.with_defaults(cluster)
        self._reporter = GroupReporter(self._properties)
        self._cluster: Brokers | None = None
        self._listener: Listener | None = None
        self._query: OffsetQuery | None = None
        self._asked_s = 0.0
        self._is_query_fresh = False  # Whether no epoch was sealed since it was asked.
        self._answered: set[str] = set()  # Partitions with a fresh answer.
        self._usual_s = 0.0  # How long the last answer took.
        self._planned: dict[str, int] = {}  # Where the slices of the epoch begin.
        self._silent_since_s: float | None = None
        self._unreachable: set[str] = set()

    def is_fed_by(self, made: Collection[str]) -> bool:
        """Return whether the job itself creates a topic that is read.

        Brokers are not compared: there are many ways to name the brokers of one cluster.
        """
        return any(map(self._options.reads, made_topics(made)))

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Find the partitions; a job that ran before starts with its known ones.

        Raises:
            KAFKA_UNREACHABLE: the job never ran, and no broker answers.
            KAFKA_TOPIC_MISSING: a named topic does not exist.
            KafkaOffsetsLostError: the next message was removed, and the policy is to fail.
        """
        self._clock = services.clock
        self._progress = Progress(offsets, state)
        self._waiting = WaitingTimes(services.clock)
        self._open_transactions = OpenTransactions(
            self._progress,
            services.clock,
            limit_ms=self._options.transaction_wait_ms,
            vertex=self.spec.vertex_id,
        )
        self._cluster = Brokers(self._properties, on_reported=self._reporter.note_result)
        if services.wake is not None and not self._options.bounded:
            self._listener = Listener(self._properties, services.wake)
        self._busy_s = self._clock.monotonic()
        self._discovery = Discovery(self._cluster, self._progress, self._options, clock=self._clock)
        try:
            self._discovery.start()
        except ClusterSilentError as error:
            self._note_silence(error.reason)

    def poll(self) -> SourceStatus:
        """Request the ends of all partitions, and now and then for new ones."""
        assert self._cluster is not None, "start must be called first"
        self._reporter.send_due(self._cluster)
        if not self._is_resting():
            try:
                if self._take_ends(self._cluster):
                    is_heard = self._has_leaders()
                    self._compare_topics()
                    if is_heard:  # Not before: the look may fail at each poll.
                        self._note_answer()
            except ClusterSilentError as error:
                self._note_silence(error.reason)
        is_silent = self._silent_since_s is not None
        backlogs = self._progress.backlogs(self._unreachable)
        waiting = frozenset(backlog.shard for backlog in backlogs if backlog.start < backlog.end)
        lags = {
            backlog.shard: self._waiting.lag(backlog.shard, position=backlog.start, end=backlog.end)
            for backlog in self._progress.backlogs(())
            if backlog.shard in self._progress.ends
        }
        has_input = bool(waiting and not is_silent) or not self._progress.is_sealed
        if has_input or is_silent:
            self._busy_s = self._clock.monotonic()
        nothing = Lag() if self._progress.positions else _NO_LAG  # Not asked yet; no topic yet.
        return SourceStatus(
            # An epoch without slices seals the decision, before anything is read.
            has_input=has_input,
            is_finished=self._progress.is_finished() and self._progress.is_sealed,
            lag=total_lag(lags.values() or [nothing]),
            next_poll_ms=_OUTAGE_POLL_MS if is_silent else self._idle_poll_ms(),
            waiting_shards=waiting,
            unknown_shards=self._unknown_shards(),
            is_bounded=self._options.bounded,
            is_reachable=not is_silent and not self._unreachable,
            shard_lags=lags,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Take a fair share of each partition whose end is known."""
        if self._silent_since_s is not None:
            return []
        planned = plan_slices(self._progress.backlogs(self._unreachable), budget)
        self._planned = {part.shard: part.start for part in planned if part.end > part.start}
        return planned

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on; meanwhile messages may have come anywhere."""
        if any(ends.get(shard, -1) == start for shard, start in self._planned.items()):
            self._discovery.compare_soon()  # A task has found that offsets of its slice are gone.
        self._planned = {}
        self._progress.sealed(ends)
        self._answered.clear()
        self._is_query_fresh = False

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the ids of topics, undecided positions, and the stop offsets.

        Raises:
            KafkaTopicReplacedError: messages of the epoch may be of a new topic.
            KafkaOffsetsLostError: likewise, and the policy is to fail.
        """
        read = {part.shard for part in planned if ends.get(part.shard, -1) > part.start}
        self._discovery.require_same_topics({partition_of(shard)[0] for shard in read})
        return self._progress.snapshot(ends)

    def reader(self) -> KafkaReader:
        """Return a reader that contains secrets; its pickled form is confidential."""
        return self._reader(self._options.on_data_loss)

    def rereader(self, services: DriverServices) -> KafkaReader:  # needs no storage
        """Return a reader for which removed messages are an error."""
        return self._reader("fail")

    def reached_slice(self, part: Slice, end: int) -> Slice:
        """Return a slice that goes to this end, whatever its size."""
        return replace(part, end=end, details={**part.details, "bytes": _ANY_BYTES})

    def _reader(self, on_data_loss: LossPolicy) -> KafkaReader:
        return KafkaReader(
            self._properties.bound(),
            values=self._values,
            keys=self._keys,
            on_data_loss=on_data_loss,
        )

    def stop(self) -> None:
        """Report the last published offsets."""
        if self._listener is not None:
            self._listener.close()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            if self._silent_since_s is None:
                self._reporter.send_last(cluster)
            cluster.close()

    def published(self, offsets: Mapping[str, int]) -> None:
        """Report to the consumer group."""
        positions = self._progress.positions
        self._reporter.report({s: at for s, at in offsets.items() if s in positions})

    def describe(self, shard: str, offset: int) -> str:
        """Return topic, partition and offset in words."""
        topic, partition = partition_of(shard)
        return f"topic {topic} partition {partition} offset {offset}"

    def _is_resting(self) -> bool:
        """Return whether the listener would have noticed any change by now."""
        if self._listener is None or self._silent_since_s is not None:
            return False
        is_known = self._query is None and not self._unknown_shards()
        age_ms = (self._clock.monotonic() - self._asked_s) * 1_000
        is_heard = self._listener.is_waiting_in(self._progress.positions)
        return is_known and is_heard and age_ms < _IDLE_POLL_MS

    def _idle_poll_ms(self) -> int:
        """Return the time of the next poll; an idle source waits to be woken."""
        if self._listener is None or self._unknown_shards():
            return NEXT_POLL_MS
        if not self._listener.is_waiting_in(self._progress.positions):
            if self._clock.monotonic() - self._busy_s < _IDLE_AFTER_S:
                return NEXT_POLL_MS
            self._listener.listen(self._progress.positions)
        return _IDLE_POLL_MS

    def _unknown_shards(self) -> frozenset[str]:
        """Return the partitions without an answer that is newer than the last epoch."""
        progress = self._progress
        unknown = progress.positions.keys() - self._answered
        return frozenset(shard for shard in unknown if not progress.is_finished_at(shard))

    def _take_ends(self, cluster: Brokers) -> bool:
        """Take answers to the question for ends; return whether there was one.

        The answer to a question of before the last epoch is taken, and the question is asked again.

        Raises:
            ClusterSilentError: no answer for too long.
        """
        deadline_s = cluster.now_s() + self._answer_wait_s()
        is_answered = False
        while not is_answered or self._unknown_shards():
            if self._query is None:
                self._query = cluster.ask(self._progress.positions, LATEST)
                self._asked_s = self._clock.monotonic()
                self._is_query_fresh = True
            if not self._query.is_done(max(deadline_s - cluster.now_s(), 0)):
                if self._clock.monotonic() - self._asked_s > _SILENCE_S:
                    raise ClusterSilentError("no response for two seconds")
                break
            query, self._query = self._query, None
            self._note_ends(query.result(), is_fresh=self._is_query_fresh)
            self._usual_s = query.duration_s
            is_answered = True
            if self._is_query_fresh:
                break  # Partitions that are not in it have no leader now.
        return is_answered

    def _compare_topics(self) -> None:
        """Stop reading topics that were created again, and look for partitions."""
        backlogs = self._progress.backlogs(())
        has_input = any(backlog.start < backlog.end for backlog in backlogs)
        self._discovery.compare_identities(has_input=has_input)
        if self._discovery.is_due():
            self._discovery.look()
        self._open_transactions.look()

    def _answer_wait_s(self) -> float:
        """Return how long to wait for a response: longer if progress depends on it."""
        is_needed = self._silent_since_s is None and any(
            backlog.start >= backlog.end for backlog in self._progress.backlogs(())
        )
        usual_s = min(2 * self._usual_s, _ANSWER_WAIT_MAX_S) if is_needed else 0
        return max(usual_s, _ANSWER_WAIT_S)

    def _note_ends(self, ends: Mapping[str, int], *, is_fresh: bool) -> None:
        positions = self._progress.positions
        self._unreachable = positions.keys() - ends.keys()
        for shard in ends.keys() & positions.keys():
            self._progress.ends[shard] = ends[shard]
            self._waiting.see(shard, ends[shard])
            if is_fresh:
                self._answered.add(shard)
        self._discovery.doubt(ends)
        if not self._has_leaders():
            self._note_silence("no partition has a leader, or all partitions were removed")

    def _has_leaders(self) -> bool:
        """Return whether the last answer has an end, if any was to be in it."""
        positions = self._progress.positions
        return not positions or bool(positions.keys() - self._unreachable)

    def _note_silence(self, reason: str) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = self._clock.monotonic()
            if self._listener is not None:
                self._listener.leave()
            log_event(
                _logger,
                "kafka_unreachable",
                level=logging.WARNING,
                vertex=self.spec.vertex_id,
                brokers=self._options.brokers,
                reason=reason,
            )

    def _note_answer(self) -> None:
        if self._silent_since_s is not None:
            silent_ms = int((self._clock.monotonic() - self._silent_since_s) * 1_000)
            self._silent_since_s = None
            log_event(_logger, "kafka_reachable", vertex=self.spec.vertex_id, silent_ms=silent_ms)
