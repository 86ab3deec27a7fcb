"""Options that several connectors or clients of servers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret
from bicycle_sdk.tls_files import TlsFiles

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "Listening",
    "PostgresTable",
    "Publication",
    "PulsarCluster",
    "RedisServer",
    "Rewinding",
    "TransactionWait",
    "UpsertOptions",
]


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The side of a connection."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    listen: bool = option(
        default=False,
        doc="Whether to listen, so that other programs connect; "
        "a socket without a stream always listens.",
    )


@dataclass(frozen=True, kw_only=True)
class RedisServer(TlsFiles):
    """The database of a Redis server, and the form of its entries."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    db: int = option(default=0, low=0, high=65_535, doc="Number of the Redis database.")
    username: str | None = option(default=None, doc="User name, if the server has users.")
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
class PostgresTable:
    """A table of a PostgreSQL database."""

    url: str = option(
        kw_only=False, doc="postgresql://user@host:port/database, without a password."
    )
    table: str = option(kw_only=False, doc="Name of the table, or schema.table.")
    password: Secret | None = option(
        default=None,
        doc="A reference to the password. Default: PGPASSWORD or the password file of libpq.",
    )
    connect_timeout_ms: int = option(
        default=30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of the server at a start.",
    )

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the database: ``postgresql://user@host:port/database``."""
        return {"url": f"{parts.scheme}://{parts.netloc}{parts.path}"}


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


@dataclass(frozen=True, kw_only=True)
class UpsertOptions(Publication, Rewinding):
    """The options of tables whose rows are added or replaced."""

    mode: Literal["append", "upsert", "insert"] = option(
        default="append",
        doc=(
            "append adds rows (alias: insert); upsert replaces the row with the "
            "same keys, and the last record wins. Default: upsert with keys, else append."
        ),
    )
    keys: Sequence[str] = option(
        default=(),
        doc=(
            "Columns that identify a row (upsert); they must not be null. A table of PostgreSQL "
            "has a unique index of exactly these columns."
        ),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the mode upsert, if there are keys and no mode."""
        keys = given.get("keys")
        if isinstance(keys, str) or given.get("mode") is not None:
            return dict(given)
        if not keys:
            return {name: value for name, value in given.items() if name != "keys"}
        return given | {"mode": "upsert"}
