"""Errors that Kafka's source and sink share, and those of the source: BIC-1750 to BIC-1764.

They name vertex, property or partition. No text of theirs ever holds the value of a secret.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

KAFKA_PROPERTY_WRONG = BicycleError.row(
    "BIC-1750",
    "vertex {vertex!r}, Kafka property {name!r}: {problem}",
    cause="A property of the Kafka client is unknown, not accepted, or belongs to an option of "
    "ours.",
    fix="{hint}",
)
KAFKA_SECRET_MISSING = BicycleError.row(
    "BIC-1751",
    "vertex {vertex!r}, Kafka property {name!r}: its secret is not there: {problem}",
    cause="A secret is not where the graph says: the environment variable or file is missing.",
    fix="{hint}",
)
KAFKA_UNREACHABLE = BicycleError.row(
    "BIC-1752",
    "vertex {vertex!r}: no Kafka broker of {brokers!r} answered within {waited_ms:duration}: "
    "{reason}",
    cause="No broker answered while a job started that has never read or written anything.",
    fix="check host, port and security settings; a job that ran before waits for its broker, to "
    "write for publish_timeout_ms and to read without a limit",
)


class KafkaAccessError(BicycleError):
    """The broker, or TLS before it, refused the client: wrong credentials or missing rights.

    The facts ``resource`` and ``operation`` are those of the missing ACL; None: it was the login.
    """

    code = "BIC-1753"
    message = "vertex {vertex!r}: Kafka refused {action}: {reason}{outcome}"
    fix = "{hint}"

    def keeping(self, epoch: int) -> KafkaAccessError:
        """Return the error of a publication: the epoch is sealed, and is published later."""
        then = "then start the job again: it publishes this epoch first"
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
    cause="A named topic does not exist, or is not visible to this user.",
    fix="create the topic, or correct its name; nothing was read or written, and what was sealed "
    "before is kept",
)


class KafkaOffsetsLostError(BicycleError):
    """The next offset is no longer in the topic: retention, or a topic created again."""

    code = "BIC-1755"
    message = (
        "vertex {vertex!r}: Kafka partition {partition} {found}, but {next} is to be read next: "
        "{problem}; nothing of this epoch was published"
    )
    fix = (
        "choose with --on-data-loss (or on_data_loss of the source): 'earliest' goes on with the "
        "oldest message left, 'latest' with the next new one, 'fail' stops here as now"
    )

    @classmethod
    def of(
        cls, partition: str, *, vertex: str, next: int, low: int, high: int, problem: str
    ) -> KafkaOffsetsLostError:
        """Return the error of a partition; -1 for offsets that it does not have any more."""
        found = f"has offsets {low} to {high}" if high >= 0 else "is not there"
        return cls(
            vertex=vertex, partition=partition, found=found,
            next=next, low=low, high=high, problem=problem,
        )  # fmt: skip


KAFKA_CLIENT_FAILED = BicycleError.row(
    "BIC-1756",
    "vertex {vertex!r}: {action} failed: {reason}",
    cause="Something else that the Kafka client cannot repair by itself.",
    fix="read what the client says; the job goes on from its last sealed epoch when run again",
)


# Errors of the Kafka sink: BIC-1765 to BIC-1779.
#
# Those that are raised behind the seal of an epoch say what state things are in: its output is safe
# in checkpoint storage, and is published at the next start.

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
    "of {message_count:count message} of epoch {epoch}: {reason}; the epoch is not sealed",
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
