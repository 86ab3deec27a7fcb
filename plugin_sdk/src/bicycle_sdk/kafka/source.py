"""The builder of a source that reads topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Self, TypeVar

from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.formats import Format, FormatName, type_given_by
from bicycle_sdk.kafka.base import DecodingSchema, KafkaBuilder, format_of
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

    _options = KafkaSourceOptions

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
        given = [item for item in (topic, topics, topic_pattern) if item]
        if len(given) != 1 or isinstance(topics, str):
            found = f"topic {topic!r}, topics {topics!r}, topic_pattern {topic_pattern!r}"
            self._refuse("topics", found, "set exactly one of the three; topics is a list")
        if topic_pattern:
            self._settings["topic_pattern"] = topic_pattern
        else:
            self._settings["topics"] = list(topics) or [topic]

    def group_id(self, name: str) -> Self:
        """Set the group for reported progress, by default ``bicycle-default-group``."""
        return self._set_name("group_id", name, "give a name")

    def starting_offsets(self, where: Literal["earliest", "latest"] | datetime | _Offsets) -> Self:
        """Set where the first run begins; later runs continue where the last one stopped.

        Args:
            where: ``earliest`` (the default), ``latest``, the first message at or after a time
                (with a time zone), or ``{topic: {partition: offset}}``.
        """
        self._settings["starting_offsets"] = self._starting_offsets(where)
        return self

    def deserializer(self, format: FormatName | Format) -> Self:
        """Set the format of values: json, string, bytes, msgpack, csv, or a ``Format``.

        Formats are made by the calls of ``bicycle_sdk.formats``, such as ``avro(schema)``.
        """
        return self._set_format("deserializer", format)

    def key_deserializer(self, format: FormatName | Format) -> Self:
        """Set the format of keys, as ``ctx.message`` shows them; bytes otherwise."""
        return self._set_format("key_deserializer", format)

    def with_schema(self, schema: DecodingSchema) -> Self:
        """Decode values with an object of the job: a format that no extension has."""
        return self._set_schema("with_schema", "value", schema, "decode")

    def with_key_schema(self, schema: DecodingSchema) -> Self:
        """Decode keys with an object."""
        return self._set_schema("with_key_schema", "key", schema, "decode")

    def bounded(self) -> Self:
        """End when all is read that was there at the first start."""
        self._settings["bounded"] = True
        return self

    def transaction_wait(self, limit: timedelta) -> Self:
        """Set how long bounded reading waits for open transactions; 15 minutes otherwise.

        Brokers end a transaction at its timeout, which is at most 15 minutes by default. After the
        limit the source stops before the transaction, and the log reports the unread rest.
        """
        return self._set_duration("transaction_wait", limit)

    def discovery_interval(self, interval: timedelta) -> Self:
        """Set how often new partitions and topics are looked for; every 10 s otherwise."""
        return self._set_duration("discovery_interval", interval)

    def on_data_loss(self, action: Literal["fail", "earliest", "latest"]) -> Self:
        """Set the action if messages are removed before they are read, default ``fail``."""
        return self._set_word("on_data_loss", action)

    def build_connector(self) -> SourceDescriptor[T]:
        """Return the source as a plain value; ``env.add_source`` also accepts a builder.

        Raises:
            StreamDefinitionError: the format's records are not of the declared type.
        """
        declared = self._declared_type()
        settings = self._built_settings()
        format = settings.setdefault("value_format", format_of(declared))
        made = type_given_by(format)
        if clash(made, declared):
            found = f"format {format!r} returns {type_name(made)}, not {type_name(declared)}"
            self._refuse("deserializer", found, "change the format or the type")
        return SourceDescriptor(
            connector_type="kafka",
            properties=settings,
            payloads=dict(self._payloads),
            output_type=made if declared is None else declared,
        )

    def _starting_offsets(self, where: Any) -> Any:
        hint = 'give "earliest", "latest", a time with a zone, or {topic: {partition: offset}}'
        if isinstance(where, str) and where in ("earliest", "latest"):
            return where
        if isinstance(where, datetime) and where.tzinfo is not None:
            return {"timestamp_ms": max(0, int(where.timestamp() * 1_000))}
        if not isinstance(where, Mapping) or not where:
            self._refuse("starting_offsets", f"found {where!r}", hint)
        return {"offsets": {topic: self._offsets(topic, ps) for topic, ps in where.items()}}

    def _offsets(self, topic: object, partitions: Any) -> dict[str, int]:
        hint = 'give {"lines": {0: 17, 1: 4}}: topics, partitions, offsets'
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            self._refuse("starting_offsets", f"found {topic!r}: {partitions!r}", hint)
        for number in (*partitions, *partitions.values()):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                self._refuse("starting_offsets", f"{number!r} in topic {topic!r}", hint)
        return {str(partition): offset for partition, offset in sorted(partitions.items())}
