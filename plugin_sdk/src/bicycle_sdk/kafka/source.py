"""The builder of a source that reads topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, Literal, Self, TypeVar

from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.formats import Format, FormatName, format_of
from bicycle_sdk.kafka.base import DecodingSchema, KafkaBuilder
from bicycle_sdk.kafka.options import KafkaSourceOptions
from bicycle_sdk.record_types import clash, type_name

__all__ = ["KafkaSourceBuilder"]

T = TypeVar("T")
_Offsets = Mapping[str, Mapping[int, int]]


class KafkaSourceBuilder(KafkaBuilder, Generic[T]):
    """A builder of a Kafka source for ``env.add_source``, changed by its calls.

    Values are strings for ``str``, raw for ``bytes``, and JSON checked against the type for any
    other type. A schema object wins over ``deserializer``, which wins over the type.

    Args:
        brokers: ``host:port``, several with commas.
        topic: The topic; or else
        topics: several topics; or else
        topic_pattern: a regular expression that whole topic names match, new ones included.
        record_type: The type of the records, where brackets are inconvenient.

    Example:
        >>> source = KafkaSourceBuilder[str]("localhost:9092", "lines").group_id("readers")
        >>> source.build_connector().properties["value_format"]
        'string'
    """

    options_class = KafkaSourceOptions

    def __init__(
        self,
        brokers: str,
        topic: str | None = None,
        *,
        topics: Sequence[str] = (),
        topic_pattern: str | None = None,
        record_type: type[T] | None = None,
    ) -> None:
        super().__init__(brokers, record_type)
        if topic and topics:
            found = f"topic {topic!r} and topics {topics!r} are set"
            self._refuse("topics", found, "set one of them; topics is a list")
        if topic or topics:
            self._set("topics", (topic,) if topic else topics)
        if topic_pattern:
            self._set("topic_pattern", topic_pattern)
        self._options()

    def group_id(self, name: str) -> Self:
        """Set the group for reported progress, by default ``bicycle-default-group``."""
        return self._set("group_id", name)

    def starting_offsets(self, where: Literal["earliest", "latest"] | datetime | _Offsets) -> Self:
        """Set where the first run begins; later runs continue where the last one stopped.

        Args:
            where: ``earliest`` (the default), ``latest``, the first message at or after a time
                (with a time zone), or ``{topic: {partition: offset}}``.
        """
        return self._set("starting_offsets", where)

    def deserializer(self, format: FormatName | Format) -> Self:
        """Set the format of values: json, string, bytes, msgpack, csv, or a ``Format``.

        Formats are made by the calls of ``bicycle_sdk.formats``, such as ``avro(schema)``.
        """
        return self._set_format("value_format", format, call="deserializer")

    def key_deserializer(self, format: FormatName | Format) -> Self:
        """Set the format of keys, as ``ctx.message`` shows them; bytes otherwise."""
        return self._set_format("key_format", format, call="key_deserializer")

    def with_schema(self, schema: DecodingSchema) -> Self:
        """Decode values with an object of the job: a format that no extension has."""
        return self._set_schema("value", schema, "decode", call="with_schema")

    def with_key_schema(self, schema: DecodingSchema) -> Self:
        """Decode keys with an object."""
        return self._set_schema("key", schema, "decode", call="with_key_schema")

    def bounded(self) -> Self:
        """End when all is read that was there at the first start."""
        return self._set("bounded", value=True)

    def transaction_wait(self, limit: timedelta) -> Self:
        """Set how long bounded reading waits for open transactions; 15 minutes otherwise.

        Brokers end a transaction at its timeout, which is at most 15 minutes by default. After the
        limit the source stops before the transaction, and the log reports the unread rest.
        """
        return self._set_duration("transaction_wait_ms", limit, call="transaction_wait")

    def discovery_interval(self, interval: timedelta) -> Self:
        """Set how often new partitions and topics are looked for; every 10 s otherwise."""
        return self._set_duration("discovery_interval_ms", interval, call="discovery_interval")

    def on_data_loss(self, action: Literal["fail", "earliest", "latest"]) -> Self:
        """Set the action if messages are removed before they are read, default ``fail``."""
        return self._set("on_data_loss", action)

    def build_connector(self) -> SourceDescriptor[T]:
        """Return the source as a plain value; ``env.add_source`` also accepts a builder.

        Raises:
            StreamDefinitionError: the format's records are not of the declared type.
        """
        declared = self._declared_type()
        options = self._options(value_format=format_of(declared))
        made = options.output_type()
        if clash(made, declared):
            found = f"format {options.value_format!r} returns {type_name(made)}"
            hint = "change the format or the type"
            self._refuse("deserializer", f"{found}, not {type_name(declared)}", hint)
        return dataclasses.replace(
            options.build_connector(),
            payloads=dict(self._payloads),
            output_type=made if declared is None else declared,
        )
