"""Options that every backend of streams takes; each backend adds its own to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import check, option

__all__ = ["Durability", "Mode", "Start", "StreamerOptions", "TlsOptions"]

Mode = Literal["real-time", "resumable", "load-balanced"]
Start = Literal["latest", "earliest"]
Durability = Literal["at-most-once", "at-least-once", "exactly-once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamerOptions:
    """What a streamer of any backend can be told."""

    connect_timeout_ms: int = option(
        10_000, low=1, high=600_000, doc="How long a connection may take to come about."
    )
    prefetch_messages: int = option(
        1_000,
        low=1,
        high=1_000_000,
        doc="How many messages a consumer may hold that nobody has asked for yet.",
    )
    send_queue_messages: int = option(
        100_000,
        low=1,
        high=10_000_000,
        doc="How many messages may wait until the other side takes them.",
    )
    unacknowledged_max: int = option(
        100_000,
        low=1,
        high=10_000_000,
        doc="How many delivered messages of a group may wait for ack(message).",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions(StreamerOptions):
    """What a streamer that may speak TLS can be told besides."""

    ca_file: str | None = option(
        None,
        doc="The file with the certificates that we trust, PEM; those of the system if unset.",
    )
    cert_file: str | None = option(
        None, doc="The file with our own certificate and those behind it, PEM."
    )
    key_file: str | None = option(None, doc="The file with its private key, PEM.")
