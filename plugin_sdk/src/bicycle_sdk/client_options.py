"""Options that several connectors or clients of servers share."""

from __future__ import annotations

from typing import Any, Literal

from bicycle_sdk.formats import Format
from bicycle_sdk.options import option, shared_options
from bicycle_sdk.tls_files import TlsFiles

__all__ = [
    "BoundedInput",
    "ConnectTimeout",
    "EventTime",
    "GrowingInput",
    "LineLength",
    "Listening",
    "PartSize",
    "Publication",
    "PulsarCluster",
    "ReaderGroup",
    "RedisServer",
    "Rewinding",
    "ServerUrl",
    "TransactionTimeout",
    "TransactionWait",
    "UserName",
    "ValueFormat",
]


@shared_options
class EventTime:
    """The event time in the records of a source or a sink."""

    timestamp_field: str = option(
        default="",
        doc=(
            "Field or column with the event time of a record; lines of text have no fields. A "
            "source reads RFC 3339, a time with a zone, or ms since 1970, and rejects a record "
            "without it as bad; a sink fails, and writes ms since 1970 to files of lines."
        ),
        words=("time_field",),
    )


@shared_options
class GrowingInput:
    """The end of input to which others append."""

    follow: bool = option(
        default=False,
        doc=(
            "Wait for new input (appended lines, new files, new rows); otherwise the source ends "
            "with the input that exists at the start."
        ),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the end of the source, which graphs always have."""
        return {"follow": cls.follow, **given}

    def unbounded_reason(self) -> str:
        """Return why the input never ends; empty if it ends."""
        return "waits for new input; remove the option follow" if self.follow else ""


@shared_options
class BoundedInput:
    """The ends of input that is a log of messages."""

    bounded: bool = option(
        default=False, doc="End with the messages that exist at the first start of the job."
    )
    on_data_loss: Literal["fail", "continue", "earliest", "latest"] = option(
        default="fail",
        doc=(
            "Reaction when unread messages were removed: fail, or continue with the existing "
            "messages; in Kafka, with the earliest or the latest message."
        ),
    )

    def unbounded_reason(self) -> str:
        """Return why the input never ends; empty if it ends."""
        return "" if self.bounded else "waits for new messages; set the option bounded = 'true'"


@shared_options
class PartSize:
    """The size and the age of the parts of a sink's output."""

    roll_bytes: int = option(
        default=128 << 20,
        low=1,
        high=1 << 40,
        doc="Size at which a part is complete; approximate in formats with columns.",
        words=("max_bytes",),
    )
    roll_ms: int = option(
        default=60_000,
        low=1,
        high=86_400_000,
        doc=(
            "Time after its first record at which a part is complete; in formats with columns, "
            "all open parts are complete."
        ),
        words=("max_age", "roll_after"),
    )


@shared_options
class LineLength:
    """The bound of a line."""

    line_bytes_max: int = option(
        default=64 << 20,
        low=1 << 20,
        high=1 << 30,
        doc=(
            "Maximum length of a line or CSV record. A longer one in a file is a bad record; the "
            "sender of a longer line to a socket is disconnected."
        ),
    )


@shared_options
class ValueFormat:
    """The format of payloads."""

    value_format: str | Format | None = option(
        default=None,
        doc="Format of payloads, the values of messages.",
        words=("format",),
    )
    value_format_options: object = option(
        default=None, doc="Options of the value format, such as its schema."
    )


@shared_options
class ServerUrl:
    """The URL of a server."""

    url: str = option(
        kw_only=False,
        doc=(
            "URL without a password: http://…, https://…, or for a table "
            "postgresql://user@host:port/database."
        ),
    )


@shared_options
class ConnectTimeout:
    """The patience of a connector with a server that does not respond at first."""

    connect_timeout_ms: int = option(
        default=30_000,
        low=1_000,
        high=3_600_000,
        doc=(
            "Time limit for the first response of the server at a start. A source of Kafka that "
            "has a checkpoint waits without a limit."
        ),
    )


@shared_options
class ReaderGroup:
    """The name of a job among the readers of a server."""

    group: str = option(
        default="",
        doc="Name of the job among the readers of the server.",
    )


@shared_options
class Listening:
    """The side of a connection, and the number of clients."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    listen: bool = option(
        default=False,
        doc="Whether to listen, so that other programs connect; "
        "a socket without a stream always listens.",
    )
    clients_max: int = option(
        default=256,
        low=1,
        high=65_536,
        doc="Maximum number of connected clients; further clients are rejected and counted.",
    )


@shared_options
class UserName:
    """The name of a login."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    username: str | None = option(default=None, doc="User name, if the server has users.")


@shared_options
class RedisServer(UserName, TlsFiles):
    """The database of a Redis server, and the form of its entries."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    db: int = option(default=0, low=0, high=65_535, doc="Number of the Redis database.")
    timestamps: Literal["ms", "ns"] = option(
        default="ms", doc="Unit of the times in ids: milliseconds (ms), or nanoseconds (ns)."
    )
    message_field: str = option(default="msg", doc="Field of an entry that contains the payload.")


@shared_options
class PulsarCluster(TlsFiles):
    """The location of the topics of a Pulsar cluster."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    namespace: str = option(default="public/default", doc="Tenant and namespace of the topics.")
    admin_url: str | None = option(
        default=None,
        doc=(
            "URL of the admin API, such as http://host:8080; default: port 8080 of the first "
            "node, or 8443 with TLS."
        ),
    )


@shared_options
class TransactionWait:
    """The wait for open transactions of Kafka, before which messages cannot be read."""

    __slots__ = ()  # Options classes with slots have room for this, too.

    transaction_wait_ms: int = option(
        default=900_000,
        low=0,
        high=86_400_000,
        doc=(
            "Maximum wait of a read to the end for a transaction that is open there. "
            "A bounded source then ends, and the log reports the unread messages."
        ),
    )


@shared_options
class TransactionTimeout:
    """The time limit of a transaction of Kafka."""

    __slots__ = ()  # Options classes with slots have room for this, too.

    transaction_timeout_ms: int = option(
        default=60_000,
        low=1_000,
        high=86_400_000,
        doc="Time after which the brokers abort an open transaction.",
    )


@shared_options
class Publication:
    """The patience of a sink that publishes to another system."""

    publish_timeout_ms: int = option(
        default=900_000,
        low=1_000,
        high=86_400_000,
        doc="Time without the target system after which the job ends; its output is kept.",
    )


@shared_options
class Rewinding:
    """The reaction of a sink to an older epoch than its output."""

    on_rewind: Literal["fail", "publish_again"] = option(
        default="fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )
