"""The keys of sources and sinks; ``SOURCES`` and ``SINKS`` tell which struct a word stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.values import (
    NOTHING_NAMED,
    ColumnWord,
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
    "DeltaSink",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "HttpSink",
    "IcebergSink",
    "KafkaSink",
    "KafkaSource",
    "ParquetSink",
    "PostgresSink",
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


class ParquetSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parquet files in folders; rows appear when files are whole."""

    out_dir: Annotated[Text, describe("The directory, or a URL such as s3://bucket/folder.")]
    columns: Annotated[
        dict[str, ColumnWord] | None,
        describe("Types of the columns; else event_time, and payload with the record as JSON."),
    ] = None
    partition_by: Annotated[
        Literal["date", "field", "none"] | None,
        describe(
            "Folders dt=DATE, FIELD=VALUE, or none. Else as the next two keys tell; without them "
            "by date where records have an event time."
        ),
    ] = None
    partition_field: Annotated[
        str | None,
        describe("Field whose values are the folders; event_time, or for dates nothing, is that."),
    ] = None
    partition_format: Annotated[
        str | None, describe("What dates are told apart by, such as %Y-%m; else %Y-%m-%d.")
    ] = None
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "none"], describe("How files are compressed.")
    ] = "snappy"
    max_rows: Annotated[Positive | None, describe("A file ends when it has so many rows.")] = None
    max_bytes: Annotated[Positive | None, describe("A file ends when it has about this size.")] = (
        None
    )
    max_age: Annotated[
        Duration | None, describe("All files end so long after their first row.")
    ] = None
    time_field: Annotated[
        str | None, describe("Column that gets the event time, beside those of the fields.")
    ] = None


class PostgresSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of a table of PostgreSQL."""

    url: Annotated[Text, describe("postgresql://user@host:port/database, without a password.")]
    table: Annotated[Text, describe("The table, or schema.table.")]
    columns: Annotated[
        dict[str, ColumnWord], Meta(min_length=1, description="Types of the columns.")
    ]
    password: Annotated[
        str | None, describe("Where it is: env:NAME or file:PATH; else where libpq finds it.")
    ] = None
    keys: Annotated[
        list[Text], describe("Columns that identify a row, which a record replaces; else it adds.")
    ] = field(default_factory=list)
    delete_field: Annotated[
        str | None, describe("Field of the record; where it is true, the row is deleted.")
    ] = None
    create_table: Annotated[bool, describe("Make the table when it is missing.")] = False
    on_rewind: Annotated[
        Literal["fail", "publish_again"],
        describe("When an older epoch was restored than was written."),
    ] = "fail"


class _LakeTable(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What tables of lakes have in common."""

    columns: Annotated[
        dict[str, ColumnWord], Meta(min_length=1, description="Types of the columns.")
    ]
    keys: Annotated[
        list[Text], describe("Columns that identify a row, which a record replaces; else it adds.")
    ] = field(default_factory=list)
    partition_by: Annotated[
        list[Text], describe("Columns by which a table that is made is put into folders.")
    ] = field(default_factory=list)
    time_field: Annotated[
        str | None, describe("Column that gets the event time, beside those of the fields.")
    ] = None
    max_rows: Annotated[Positive | None, describe("Rows are committed when so many wait.")] = None
    max_bytes: Annotated[Positive | None, describe("They are committed at about this size.")] = None
    max_age: Annotated[Duration | None, describe("They are committed so long after the first.")] = (
        None
    )
    on_rewind: Annotated[
        Literal["fail", "publish_again"],
        describe("When an older epoch was restored than was written."),
    ] = "fail"


class DeltaSink(_LakeTable, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of a Delta table, which is made where it is missing."""

    out_dir: Annotated[Text, describe("Directory of the table, or a URL.")]
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "none"], describe("How files are compressed.")
    ] = "snappy"


class IcebergSink(_LakeTable, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of an Iceberg table, which is made where it is missing."""

    catalog: Annotated[
        Text, describe("sqlite:////data/lake.db, or postgresql://user@host:port/database.")
    ]
    warehouse: Annotated[Text, describe("Directory or URL below which new tables lie.")]
    table: Annotated[Text, describe("namespace.table.")]
    catalog_name: Annotated[str | None, describe("Name within the database.")] = None
    catalog_password: Annotated[str | None, describe("Where it is: env:NAME or file:PATH.")] = None


class HttpSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Requests to a server, with records as JSON."""

    url: Annotated[Text, describe("http://… or https://…, without a password.")]
    method: Annotated[Literal["POST", "PUT"], describe("Method of the requests.")] = "POST"
    headers: Annotated[dict[str, str], describe("More headers.")] = field(default_factory=dict)
    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets: env:NAME or file:PATH.")
    ] = field(default_factory=dict)
    body: Annotated[
        Literal["array", "object", "keyed"],
        describe("An array of records, one record, or an array of {key, record}."),
    ] = "array"
    batch_records: Annotated[Positive | None, describe("Records in a request, at most.")] = None
    idempotent: Annotated[
        bool, describe("The server drops a request whose Idempotency-Key it has seen.")
    ] = False
    on_refused: Annotated[
        Literal["keep", "fail"],
        describe("Keep a record that the server refuses beside the checkpoint, or end the job."),
    ] = "keep"
    timeout: Annotated[Duration | None, describe("How long an answer may take.")] = None


class SocketSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Lines for every client of a TCP server."""

    host: Annotated[str, describe("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, describe("Port to listen on.")] = 9_998
    clients_max: Annotated[Positive | None, describe("So many clients at a time.")] = None


class ConsoleSink(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The console: a line for each record, or a table for each epoch."""

    format: Annotated[Literal["lines", "table"], describe("How records are shown.")] = "lines"
    columns: Annotated[
        dict[str, ColumnWord] | None, describe("Types of the columns of a table.")
    ] = None
    rows: Annotated[Positive | None, describe("Rows of an epoch that a table shows.")] = None


SOURCES: Mapping[str, type[Struct]] = {
    "file": FileSource,
    "kafka": KafkaSource,
    "socket": SocketSource,
    "generator": GeneratorSource,
    "collection": CollectionSource,
}
SINKS: Mapping[str, type[Struct]] = {
    "file": FileSink,
    "delta": DeltaSink,
    "http": HttpSink,
    "iceberg": IcebergSink,
    "kafka": KafkaSink,
    "parquet": ParquetSink,
    "postgres": PostgresSink,
    "socket": SocketSink,
    "console": ConsoleSink,
}
