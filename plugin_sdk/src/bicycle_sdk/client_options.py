"""Options that several connectors or clients of servers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bicycle_sdk.options import option
from bicycle_sdk.tls_files import TlsFiles

__all__ = [
    "BoundedInput",
    "GrowingInput",
    "Listening",
    "PartSize",
    "Publication",
    "PulsarCluster",
    "RedisServer",
    "Rewinding",
    "TimedOutput",
    "TransactionTimeout",
    "TransactionWait",
    "UserName",
]


@dataclass(frozen=True, kw_only=True)
class GrowingInput:
    """The end and the event time of input to which others append."""

    follow: bool = option(
        default=False,
        doc=(
            "Wait for new input (appended lines, new files, new rows); otherwise the source ends "
            "with the input that exists at the start."
        ),
    )
    timestamp_field: str = option(
        default="",
        doc=(
            "Field with the event time: RFC 3339, a time with a zone, or ms since 1970; a record "
            "without it is a bad record. Lines of text have no fields."
        ),
        words=("time_field",),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the end of the source, which graphs always have."""
        return {"follow": cls.follow, **given}

    def unbounded_reason(self) -> str:
        """Return why the input never ends; empty if it ends."""
        return "waits for new input; remove the option follow" if self.follow else ""


@dataclass(frozen=True, kw_only=True)
class BoundedInput:
    """The end of input that is a log of messages."""

    bounded: bool = option(
        default=False, doc="End with the messages that exist at the first start of the job."
    )

    def unbounded_reason(self) -> str:
        """Return why the input never ends; empty if it ends."""
        return "" if self.bounded else "waits for new messages; set the option bounded = 'true'"


@dataclass(frozen=True, kw_only=True)
class PartSize:
    """The size of the parts of a sink's output."""

    roll_bytes: int = option(
        default=128 << 20,
        low=1,
        high=1 << 40,
        doc="Size at which a part is complete; approximate in formats with columns.",
        words=("max_bytes",),
    )


@dataclass(frozen=True, kw_only=True)
class TimedOutput:
    """The event time in the output of a sink."""

    timestamp_field: str = option(
        default="",
        doc=(
            "Column or field for the event time of each record, in lines of files in ms since "
            "1970; a record without event time fails."
        ),
        words=("time_field",),
    )


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class UserName:
    """The name of a login."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    username: str | None = option(default=None, doc="User name, if the server has users.")


@dataclass(frozen=True, kw_only=True)
class RedisServer(UserName, TlsFiles):
    """The database of a Redis server, and the form of its entries."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    db: int = option(default=0, low=0, high=65_535, doc="Number of the Redis database.")
    timestamps: Literal["ms", "ns"] = option(
        default="ms", doc="Unit of the times in ids: milliseconds (ms), or nanoseconds (ns)."
    )
    message_field: str = option(default="msg", doc="Field of an entry that contains the payload.")


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class TransactionWait:
    """The wait for open transactions of Kafka, before which messages cannot be read."""

    __slots__ = ()  # Options classes with slots have room for this, too.

    transaction_wait_ms: int = option(
        900_000,
        low=0,
        high=86_400_000,
        doc=(
            "Maximum wait of a read to the end for a transaction that is open there. "
            "A bounded source then ends, and the log reports the unread messages."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class TransactionTimeout:
    """The time limit of a transaction of Kafka."""

    __slots__ = ()  # Options classes with slots have room for this, too.

    transaction_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc="Time after which the brokers abort an open transaction.",
    )


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The patience of a sink that publishes to another system."""

    publish_timeout_ms: int = option(
        default=900_000,
        low=1_000,
        high=86_400_000,
        doc="Time without the target system after which the job ends; its output is kept.",
    )


@dataclass(frozen=True, kw_only=True)
class Rewinding:
    """The reaction of a sink to an older epoch than its output."""

    on_rewind: Literal["fail", "publish_again"] = option(
        default="fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )
