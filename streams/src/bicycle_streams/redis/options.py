"""Options of the Redis backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.client_options import RedisServer
from bicycle_sdk.options import option
from bicycle_streams.options import StreamerOptions, TlsOptions

AutoCommit = Literal["disabled", "rolling", "delayed", "immediate"]


@dataclass(frozen=True, kw_only=True)
class RedisServerOptions(RedisServer, TlsOptions):
    """The address of a server, and the form of its entries, for programs and jobs."""

    __slots__ = ()  # The slots of a subclass are added to these.


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(StreamerOptions, RedisServerOptions):
    """The options of a Redis server's streamer."""

    password: str | None = option(None, doc="Password of the user, or of the server.")
    verify_certificate: bool = option(
        True, doc="Whether rediss:// rejects a server whose certificate cannot be verified."
    )
    max_length: int | None = option(
        None, low=1, doc="Approximate number of messages that a stream keeps; all of them if unset."
    )
    auto_commit: AutoCommit = option(
        "disabled",
        doc=(
            "When a message counts as processed: by ack and commit, by ack alone (rolling), after "
            "a delay (delayed), or on delivery (immediate)."
        ),
    )
    auto_commit_delay_ms: int = option(
        5_000, low=1, high=3_600_000, doc="Delay after delivery, with auto_commit=delayed."
    )
    create_stream: bool = option(
        True,
        doc="Whether a consumer with a group creates a missing stream.",
        aliases=("make_stream",),
    )
    consumer_id: str | None = option(
        None,
        doc=(
            "Name of a consumer in its group; after a restart it receives its unacknowledged "
            "messages."
        ),
    )
    claim_idle_ms: int = option(
        60_000, low=1, high=86_400_000,
        doc=(
            "Time after which unacknowledged messages of a silent member are moved to other "
            "members."
        ),
    )  # fmt: skip
    claim_interval_ms: int = option(
        30_000,
        low=1,
        high=86_400_000,
        doc="Interval at which a member checks for unacknowledged messages of others.",
    )
    batch_messages: int = option(
        1_000, low=1, high=100_000, doc="Maximum number of messages that are read or sent at once."
    )
    block_ms: int = option(
        100,
        low=1,
        high=60_000,
        doc="Time that the server waits before an empty response; a consumer ends after it.",
    )
    discovery_interval_ms: int = option(
        10_000,
        low=10,
        high=3_600_000,
        doc="Interval at which a consumer checks for new shards.",
        aliases=("shard_scan_interval_ms",),
    )
    retry_timeout_ms: int = option(
        60_000, low=0, high=3_600_000, doc="Time for which a lost connection is retried."
    )
