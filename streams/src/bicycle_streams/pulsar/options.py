"""Options of the Pulsar backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.client_options import PulsarCluster
from bicycle_sdk.options import option
from bicycle_streams.options import StreamerOptions, TlsOptions


@dataclass(frozen=True, kw_only=True)
class PulsarClusterOptions(PulsarCluster, TlsOptions):
    """The location of a cluster's topics, for programs and for jobs."""

    __slots__ = ()  # The slots of a subclass are added to these.


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions(StreamerOptions, PulsarClusterOptions):
    """The options of a Pulsar cluster's streamer."""

    create: Literal["never", "if-missing"] = option(
        "never",
        doc=(
            "Whether to create a missing topic with partitions, and to add missing partitions; "
            "brokers may create topics without partitions automatically."
        ),
    )
    partitions: int = option(1, low=1, high=10_000, doc="Number of partitions of a new topic.")
    token: str | None = option(None, doc="Token for the login.")
    compression: Literal["none", "lz4", "zlib", "zstd", "snappy"] = option(
        "none", doc="Compression of messages."
    )
    delivery_timeout_ms: int = option(
        30_000, low=1, high=3_600_000, doc="Time after which sending a message fails."
    )
