"""The builder of a sink that writes a topic, and the guarantees of the sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Literal, Self, TypeVar

from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.formats import Format, FormatName
from bicycle_sdk.functions import KeySelector
from bicycle_sdk.kafka.base import EncodingSchema, KafkaBuilder, format_of
from bicycle_sdk.kafka.options import KafkaSinkOptions
from bicycle_sdk.record_types import function_types

__all__ = ["DeliveryGuarantee", "KafkaSinkBuilder"]

T = TypeVar("T")
_MILLISECOND = timedelta(milliseconds=1)
_CO_COROUTINE = 0x80  # As in ``inspect``, which is slow to import.


class DeliveryGuarantee(Enum):
    """The delivery guarantee: how often a record is found in the topic after a crash."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class KafkaSinkBuilder(KafkaBuilder, Generic[T]):
    """A builder of a Kafka sink for ``stream.sink_to``; its calls change the builder.

    The functions get the record as it comes; they run on workers, once per record. Values are
    strings for ``str``, raw for ``bytes``, and JSON for any other type.

    Args:
        brokers: ``host:port``, several with commas.
        topic: The topic.
        record_type: The type of the records, where brackets are inconvenient.

    Example:
        >>> sink = KafkaSinkBuilder[str]("localhost:9092", "words").key(str.lower)
        >>> sorted(sink.build_connector().properties)
        ['brokers', 'topic', 'value_format']
    """

    _options = KafkaSinkOptions

    def __init__(self, brokers: str, topic: str, *, record_type: type[T] | None = None) -> None:
        super().__init__(brokers, record_type)
        if not topic:
            self._refuse("topic", f"found {topic!r}", "give the name of a topic")
        self._settings["topic"] = topic

    def key(self, function: KeySelector[T, Any] | Callable[[T], Any]) -> Self:
        """Set the key: bytes, a string, None, or a JSON value; by default None. None otherwise."""
        return self._set_function("key", function)

    def value(self, function: Callable[[T], Any]) -> Self:
        """Set the value; the record itself otherwise. None deletes the key in compacted topics.

        The format follows the annotation of the function's result; without annotation each value is
        written by its own type.
        """
        return self._set_function("value", function)

    def headers(self, function: Callable[[T], Iterable[tuple[str, str | bytes | None]]]) -> Self:
        """Set the headers, by default empty."""
        return self._set_function("headers", function)

    def timestamp(self, function: Callable[[T], int | None]) -> Self:
        """Set the time of the message in ms since 1970; for None that of writing.

        Otherwise it is the event time of the record, where it has one.
        """
        return self._set_function("timestamp", function)

    def message_time(self, which: Literal["event", "written"]) -> Self:
        """Set whether messages have their record's event time, or the time of writing."""
        return self._set_word("message_time", which)

    def partition(self, function: Callable[[T], int | None]) -> Self:
        """Set the partition; for None and otherwise the client chooses one by the key."""
        return self._set_function("partition", function)

    def serializer(self, format: FormatName | Format) -> Self:
        """Set the format of values: json, string, bytes, msgpack, csv, or a ``Format``.

        Formats are made by the calls of ``bicycle_sdk.formats``, such as ``avro(schema)``.
        """
        return self._set_format("serializer", format)

    def key_serializer(self, format: FormatName | Format) -> Self:
        """Set the format of keys; by default bytes and strings unchanged, others as JSON."""
        return self._set_format("key_serializer", format)

    def with_schema(self, schema: EncodingSchema) -> Self:
        """Encode values with an object of the job: a format that no extension has."""
        return self._set_schema("with_schema", "value", schema, "encode")

    def with_key_schema(self, schema: EncodingSchema) -> Self:
        """Encode keys with an object."""
        return self._set_schema("with_key_schema", "key", schema, "encode")

    def delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
        """Set the delivery guarantee, by default at least once."""
        if guarantee not in tuple(DeliveryGuarantee):
            hint = " or ".join(str(member) for member in DeliveryGuarantee)
            self._refuse("delivery_guarantee", f"found {guarantee!r}", hint)
        self._settings["guarantee"] = guarantee.value
        return self

    def transactional_id_prefix(self, prefix: str) -> Self:
        """Set how the names of transactions begin; ``bicycle-<job>-<sink>`` otherwise.

        A prefix belongs to one sink of one job: two that share it throw each other out.
        """
        return self._set_name("transactional_id_prefix", prefix, "give a prefix")

    def transaction_timeout(self, timeout: timedelta) -> Self:
        """Set the time after which brokers abort an open transaction, by default 60 s."""
        return self._set_duration("transaction_timeout", timeout)

    def recovery_budget(self, duration: timedelta) -> Self:
        """Set which interruption of publishing a transaction must outlast; 30 s otherwise."""
        return self._set_duration("recovery_budget", duration)

    def publish_timeout(self, timeout: timedelta) -> Self:
        """Set for how long brokers may be away before the job ends; 15 minutes otherwise."""
        return self._set_duration("publish_timeout", timeout)

    def marker_topic(self, name: str) -> Self:
        """Set the compacted topic of the epoch markers; ``<prefix>-marker`` otherwise."""
        return self._set_name("marker_topic", name, "give the name of a topic")

    def on_rewind(self, action: Literal["fail", "publish_again"]) -> Self:
        """Set the action after a restore of a state older than published, by default fail."""
        return self._set_word("on_rewind", action)

    def create_topic(
        self,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        retention: timedelta | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """Create the topic when it is missing; one that is there stays as it is.

        Args:
            partitions: Number of partitions; None: as the brokers decide.
            replication_factor: Number of brokers that hold each partition; None likewise.
            retention: How long messages are kept; None: as the broker decides.
            config: Further settings of the topic, by their names there.
        """
        numbers = {"partitions": partitions, "replication_factor": replication_factor}
        plan: dict[str, Any] = {name: n for name, n in numbers.items() if n is not None}
        for name, number in plan.items():
            if number < 1:
                self._refuse("create_topic", f"{name} is {number}", "give 1 or more")
        settings = dict(config or {})
        if retention is not None:
            if retention < _MILLISECOND:
                self._refuse("create_topic", f"retention is {retention}", "give 1 ms or more")
            settings["retention.ms"] = str(retention // _MILLISECOND)
        self._settings["create_topic"] = plan | ({"config": settings} if settings else {})
        return self

    def build_connector(self) -> SinkDescriptor[T]:
        """Return the sink as a plain value; ``stream.sink_to`` takes the builder as well."""
        declared = self._declared_type()
        settings = self._built_settings()
        written = self._written_type(declared)
        if written is not None:  # Otherwise the connector goes by the stream's type.
            settings.setdefault("value_format", format_of(written))
        return SinkDescriptor(
            connector_type="kafka",
            properties=settings,
            payloads=dict(self._payloads),
            input_type=declared,
        )

    def _written_type(self, declared: Any) -> Any:
        function = self._payloads.get("value")
        return declared if function is None else function_types(function, "__call__").gives

    def _set_function(self, role: str, function: Any) -> Self:
        is_selector = role == "key" and isinstance(function, KeySelector)
        called = function.get_key if is_selector else function
        code = getattr(called, "__code__", None)
        is_async = code is not None and bool(code.co_flags & _CO_COROUTINE)
        if not callable(called) or is_async:
            self._refuse(role, f"found {function!r}", "pass a plain function of the record")
        self._payloads[role] = function
        return self
