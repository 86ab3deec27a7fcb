"""Errors of Kafka's source and sink, BIC-1750 to BIC-1764.

They name vertex, property or partition. Their texts never contain the value of a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bicycle_sdk.errors import BicycleError

KAFKA_PROPERTY_WRONG = BicycleError.row(
    "BIC-1750",
    "vertex {vertex!r}, Kafka property {name!r}: {problem}",
    cause=(
        "A property of the Kafka client is unknown, not supported, or set by an option of Bicycle."
    ),
    fix="{hint}",
)
KAFKA_SECRET_MISSING = BicycleError.row(
    "BIC-1751",
    "vertex {vertex!r}, Kafka property {name!r}: secret not found: {problem}",
    cause="The environment variable or the file of a secret is missing.",
    fix="{hint}",
)
KAFKA_UNREACHABLE = BicycleError.row(
    "BIC-1752",
    "vertex {vertex!r}: Kafka brokers {brokers!r} did not respond within {waited_ms:duration}: "
    "{reason}",
    cause="No broker responded to a job that has never read or written any data.",
    fix=(
        "check host, port and security settings. A job that ran before waits for its brokers: "
        "sinks for publish_timeout_ms, sources without a limit"
    ),
)


class KafkaAccessError(BicycleError):
    """The broker or TLS refused the client: wrong credentials or missing permissions.

    The facts ``resource`` and ``operation`` name the missing ACL; None: the login failed.
    """

    code = "BIC-1753"
    message = "vertex {vertex!r}: Kafka refused {action}: {reason}{outcome}"
    fix = "{hint}"

    def keeping(self, epoch: int) -> KafkaAccessError:
        """Return the error of a publication: the epoch is sealed, and is published later."""
        then = "then start the job again, which publishes this epoch first"
        facts = {
            **self.facts,
            "kept_epoch": epoch,
            "outcome": f"; epoch {epoch} is sealed and kept",
            "hint": f"{self.facts['hint']}, {then}",
        }
        return KafkaAccessError(**facts)


KAFKA_TOPIC_MISSING = BicycleError.row(
    "BIC-1754",
    "vertex {vertex!r}: Kafka topic {topic!r} does not exist{suggestion}",
    cause="A topic does not exist, or is not visible to this user.",
    fix=(
        "create the topic, or correct its name; nothing was read or written, and sealed epochs are "
        "kept"
    ),
)


def topic_missing(vertex: str, topic: str, known: Sequence[str]) -> BicycleError:
    """Return the error of a missing topic, with the known name that is like it."""
    near = difflib.get_close_matches(topic, known, n=1)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    return KAFKA_TOPIC_MISSING(vertex=vertex, topic=topic, suggestion=suggestion)


class KafkaOffsetsLostError(BicycleError):
    """The next offset is no longer in the topic: retention, or a recreated topic."""

    code = "BIC-1755"
    message = (
        "vertex {vertex!r}: Kafka partition {partition} {found}, but the next offset to read is "
        "{next}: {problem}; this epoch was not published"
    )
    fix = (
        "set --on-data-loss (or on_data_loss of the source): 'earliest' continues with the oldest "
        "retained message, 'latest' with the next new message, 'fail' stops the job as now"
    )

    @classmethod
    def of(
        cls, partition: str, *, vertex: str, next: int, low: int, high: int, problem: str
    ) -> KafkaOffsetsLostError:
        """Return the error of a partition; -1 for offsets that it does not have any more."""
        found = f"has offsets {low} to {high}" if high >= 0 else "does not exist"
        return cls(
            vertex=vertex, partition=partition, found=found,
            next=next, low=low, high=high, problem=problem,
        )  # fmt: skip


KAFKA_CLIENT_FAILED = BicycleError.row(
    "BIC-1756",
    "vertex {vertex!r}: {action} failed: {reason}",
    cause="The Kafka client reported another error from which it cannot recover.",
    fix=(
        "resolve the reported reason, then start the job again; it continues from its last sealed "
        "epoch"
    ),
)
KAFKA_BATCH_DAMAGED = BicycleError.row(
    "BIC-1757",
    "vertex {vertex!r}: {action} failed: {reason}; no message of the batch was read",
    cause="The checksum of a batch of messages is wrong: the disk of a broker has changed it.",
    fix=(
        "restore the partition from another replica, and start the job again; without a replica, "
        "delete the records up to the next batch (kafka-delete-records), and set "
        "on_data_loss='earliest'"
    ),
)


class KafkaTopicReplacedError(BicycleError):
    """A topic was deleted and created again while an epoch read it."""

    code = "BIC-1758"
    message = (
        "vertex {vertex!r}: topic {topic!r} was deleted and created again while an epoch read it; "
        "the epoch was not sealed"
    )
    fix = (
        "wait for the restart of the job; it continues with the new topic according to on_data_loss"
    )


# Errors of the Kafka sink: BIC-1765 to BIC-1779.  Errors raised behind the seal of an epoch
# describe the state: its output is safe in checkpoint storage, and is published at the next start.

KAFKA_TOPIC_UNSUITABLE = BicycleError.row(
    "BIC-1765",
    "vertex {vertex!r}: Kafka topic {topic!r} {problem}; nothing was written",
    cause="The topic of a sink, or its topic for markers, is unsuitable or cannot be created.",
    fix="{hint}",
)
KAFKA_TRANSACTION_TIMEOUT_WRONG = BicycleError.row(
    "BIC-1766",
    "vertex {vertex!r}: transaction_timeout_ms must be {problem}, got {timeout_ms:,}: epoch "
    "interval {epoch_interval_ms:,} ms + recovery budget {recovery_budget_ms:,} ms = "
    "{needed_ms:,} ms, transaction.max.timeout.ms of the brokers = {broker_text}; nothing was "
    "started",
    cause="A transaction could time out before its epoch is published.",
    fix="{hint}",
)
KAFKA_DELIVERY_FAILED = BicycleError.row(
    "BIC-1767",
    "vertex {vertex!r}, subtask {subtask}: Kafka topic {topic!r} rejected {failed_count:,} of "
    "{message_count:count message} of epoch {epoch}: {reason}; the epoch is not sealed",
    cause="The brokers rejected messages that a task wrote directly.",
    fix="{hint}",
)
KAFKA_PUBLISH_REFUSED = BicycleError.row(
    "BIC-1768",
    "vertex {vertex!r}, writer {writer}: Kafka topic {topic!r} rejected the output of epoch "
    "{epoch}: {reason}; the output of this writer is kept but not visible",
    cause="The brokers rejected the output of a sealed epoch for a permanent reason.",
    fix="{hint}; then start the job again, which publishes this epoch first",
)
KAFKA_PUBLISH_TIMED_OUT = BicycleError.row(
    "BIC-1769",
    "vertex {vertex!r}, writer {writer}: epoch {epoch} could not be published to Kafka topic "
    "{topic!r} for {waited_ms:,} ms: {reason}; its output is kept",
    cause="The brokers were unavailable for longer than ``publish_timeout_ms``.",
    fix="start the job again when the brokers respond; it publishes this epoch first",
)
KAFKA_OTHER_PUBLISHER = BicycleError.row(
    "BIC-1770",
    "vertex {vertex!r}, writer {writer}: another run publishes with the transactional id "
    "prefix {prefix!r}: it took over while epoch {epoch} was published, and is at epoch "
    "{found_epoch}",
    cause="Another run publishes with the transactional ids of this sink.",
    fix=(
        "stop one of the runs; if they are different jobs, set a separate transactional_id_prefix "
        "for each"
    ),
)
KAFKA_HISTORY_AHEAD = BicycleError.row(
    "BIC-1771",
    "vertex {vertex!r}: the job starts after epoch {epoch}, but its output up to epoch "
    "{found_epoch} is already in Kafka topic {topic!r} and would be duplicated",
    cause=(
        "An older epoch or a savepoint was restored, so the job starts before its published output."
    ),
    fix=(
        "set on_rewind='publish_again' for the sink to accept duplicates, or write to another "
        "topic with another transactional_id_prefix"
    ),
)
STAGED_MESSAGES_UNREADABLE = BicycleError.row(
    "BIC-1772",
    "staged messages {path!r} must have format version {expected}: {reason}; nothing was published",
    cause="Staged messages are intact, but their format version is unknown.",
    fix=(
        "run the job with the version of Bicycle that wrote the messages until the epoch is "
        "published"
    ),
)
