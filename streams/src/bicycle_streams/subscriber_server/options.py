"""Limits of the subscriber server: for requests of clients, and slow clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import CheckedOptions, option


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions(CheckedOptions):
    """The options of the subscriber server."""

    slow: Literal["lag", "skip", "disconnect"] = option(
        "lag",
        doc=(
            "Behavior for a client whose queue is full. lag: it receives all messages later, as "
            "far as the backend retains them; skip: messages are skipped, and their number is "
            "reported; disconnect: it is disconnected."
        ),
    )
    clients_max: int = option(
        2_000, low=1, high=100_000, doc="Maximum number of connected clients."
    )
    clients_per_token_max: int = option(
        500, low=1, high=100_000, doc="Maximum number of connected clients per token."
    )
    subscriptions_max: int = option(
        100, low=1, high=100_000, doc="Maximum number of subscriptions per client."
    )
    queue_messages: int = option(
        1_000, low=1, high=1_000_000, doc="Maximum number of waiting messages per client."
    )
    queue_bytes: int = option(
        8 << 20, low=1_024, high=1 << 30, doc="Maximum size of waiting messages per client."
    )
    catching_up_max: int = option(
        16,
        low=1,
        high=10_000,
        doc="Maximum number of clients that read past messages concurrently; other clients wait.",
    )
    frame_bytes_max: int = option(
        64 << 10, low=128, high=16 << 20, doc="Maximum size of a frame from a client."
    )
    bad_frames_max: int = option(
        10,
        low=0,
        high=1_000_000,
        doc="Number of rejected frames after which a client is disconnected.",
    )
    login_timeout_ms: int = option(
        10_000, low=10, high=600_000, doc="Time limit for the authentication of a client."
    )
    send_timeout_ms: int = option(
        60_000,
        low=10,
        high=3_600_000,
        doc="Time without a read by the client after which it is disconnected.",
    )
    ping_interval_ms: int = option(
        20_000, low=10, high=3_600_000, doc="Interval of pings to a client."
    )
    ping_timeout_ms: int = option(
        20_000,
        low=10,
        high=3_600_000,
        doc="Time without an answer after which a client is disconnected.",
    )
