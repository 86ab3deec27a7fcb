"""Limits of the subscriber server: for requests of clients, and slow clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import check, option

__all__ = ["SubscriberOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions:
    """The options of the subscriber server."""

    slow: Literal["lag", "skip", "disconnect"] = option(
        "lag",
        doc="What becomes of a client whose queue is full. lag: it gets all messages, at its own "
        "pace, as far as the backend keeps them; skip: it misses some, and is told how many; "
        "disconnect: it is cut off.",
    )
    clients_max: int = option(
        2_000, low=1, high=100_000, doc="How many clients may be connected at once."
    )
    clients_per_token_max: int = option(
        500, low=1, high=100_000, doc="How many clients of one token may be connected at once."
    )
    subscriptions_max: int = option(
        100, low=1, high=100_000, doc="How many subscriptions a client may have at once."
    )
    queue_messages: int = option(
        1_000, low=1, high=1_000_000, doc="How many messages may wait for one client."
    )
    queue_bytes: int = option(
        8 << 20, low=1_024, high=1 << 30, doc="How many bytes of messages may wait for one client."
    )
    catching_up_max: int = option(
        16,
        low=1,
        high=10_000,
        doc="How many clients may read what is past at once; others wait for their turn.",
    )
    frame_bytes_max: int = option(
        64 << 10, low=128, high=16 << 20, doc="The largest frame that a client may send."
    )
    bad_frames_max: int = option(
        10, low=0, high=1_000_000, doc="After how many refused frames a client is cut off."
    )
    login_timeout_ms: int = option(
        10_000, low=10, high=600_000, doc="How long a client may take to say who it is."
    )
    send_timeout_ms: int = option(
        60_000,
        low=10,
        high=3_600_000,
        doc="How long a client may take nothing before it is cut off.",
    )
    ping_interval_ms: int = option(
        20_000, low=10, high=3_600_000, doc="How often a client is asked whether it lives."
    )
    ping_timeout_ms: int = option(
        20_000, low=10, high=3_600_000, doc="After how long without an answer it is dead."
    )

    def __post_init__(self) -> None:
        check(self)
