"""Checks before a Kafka sink writes: timeouts, replicas, topics, history.

Each check raises with the numbers it compared, or does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_HISTORY_AHEAD,
    KAFKA_TOPIC_UNSUITABLE,
    KAFKA_TRANSACTION_TIMEOUT_WRONG,
)
from bicycle_runtime.connectors.kafka.marker import Marker, is_branch
from bicycle_runtime.connectors.kafka.topics import TopicAdmin, TopicFacts
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.kafka.options import KafkaSinkOptions
from bicycle_sdk.kafka.values import TopicPlan
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
# More are added when an epoch has more writers. Small segments, so that compaction has something
# to do: the segment that is written to is never compacted.
_MARKER_PLAN = TopicPlan(
    partitions=4, config={"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
)


def check_transaction_timeout(
    options: KafkaSinkOptions, *, vertex: str, epoch_interval_ms: int, broker_ms_max: int | None
) -> None:
    """Refuse timeouts under which a transaction could end before it is committed.

    Args:
        options: Of the sink.
        vertex: For the error.
        epoch_interval_ms: Least time between two epochs.
        broker_ms_max: ``transaction.max.timeout.ms`` of the brokers, None when it is not known.

    Raises:
        KAFKA_TRANSACTION_TIMEOUT_WRONG: with all four numbers.
    """
    timeout_ms = options.transaction_timeout_ms
    needed_ms = epoch_interval_ms + options.recovery_budget_ms
    if timeout_ms < needed_ms:
        problem = "at least the sum of both"
    elif broker_ms_max is not None and timeout_ms > broker_ms_max:
        problem = "at most the limit of the brokers"
    else:
        return
    if broker_ms_max is not None and needed_ms > broker_ms_max:
        hint = (
            f"raise transaction.max.timeout.ms of the brokers to {needed_ms} or more, or shorten "
            "epoch_interval_ms or recovery_budget_ms"
        )
    else:
        hint = f"set transaction_timeout_ms to {max(needed_ms, 1_000)} or more" + (
            f", at most {broker_ms_max}" if broker_ms_max is not None else ""
        )
    raise KAFKA_TRANSACTION_TIMEOUT_WRONG(
        vertex=vertex,
        timeout_ms=timeout_ms,
        problem=problem,
        epoch_interval_ms=epoch_interval_ms,
        recovery_budget_ms=options.recovery_budget_ms,
        needed_ms=needed_ms,
        broker_ms_max=broker_ms_max,
        broker_text="not known" if broker_ms_max is None else f"{broker_ms_max:,} ms",
        hint=hint,
    )


def check_replicas(facts: TopicFacts, topic: str, vertex: str, broker_count: int) -> None:
    """Refuse a topic that can never acknowledge messages; warn of possible loss.

    Raises:
        KAFKA_TOPIC_UNSUITABLE: it requires more copies in sync than it has.
    """
    needed = int(facts.config.get("min.insync.replicas", "1"))
    if needed > facts.replica_count:
        raise KAFKA_TOPIC_UNSUITABLE(
            vertex=vertex,
            topic=topic,
            problem=(
                f"has {facts.replica_count} replicas, but min.insync.replicas is {needed}, so it "
                "accepts no messages"
            ),
            hint=f"increase its replicas to {needed}, or lower its min.insync.replicas",
        )
    if broker_count > 1 and min(needed, facts.replica_count) == 1:
        log_event(
            _LOG, "kafka_topic_not_safe", level=logging.WARNING, operator=vertex, topic=topic,
            replication_factor=facts.replica_count, min_insync_replicas=needed,
            meaning="acknowledged messages can be lost if one broker fails",
        )  # fmt: skip


def refuse_missing_keys(facts: TopicFacts, topic: str, spec: ConnectorSpec) -> None:
    """Refuse to write messages without key to a compacted topic.

    Raises:
        KAFKA_TOPIC_UNSUITABLE: the topic is compacted, and the sink has no key function.
    """
    if facts.is_compacted and "key" not in spec.payloads:
        raise KAFKA_TOPIC_UNSUITABLE(
            vertex=spec.vertex_id,
            topic=topic,
            problem="is compacted (cleanup.policy), but the messages of the sink have no key",
            hint="set a key function for the sink, or use a topic with cleanup.policy=delete",
        )


def check_marker_topic(admin: TopicAdmin, topic: str, vertex: str) -> TopicFacts | None:
    """Return the facts of the marker topic; None when it is missing and can be made.

    Raises:
        KAFKA_TOPIC_UNSUITABLE: it forgets markers, or cannot be made.
        KafkaAccessError: this user may not read, write or make it.
    """
    facts = admin.check(topic, _MARKER_PLAN, operations=("Read", "Write"))
    if facts is not None and facts.is_expiring:
        policy = facts.config["cleanup.policy"]
        raise KAFKA_TOPIC_UNSUITABLE(
            vertex=vertex,
            topic=topic,
            problem=f"has cleanup.policy {policy!r}, which would remove epoch markers",
            hint="set its cleanup.policy to compact",
        )
    return facts


def ensure_marker_topic(admin: TopicAdmin, topic: str, vertex: str) -> TopicFacts:
    """Return the facts of the marker topic, which is made when it is missing.

    Raises:
        KAFKA_TOPIC_UNSUITABLE: see ``check_marker_topic``.
        KafkaAccessError: likewise.
    """
    return check_marker_topic(admin, topic, vertex) or admin.make(topic, _MARKER_PLAN)


def check_history(
    state: Mapping[str, Any],
    markers: Mapping[int, Marker],
    *,
    options: KafkaSinkOptions,
    vertex: str,
) -> bool:
    """Return whether a new history must begin, since the job starts in the past.

    Args:
        state: The sink's state of the epoch that is started from.
        markers: The last marker of each writer.
        options: Of the sink.
        vertex: For the error.

    Raises:
        KAFKA_HISTORY_AHEAD: it does, and that was not allowed.
    """
    # The messages of another job that continued from here are in the topic as well.
    own = [m.epoch for m in markers.values() if is_branch(m.identity, of=state["identity"])]
    found = max(own, default=0)
    if found <= state["epoch"]:
        return False
    facts = {
        "vertex": vertex, "epoch": state["epoch"], "found_epoch": found, "topic": state["topic"],
    }  # fmt: skip
    if options.on_rewind == "fail":
        raise KAFKA_HISTORY_AHEAD(**facts)
    log_event(_LOG, "kafka_published_again", level=logging.WARNING, **facts)
    return True
