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
    """What was to be read next is not in the topic any more (retention, or a topic made again)."""

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
