"""The keys of sources and sinks; ``SOURCES`` and ``SINKS`` tell which struct a word stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.values import (
    NOTHING_NAMED,
    Duration,
    FieldType,
    Port,
    Positive,
    Scalar,
    Text,
    describe,
)

__all__ = [
    "SINKS",
    "SOURCES",
    "CollectionSource",
    "ConsoleSink",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "KafkaSink",
    "KafkaSource",
    "SocketSink",
    "SocketSource",
]


class FileSource(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Files: JSON lines, CSV with a header line, Parquet, or lines of text."""

    path: Annotated[Text, describe("File, glob or directory.")]
    format: Annotated[
        Literal["jsonl", "csv", "parquet", "text"], describe("How the files are written.")
    ] = "jsonl"
    time_field: Annotated[
        str | None, describe("Field with the event time: RFC 3339, or ms since 1970.")
    ] = None
    fields: Annotated[
        dict[str, FieldType] | None,
        describe("Types of the fields; records that have others are bad. Others are not read."),
    ] = None
    follow: Annotated[bool, describe("Wait for appended lines and new files.")] = False


class KafkaSource(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Messages of a Kafka topic."""

    bootstrap_servers: Annotated[Text, describe("Brokers: host:port, several with commas.")]
    topic: Annotated[Text, describe("Topic, several with commas.")]
    group_id: Annotated[str, describe("Group to which progress is reported.")] = (
        "bicycle-default-group"
    )
    format: Annotated[
        Literal["any", "json", "string", "bytes"],
        describe(
            "json: what is no JSON is a bad record. any: an object gets _topic, _partition and "
            '_offset, other text becomes {"bytes": text}, other bytes {"bytes_b64": base64}.'
        ),
    ] = "any"
    time_field: Annotated[
        str | None, describe("Field with the event time; else that of the message counts.")
    ] = None
    fields: Annotated[
        dict[str, FieldType] | None, describe("Types of the fields, with the format json.")
    ] = None
    auto_offset_reset: Annotated[
        Literal["earliest", "latest"], describe("Where a job that never ran begins.")
    ] = "earliest"
    bounded: Annotated[bool, describe("End when all is read that was there at the start.")] = False
    commit_interval_ms: Annotated[
        int | None, describe(f"{NOTHING_NAMED}: progress is sealed and reported with each epoch.")
    ] = None
    path: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""
    properties: Annotated[
        dict[str, Scalar],
        describe("Properties of the client; a secret is given as env:NAME or file:PATH."),
    ] = field(default_factory=dict)


class SocketSource(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Lines that clients send to a TCP server."""

    host: Annotated[str, describe("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, describe("Port to listen on.")] = 9_999
    clients_max: Annotated[Positive | None, describe("So many clients at a time.")] = None


class GeneratorSource(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Seven words in a circle, to try things out."""

    rate_ms: Annotated[int, Meta(ge=0, description="Pause between two words.")] = 100
    count: Annotated[int | None, Meta(description="Words in all; else for ever.")] = None


class CollectionSource(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Records that stand in the file itself."""

    items: Annotated[list[Any], describe("The records.")]
    time_field: Annotated[str | None, describe("Field with the event time.")] = None


# --- sinks ---------------------------------------------------------------------------------------


class FileSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A directory of whole files; without a directory, lines on the console."""

    out_dir: Annotated[str, describe("The directory.")] = ""
    format: Annotated[Literal["jsonl", "csv", "text"], describe("How files are written.")] = "jsonl"
    roll_bytes: Annotated[Positive | None, describe("A file ends when it has this size.")] = None
    roll_after: Annotated[Duration | None, describe("A file ends when it is this old.")] = None
    time_field: Annotated[
        str | None, describe("Field that gets the event time, in ms since 1970.")
    ] = None


class KafkaSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A Kafka topic."""

    bootstrap_servers: Annotated[Text, describe("Brokers: host:port, several with commas.")]
    topic: Annotated[Text, describe("The topic.")]
    acks: Annotated[
        Literal["all", "1", "0", "-1"], describe("Which brokers confirm a message.")
    ] = "all"
    key_field: Annotated[str | None, describe("Field with the key of a message.")] = None
    format: Annotated[
        Literal["json", "string", "bytes"] | None, describe("How values are written; else by type.")
    ] = None
    guarantee: Annotated[
        Literal["at-least-once", "exactly-once"], describe("What holds after a crash.")
    ] = "at-least-once"
    transactional_id_prefix: Annotated[
        str | None, describe("How the names of transactions begin.")
    ] = None
    out_dir: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""
    properties: Annotated[
        dict[str, Scalar],
        describe("Properties of the client; a secret is given as env:NAME or file:PATH."),
    ] = field(default_factory=dict)


class SocketSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Lines for every client of a TCP server."""

    host: Annotated[str, describe("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, describe("Port to listen on.")] = 9_998
    clients_max: Annotated[Positive | None, describe("So many clients at a time.")] = None


class ConsoleSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A line for each record on the console."""


SOURCES: Mapping[str, type[Struct]] = {
    "file": FileSource,
    "kafka": KafkaSource,
    "socket": SocketSource,
    "generator": GeneratorSource,
    "collection": CollectionSource,
}
SINKS: Mapping[str, type[Struct]] = {
    "file": FileSink,
    "kafka": KafkaSink,
    "socket": SocketSink,
    "console": ConsoleSink,
}
