"""Options of the Pulsar backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.streams.options import StreamerOptions, TlsOptions

__all__ = ["PulsarClusterOptions", "PulsarOptions"]


@dataclass(frozen=True, kw_only=True)
class PulsarClusterOptions(TlsOptions):
    """The location of a cluster's topics, for programs and for jobs."""

    __slots__ = ()  # Those of a backend have room for these, too.

    namespace: str = option("public/default", doc="Tenant and namespace of the topics.")
    admin_url: str | None = option(
        None,
        doc="Where the cluster is administered, as http://host:8080; port 8080 of the first node, "
        "or 8443 with TLS, if unset.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions(StreamerOptions, PulsarClusterOptions):
    """The options of a Pulsar cluster's streamer."""

    create: Literal["never", "if-missing"] = option(
        "never",
        doc="Whether a missing topic is made with partitions, and a small one given more; brokers "
        "may make topics without partitions by themselves.",
    )
    partitions: int = option(1, low=1, high=10_000, doc="How many partitions a new topic has.")
    token: str | None = option(None, doc="The token with which we log in.")
    compression: Literal["none", "lz4", "zlib", "zstd", "snappy"] = option(
        "none", doc="How messages are compressed."
    )
    delivery_timeout_ms: int = option(
        30_000, low=1, high=3_600_000, doc="After how long a message is given up."
    )
