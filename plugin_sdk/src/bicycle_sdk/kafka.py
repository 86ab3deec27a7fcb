"""Kafka as a source and as a sink, described by chained calls; nothing here talks to a broker.

A builder collects settings. ``build_connector`` makes a descriptor of them: the word ``kafka``,
JSON properties, and the objects that are no JSON beside them. What was not set is left out, since
the connector knows the defaults; it also checks what only the broker or its client can tell.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, Literal, NoReturn, Protocol, Self, TypeVar

from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.record_types import clash, function_types, type_name
from bicycle_sdk.secrets import Secret

__all__ = [
    "DecodingSchema",
    "DeliveryGuarantee",
    "EncodingSchema",
    "KafkaFormat",
    "KafkaSinkBuilder",
    "KafkaSourceBuilder",
    "is_secret_property",
]

T = TypeVar("T")
KafkaFormat = Literal["json", "string", "bytes", "msgpack"]
_Offsets = Mapping[str, Mapping[int, int]]

_MILLISECOND = timedelta(milliseconds=1)
_CO_COROUTINE = 0x80  # As in ``inspect``, which is slow to import.
_FORMATS: Mapping[str, Any] = {"json": None, "string": str, "bytes": bytes, "msgpack": None}
_SECRET_ENDINGS = ("password", "secret", "passphrase", "key.pem")
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class DeliveryGuarantee(Enum):
    """How often a record is found in the topic after a crash."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class DecodingSchema(Protocol):
    """Turns the bytes of a message into a value; called on workers, once per message.

    Whatever it raises makes the message a bad record, which the source's ``on_error`` treats.
    """

    def decode(self, data: bytes, /) -> Any:
        """Return the value."""


class EncodingSchema(Protocol):
    """Turns a value into the bytes of a message; called on workers, once per record."""

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes."""


def is_secret_property(name: str) -> bool:
    """Return whether a property of the client holds a secret, and may be given as ``Secret`` only.

    Example:
        >>> [is_secret_property(name) for name in ("sasl.password", "ssl.key.pem", "client.id")]
        [True, True, False]
    """
    return name.lower().endswith(_SECRET_ENDINGS)


class _KafkaBuilder:
    """What both builders share: brokers, properties of the client, security, formats."""

    def __init__(self, brokers: str, record_type: Any) -> None:
        self._given_type = record_type
        self._settings: dict[str, Any] = {"brokers": brokers}
        self._payloads: dict[str, Any] = {}
        self._properties: dict[str, Any] = {}
        self._protocol_parts: set[str] = set()
        if not brokers.strip():
            self._refuse("brokers", f"found {brokers!r}", "give host:port, several with commas")

    def property(self, name: str, value: str | float | bool | Secret) -> Self:
        """Set a property of the client library (librdkafka) by its name there.

        Raises:
            StreamDefinitionError: the property holds a secret, and ``value`` is plain text.
        """
        if isinstance(value, Secret):
            self._properties[name] = value.to_json()
            return self
        if is_secret_property(name):
            hint = 'give Secret.env("NAME") or Secret.file(path): a graph is stored and shown'
            self._refuse("property", f"{name} is given as plain text", hint)
        self._properties[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def properties(self, properties: Mapping[str, str | float | bool | Secret]) -> Self:
        """Set several properties of the client library."""
        for name, value in properties.items():
            self.property(name, value)
        return self

    def sasl(self, mechanism: str, username: str | Secret, password: Secret) -> Self:
        """Log in with a name and a password.

        Args:
            mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; for others use ``property``.
            username: The name.
            password: Where the password is found.
        """
        if mechanism not in _PASSWORD_MECHANISMS:
            known = ", ".join(_PASSWORD_MECHANISMS)
            hint = f"one of {known}; others by property('sasl.mechanism', …)"
            self._refuse("sasl", f"mechanism is {mechanism!r}", hint)
        self._protocol_parts.add("SASL")
        return self.properties(
            {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
        )

    def tls(
        self,
        *,
        ca_location: str | None = None,
        certificate_location: str | None = None,
        key_location: str | None = None,
        key_password: Secret | None = None,
    ) -> Self:
        """Encrypt the connection. Files must be readable under the same path on every host.

        Args:
            ca_location: PEM file of the authorities to trust; None: those of the machine.
            certificate_location: PEM file of the client's own certificate.
            key_location: PEM file of the client's private key.
            key_password: Where the password of that key is found.
        """
        self._protocol_parts.add("SSL")
        given: dict[str, str | Secret | None] = {
            "ssl.ca.location": ca_location,
            "ssl.certificate.location": certificate_location,
            "ssl.key.location": key_location,
            "ssl.key.password": key_password,
        }
        return self.properties({name: v for name, v in given.items() if v is not None})

    # --- what the builders make of it --------------------------------------------------------

    def _declared_type(self) -> Any:
        """Return the keyword's type, or that of the brackets, or None.

        ``KafkaSourceBuilder[str](…)`` leaves its argument on the instance, after the constructor.
        """
        if self._given_type is not None:
            return self._given_type
        arguments = typing.get_args(getattr(self, "__orig_class__", None))
        says_nothing = (TypeVar, typing.ForwardRef, str)
        if not arguments or arguments[0] is Any or isinstance(arguments[0], says_nothing):
            return None
        return arguments[0]

    def _set_format(self, call: str, setting: str, format: str) -> Self:
        if format not in _FORMATS:
            hint = f"one of {', '.join(_FORMATS)}; anything else by a schema object"
            self._refuse(call, f"format {format!r} is not known", hint)
        if self._settings.get(setting) != "schema":  # A schema object wins over a format.
            self._settings[setting] = format
        return self

    def _set_schema(self, call: str, side: str, schema: Any, method: str) -> Self:
        if not callable(getattr(schema, method, None)):
            found = type(schema).__name__
            self._refuse(call, f"{found} has no method {method}", f"give an object with {method}()")
        self._settings[f"{side}_format"] = "schema"
        self._payloads[f"{side}_schema"] = schema
        return self

    def _set_duration(self, call: str, setting: str, duration: timedelta) -> Self:
        if duration < _MILLISECOND:
            self._refuse(call, f"found {duration}", "give a timedelta of 1 ms or more")
        self._settings[setting] = duration // _MILLISECOND
        return self

    def _built_settings(self) -> dict[str, Any]:
        properties = dict(self._properties)
        if self._protocol_parts:
            transport = "SSL" if "SSL" in self._protocol_parts else "PLAINTEXT"
            protocol = f"SASL_{transport}" if "SASL" in self._protocol_parts else transport
            properties.setdefault("security.protocol", protocol)
        return dict(self._settings) | ({"properties": properties} if properties else {})

    def _refuse(self, call: str, problem: str, hint: str) -> NoReturn:
        raise StreamDefinitionError(
            call=f"{type(self).__name__}.{call}", problem=problem, hint=hint
        )


class KafkaSourceBuilder(_KafkaBuilder, Generic[T]):
    """Describes what is read from Kafka, for ``env.add_source``; calls change the builder.

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
            self._refuse("topics", found, "give exactly one of the three; topics is a list")
        if topic_pattern:
            self._settings["topic_pattern"] = topic_pattern
        else:
            self._settings["topics"] = list(topics) or [topic]

    def group_id(self, name: str) -> Self:
        """Set the group to which progress is reported; ``bicycle-default-group`` otherwise."""
        if not name:
            self._refuse("group_id", "the name is empty", "give a name")
        self._settings["group_id"] = name
        return self

    def starting_offsets(self, where: Literal["earliest", "latest"] | datetime | _Offsets) -> Self:
        """Set where the first run begins; later runs go on where the last one stopped.

        Args:
            where: ``earliest`` (the default), ``latest``, the first message at or after a time
                (with a time zone), or ``{topic: {partition: offset}}``.
        """
        self._settings["starting_offsets"] = self._starting_offsets(where)
        return self

    def deserializer(self, format: KafkaFormat) -> Self:
        """Set the format of values: json, string, bytes or msgpack."""
        return self._set_format("deserializer", "value_format", format)

    def key_deserializer(self, format: KafkaFormat) -> Self:
        """Set the format of keys, as ``ctx.message`` shows them; bytes otherwise."""
        return self._set_format("key_deserializer", "key_format", format)

    def with_schema(self, schema: DecodingSchema) -> Self:
        """Decode values with an object: Avro, Protobuf, a format of your own."""
        return self._set_schema("with_schema", "value", schema, "decode")

    def with_key_schema(self, schema: DecodingSchema) -> Self:
        """Decode keys with an object."""
        return self._set_schema("with_key_schema", "key", schema, "decode")

    def bounded(self) -> Self:
        """End when all is read that was there at the first start."""
        self._settings["bounded"] = True
        return self

    def discovery_interval(self, interval: timedelta) -> Self:
        """Set how often new partitions and topics are looked for; every 10 s otherwise."""
        return self._set_duration("discovery_interval", "discovery_ms", interval)

    def on_data_loss(self, action: Literal["fail", "earliest", "latest"]) -> Self:
        """Set what to do when messages are gone before they were read; ``fail`` otherwise."""
        if action not in ("fail", "earliest", "latest"):
            self._refuse("on_data_loss", f"found {action!r}", "one of fail, earliest, latest")
        self._settings["on_data_loss"] = action
        return self

    def build_connector(self) -> SourceDescriptor[T]:
        """Return the source as a plain value; ``env.add_source`` takes the builder as well.

        Raises:
            StreamDefinitionError: the format does not give records of the declared type.
        """
        declared = self._declared_type()
        settings = self._built_settings()
        format = settings.setdefault("value_format", _format_of(declared))
        made = _FORMATS.get(format)
        if clash(made, declared):
            found = f"format {format!r} gives {type_name(made)}, not {type_name(declared)}"
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


class KafkaSinkBuilder(_KafkaBuilder, Generic[T]):
    """Describes what is written to Kafka, for ``stream.sink_to``; calls change the builder.

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

    def __init__(self, brokers: str, topic: str, *, record_type: type[T] | None = None) -> None:
        super().__init__(brokers, record_type)
        if not topic:
            self._refuse("topic", f"found {topic!r}", "give the name of a topic")
        self._settings["topic"] = topic

    def key(self, function: Callable[[T], Any]) -> Self:
        """Set the key: bytes, a string, None, or anything that JSON can say. None otherwise."""
        return self._set_function("key", function)

    def value(self, function: Callable[[T], Any]) -> Self:
        """Set the value; the record itself otherwise. None deletes the key in compacted topics.

        The format follows what the function is annotated to return; without annotation it is that
        of the records, so name a ``serializer`` when the function changes the type.
        """
        return self._set_function("value", function)

    def headers(self, function: Callable[[T], Iterable[tuple[str, str | bytes | None]]]) -> Self:
        """Set the headers; none otherwise."""
        return self._set_function("headers", function)

    def timestamp(self, function: Callable[[T], int | None]) -> Self:
        """Set the time of the message in ms since 1970; for None and otherwise that of writing."""
        return self._set_function("timestamp", function)

    def partition(self, function: Callable[[T], int | None]) -> Self:
        """Set the partition; for None and otherwise the client chooses one by the key."""
        return self._set_function("partition", function)

    def serializer(self, format: KafkaFormat) -> Self:
        """Set the format of values: json, string, bytes or msgpack."""
        return self._set_format("serializer", "value_format", format)

    def key_serializer(self, format: KafkaFormat) -> Self:
        """Set the format of keys; otherwise as they are: bytes, strings, anything else as JSON."""
        return self._set_format("key_serializer", "key_format", format)

    def with_schema(self, schema: EncodingSchema) -> Self:
        """Encode values with an object: Avro, Protobuf, a format of your own."""
        return self._set_schema("with_schema", "value", schema, "encode")

    def with_key_schema(self, schema: EncodingSchema) -> Self:
        """Encode keys with an object."""
        return self._set_schema("with_key_schema", "key", schema, "encode")

    def delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
        """Set what holds after a crash; at least once otherwise."""
        if guarantee not in tuple(DeliveryGuarantee):
            hint = " or ".join(str(member) for member in DeliveryGuarantee)
            self._refuse("delivery_guarantee", f"found {guarantee!r}", hint)
        self._settings["guarantee"] = guarantee.value
        return self

    def transactional_id_prefix(self, prefix: str) -> Self:
        """Set how the names of transactions begin; ``bicycle-<job>-<sink>`` otherwise.

        A prefix belongs to one sink of one job: two that share it throw each other out.
        """
        if not prefix:
            self._refuse("transactional_id_prefix", "the prefix is empty", "give a prefix")
        self._settings["transactional_id_prefix"] = prefix
        return self

    def transaction_timeout(self, timeout: timedelta) -> Self:
        """Set after which time without an answer the broker gives a transaction up."""
        return self._set_duration("transaction_timeout", "transaction_timeout_ms", timeout)

    def create_topic(
        self,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        retention: timedelta | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """Create the topic when it is missing; one that is there stays as it is.

        Args:
            partitions: Number of partitions.
            replication_factor: Number of brokers that hold each partition.
            retention: How long messages are kept; None: as the broker decides.
            config: Further settings of the topic, by their names there.
        """
        for name, number in (
            ("partitions", partitions),
            ("replication_factor", replication_factor),
        ):
            if number < 1:
                self._refuse("create_topic", f"{name} is {number}", "give 1 or more")
        settings = dict(config or {})
        if retention is not None:
            if retention < _MILLISECOND:
                self._refuse("create_topic", f"retention is {retention}", "give 1 ms or more")
            settings["retention.ms"] = str(retention // _MILLISECOND)
        self._settings["create_topic"] = {
            "partitions": partitions,
            "replication_factor": replication_factor,
            "config": settings,
        }
        return self

    def build_connector(self) -> SinkDescriptor[T]:
        """Return the sink as a plain value; ``stream.sink_to`` takes the builder as well."""
        declared = self._declared_type()
        settings = self._built_settings()
        written = self._written_type(declared)
        if written is not None:  # Otherwise the connector goes by the stream's type.
            settings.setdefault("value_format", _format_of(written))
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
        code = getattr(function, "__code__", None)
        is_async = code is not None and bool(code.co_flags & _CO_COROUTINE)
        if not callable(function) or is_async:
            self._refuse(role, f"found {function!r}", "give a plain function of the record")
        self._payloads[role] = function
        return self


def _format_of(record_type: Any) -> KafkaFormat:
    """Return the format that a type asks for: a new name, a note or ``| None`` changes nothing."""
    while hasattr(record_type, "__supertype__"):
        record_type = record_type.__supertype__
    if typing.get_origin(record_type) is typing.Annotated:
        return _format_of(typing.get_args(record_type)[0])
    if typing.get_origin(record_type) in (typing.Union, types.UnionType):
        members = set(typing.get_args(record_type)) - {types.NoneType}
        return _format_of(members.pop()) if len(members) == 1 else "json"
    if record_type is str:
        return "string"
    return "bytes" if record_type is bytes else "json"
