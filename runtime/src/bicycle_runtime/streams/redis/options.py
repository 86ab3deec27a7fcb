"""Options of the Redis backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.streams.options import StreamerOptions, TlsOptions
from bicycle_runtime.streams.redis.ids import Timestamps

__all__ = ["AutoCommit", "RedisOptions", "RedisServerOptions"]

AutoCommit = Literal["disabled", "rolling", "delayed", "immediate"]


@dataclass(frozen=True, kw_only=True)
class RedisServerOptions(TlsOptions):
    """The address of a server, and the form of its entries, for programs and jobs."""

    __slots__ = ()  # Those of a backend have room for these, too.

    db: int = option(0, low=0, high=65_535, doc="The number of the database of Redis.")
    username: str | None = option(None, doc="Who we are, where the server has users.")
    timestamps: Timestamps = option(
        "ms", doc="In what the times of ids are: milliseconds, or nanoseconds (ns)."
    )
    message_field: str = option("msg", doc="The field of an entry that holds the payload.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(StreamerOptions, RedisServerOptions):
    """The options of a Redis server's streamer."""

    password: str | None = option(None, doc="The password of the user, or of the server.")
    verify_certificate: bool = option(
        True, doc="Whether rediss:// refuses a server whose certificate nobody vouches for."
    )
    max_length: int | None = option(
        None, low=1, doc="About how many messages a stream keeps; all of them if unset."
    )
    auto_commit: AutoCommit = option(
        "disabled",
        doc="When a message counts as done: by ack and commit, by ack alone (rolling), some time "
        "after it was given (delayed), or at once (immediate).",
    )
    auto_commit_delay_ms: int = option(
        5_000, low=1, high=3_600_000, doc="How long after it was given, with auto_commit=delayed."
    )
    make_stream: bool = option(
        True, doc="Whether a consumer with a group makes a stream that is missing."
    )
    consumer_id: str | None = option(
        None, doc="The name of a consumer in its group; who comes back gets what it left undone."
    )
    claim_idle_ms: int = option(
        60_000, low=1, high=86_400_000,
        doc="After how long what a silent member of a group left undone goes to others.",
    )  # fmt: skip
    claim_interval_ms: int = option(
        30_000, low=1, high=86_400_000, doc="How often a member looks for what others left undone."
    )
    batch_messages: int = option(
        1_000, low=1, high=100_000, doc="How many messages are read or sent at once, at most."
    )
    block_ms: int = option(
        1_000, low=1, high=60_000, doc="How long the server holds back an empty answer."
    )
    shard_scan_interval_ms: int = option(
        10_000, low=10, high=3_600_000, doc="How often a consumer looks for new shards."
    )
    retry_timeout_ms: int = option(
        60_000, low=0, high=3_600_000, doc="How long to try again when the server is gone."
    )
