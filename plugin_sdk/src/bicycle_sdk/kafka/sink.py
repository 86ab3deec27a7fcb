"""The builder of a sink that writes a topic, and the guarantees of the sink."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Literal, Self, TypeVar

from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.formats import Format, FormatName, format_of
from bicycle_sdk.functions import KeySelector, refuse_class
from bicycle_sdk.kafka.base import EncodingSchema, KafkaBuilder
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

    options_class = KafkaSinkOptions

    def __init__(self, brokers: str, topic: str, *, record_type: type[T] | None = None) -> None:
        super().__init__(brokers, record_type)
        self._set("topic", topic)

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
        return self._set("message_time", which)

    def partition(self, function: Callable[[T], int | None]) -> Self:
        """Set the partition; for None and otherwise the client chooses one by the key."""
        return self._set_function("partition", function)

    def serializer(self, format: FormatName | Format) -> Self:
        """Set the format of values: json, string, bytes, msgpack, csv, or a ``Format``.

        Formats are made by the calls of ``bicycle_sdk.formats``, such as ``avro(schema)``.
        """
        return self._set_format("value_format", format, call="serializer")

    def key_serializer(self, format: FormatName | Format) -> Self:
        """Set the format of keys; by default bytes and strings unchanged, others as JSON."""
        return self._set_format("key_format", format, call="key_serializer")

    def with_schema(self, schema: EncodingSchema) -> Self:
        """Encode values with an object of the job: a format that no extension has."""
        return self._set_schema("value", schema, "encode", call="with_schema")

    def with_key_schema(self, schema: EncodingSchema) -> Self:
        """Encode keys with an object."""
        return self._set_schema("key", schema, "encode", call="with_key_schema")

    def delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
        """Set the delivery guarantee, by default at least once."""
        if guarantee not in tuple(DeliveryGuarantee):
            hint = " or ".join(str(member) for member in DeliveryGuarantee)
            self._refuse("delivery_guarantee", f"found {guarantee!r}", hint)
        return self._set("guarantee", guarantee.value, call="delivery_guarantee")

    def transactional_id_prefix(self, prefix: str) -> Self:
        """Set how the names of transactions begin; ``bicycle-<job>-<sink>`` otherwise.

        A prefix belongs to one sink of one job: two that share it throw each other out.
        """
        return self._set("transactional_id_prefix", prefix)

    def transaction_timeout(self, timeout: timedelta) -> Self:
        """Set the time after which brokers abort an open transaction, by default 60 s."""
        return self._set_duration("transaction_timeout_ms", timeout, call="transaction_timeout")

    def recovery_budget(self, duration: timedelta) -> Self:
        """Set which interruption of publishing a transaction must outlast; 30 s otherwise."""
        return self._set_duration("recovery_budget_ms", duration, call="recovery_budget")

    def publish_threads(self, count: int) -> Self:
        """Set how many writers publish at the same time, by default 4."""
        return self._set("publish_threads_max", count, call="publish_threads")

    def publish_timeout(self, timeout: timedelta) -> Self:
        """Set for how long brokers may be away before the job ends; 15 minutes otherwise."""
        return self._set_duration("publish_timeout_ms", timeout, call="publish_timeout")

    def marker_topic(self, name: str) -> Self:
        """Set the compacted topic of the epoch markers; ``<prefix>-marker`` otherwise."""
        return self._set("marker_topic", name)

    def on_rewind(self, action: Literal["fail", "publish_again"]) -> Self:
        """Set the action after a restore of a state older than published, by default fail."""
        return self._set("on_rewind", action)

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
        settings = dict(config or {})
        if retention is not None:
            if retention < _MILLISECOND:
                self._refuse("create_topic", f"retention is {retention}", "give 1 ms or more")
            settings["retention.ms"] = str(retention // _MILLISECOND)
        plan = {"partitions": partitions, "replication_factor": replication_factor}
        return self._set("create_topic", {**plan, "config": settings})

    def build_connector(self) -> SinkDescriptor[T]:
        """Return the sink as a plain value; ``stream.sink_to`` takes the builder as well."""
        declared = self._declared_type()
        written = self._written_type(declared)
        # Without a type the connector uses that of the stream.
        options = self._options(**({} if written is None else {"value_format": format_of(written)}))
        built: SinkDescriptor[T] = options.build_connector()
        return dataclasses.replace(built, payloads=dict(self._payloads), input_type=declared)

    def _written_type(self, declared: Any) -> Any:
        function = self._payloads.get("value")
        return declared if function is None else function_types(function, "__call__").gives

    def _set_function(self, role: str, function: Any) -> Self:
        refuse_class(f"{type(self).__name__}.{role}", function)
        is_selector = role == "key" and isinstance(function, KeySelector)
        called = function.get_key if is_selector else function
        code = getattr(called, "__code__", None)
        is_async = code is not None and bool(code.co_flags & _CO_COROUTINE)
        if not callable(called) or is_async:
            self._refuse(role, f"found {function!r}", "pass a plain function of the record")
        self._payloads[role] = function
        return self
