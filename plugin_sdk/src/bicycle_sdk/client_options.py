"""Options of clients of servers, for connectors and for the client toolkit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import option
from bicycle_sdk.tls_files import TlsFiles

__all__ = ["PulsarCluster", "RedisServer", "TransactionWait"]


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
            "Time that a read to the end waits for a transaction that was open there at its start. "
            "A bounded source then ends, and the log reports the unread messages."
        ),
    )
