"""Options of the Kafka backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.streams.options import StreamerOptions

__all__ = ["KafkaOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions(StreamerOptions):
    """The options of a Kafka cluster's streamer."""

    create: Literal["never", "if-missing"] = option(
        "never", doc="Whether a missing topic is made, and a small one given more partitions."
    )
    partitions: int = option(1, low=1, high=10_000, doc="How many partitions a new topic has.")
    replication: int = option(1, low=1, high=100, doc="How many brokers keep a new topic.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = option(
        "PLAINTEXT", doc="How brokers are spoken to."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = option(
        "PLAIN", doc="How we log in with SASL."
    )
    username: str | None = option(None, doc="Who we are.")
    password: str | None = option(None, doc="The password of the user.")
    ca_file: str | None = option(None, doc="The file with the certificates that we trust.")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option(
        "none", doc="How messages are compressed."
    )
    linger_ms: int = option(5, low=0, high=60_000, doc="How long a message may wait for others.")
    delivery_timeout_ms: int = option(
        120_000, low=1, high=3_600_000, doc="After how long a message is given up."
    )
    transactional_id: str | None = option(
        None, doc="The name under which a producer has transactions; one producer at a time has it."
    )
    transaction_timeout_ms: int = option(
        60_000, low=1_000, high=900_000, doc="After how long a transaction is aborted."
    )
    session_timeout_ms: int = option(
        45_000, low=6_000, high=1_800_000, doc="After how long a silent member of a group is dead."
    )
    client_settings: str | None = option(
        None, doc="Further settings of Kafka's client, as name=value with commas between."
    )
