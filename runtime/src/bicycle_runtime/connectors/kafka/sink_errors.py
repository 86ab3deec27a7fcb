"""Errors of the Kafka sink: BIC-1765 to BIC-1779.

Those that are raised behind the seal of an epoch say what state things are in: its output is safe
in checkpoint storage, and is published at the next start.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

KAFKA_TOPIC_UNSUITABLE = BicycleError.row(
    "BIC-1765",
    "vertex {vertex!r}: Kafka topic {topic!r} {problem}; nothing was written",
    cause="The topic of a sink, or that of its markers, is not as it must be, or cannot be made.",
    fix="{hint}",
)
KAFKA_TRANSACTION_TIMEOUT_WRONG = BicycleError.row(
    "BIC-1766",
    "vertex {vertex!r}: transaction_timeout_ms is {timeout_ms:,}, but it must be {problem}: "
    "epoch interval {epoch_interval_ms:,} ms + recovery budget {recovery_budget_ms:,} ms = "
    "{needed_ms:,} ms, transaction.max.timeout.ms of the brokers = {broker_text}; nothing was "
    "started",
    cause="A transaction could end before the epoch that it carries is published.",
    fix="{hint}",
)
KAFKA_DELIVERY_FAILED = BicycleError.row(
    "BIC-1767",
    "vertex {vertex!r}, subtask {subtask}: Kafka topic {topic!r} did not take {failed_count:,} "
    "of {message_count:,} messages of epoch {epoch}: {reason}; the epoch is not sealed",
    cause="Messages that a task wrote directly were not taken by the brokers.",
    fix="{hint}",
)
KAFKA_PUBLISH_REFUSED = BicycleError.row(
    "BIC-1768",
    "vertex {vertex!r}, writer {writer}: Kafka topic {topic!r} refuses the output of epoch "
    "{epoch}: {reason}; nothing of this writer's epoch is visible, and it is kept",
    cause="The brokers refused the output of a sealed epoch for a reason that waiting does not "
    "end.",
    fix="{hint}; then start the job again: it publishes this epoch first",
)
KAFKA_PUBLISH_TIMED_OUT = BicycleError.row(
    "BIC-1769",
    "vertex {vertex!r}, writer {writer}: epoch {epoch} could not be published to Kafka topic "
    "{topic!r} for {waited_ms:,} ms: {reason}; its output is kept",
    cause="The brokers were away for longer than ``publish_timeout_ms``.",
    fix="start the job again when the brokers answer: it publishes this epoch first",
)
KAFKA_OTHER_PUBLISHER = BicycleError.row(
    "BIC-1770",
    "vertex {vertex!r}, writer {writer}: another run of this job publishes as {prefix!r}: it "
    "took over while epoch {epoch} was published, and is at epoch {found_epoch}",
    cause="Somebody else publishes under this sink's transactional ids.",
    fix="let only one of them run; if they are different jobs, give each a transactional_id_prefix "
    "of its own",
)
KAFKA_HISTORY_AHEAD = BicycleError.row(
    "BIC-1771",
    "vertex {vertex!r}: the job starts behind epoch {epoch}, but its output up to epoch "
    "{found_epoch} is in Kafka topic {topic!r} already and would appear there twice",
    cause="The job starts behind what it has published: an older epoch or a savepoint was "
    "restored.",
    fix="set on_rewind='publish_again' for the sink if that is what you want, or write to another "
    "topic with another transactional_id_prefix",
)
STAGED_MESSAGES_UNREADABLE = BicycleError.row(
    "BIC-1772",
    "staged messages {path!r} are not of version {expected}: {reason}; nothing was published",
    cause="Staged messages are whole, but of a version that is not known here.",
    fix="run the job with the version of bicycle that wrote them until the epoch is published",
)
