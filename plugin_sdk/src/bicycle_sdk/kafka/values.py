"""Types of Kafka's options: client properties, start offsets, a topic's creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from bicycle_sdk.option_values import OptionValueError
from bicycle_sdk.secrets import Secret

__all__ = ["KafkaProperties", "StartingOffsets", "TopicPlan", "is_secret_property"]

_SECRET_ENDINGS = ("password", "secret", "passphrase", "key.pem")
_BROKER_DEFAULT = -1
_SECRET_HINT = (
    'use Secret.env("NAME") or Secret.file(path), because the graph is stored and displayed'
)


def is_secret_property(name: str) -> bool:
    """Return whether a client property holds a secret, which requires a ``Secret``.

    Example:
        >>> [is_secret_property(name) for name in ("sasl.password", "ssl.key.pem", "client.id")]
        [True, True, False]
    """
    return name.lower().endswith(_SECRET_ENDINGS)


class KafkaProperties(dict[str, str | Secret]):
    """Properties of the Kafka client by name: texts, and references to secrets.

    ``has_plain_secrets`` is True in a class whose values are not stored: they may be secrets.

    Example:
        >>> KafkaProperties.from_option({"linger.ms": 5, "check.crcs": True}, is_text=False)
        {'linger.ms': '5', 'check.crcs': 'true'}
        >>> KafkaProperties.from_option("linger.ms=5, client.id=shop", is_text=True)
        {'linger.ms': '5', 'client.id': 'shop'}
    """

    option_type: ClassVar[str] = "map of names to values"
    option_form: ClassVar[Any] = dict[str, str | int | float | bool]
    has_plain_secrets: ClassVar[bool] = False

    @classmethod
    def from_option(cls, value: object, *, is_text: bool) -> KafkaProperties:
        """Return the properties in a value; a secret in a text is ``env:NAME``.

        Args:
            value: Names and values, from outside Python also as ``name=value,name=value``.
            is_text: Whether the value comes from outside Python.

        Raises:
            OptionValueError: a value has another type, or is a secret as plain text.
        """
        if is_text and isinstance(value, str):
            items = enumerate(value.split(","), start=1)
            value = dict(_pair(number, text) for number, text in items if text.strip())
        if not isinstance(value, Mapping):
            problem = f"properties must be an object, got {type(value).__name__}"
            raise OptionValueError(problem, "use an object of names and values")
        return cls({name: cls._property(name, v, is_text=is_text) for name, v in value.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the properties as a graph stores them."""
        return {n: v.to_json() if isinstance(v, Secret) else v for n, v in self.items()}

    @classmethod
    def _property(cls, name: str, value: object, *, is_text: bool) -> str | Secret:
        if isinstance(value, Secret | Mapping):
            try:
                return Secret.from_option(value, is_text=False)
            except ValueError:
                hint = 'use {"secret": {"env": NAME}} or {"secret": {"file": PATH}}'
                problem = f"{name} is not a reference to a secret"
                raise OptionValueError(problem, hint, name) from None
        if not isinstance(value, str | int | float):
            hint = 'use a text, a number, true or false, or {"secret": {"env": NAME}}'
            raise OptionValueError(f"{name} has the type {type(value).__name__}", hint, name)
        if not is_secret_property(name):
            return str(value).lower() if isinstance(value, bool) else str(value)
        try:
            return Secret.parse(str(value) if is_text else "")
        except ValueError:
            if cls.has_plain_secrets:
                return str(value)
            hint = "set its location: env:NAME or file:PATH" if is_text else _SECRET_HINT
            raise OptionValueError(f"{name} is a secret", hint, name) from None


def _pair(number: int, text: str) -> tuple[str, str]:
    """Return a name and a value; errors hide the text, since it may be a secret."""
    name, equals, value = map(str.strip, text.partition("="))
    if not (name and equals):
        raise OptionValueError(f"item {number} has no '='", "write name=value,name=value")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """The start position of a job without a checkpoint.

    Args:
        mode: The form.
        timestamp_ms: Time of the first message, in ms since 1970.
        topics: Offsets by topic and partition; other partitions begin at the earliest message.
    """

    mode: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int = 0
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    option_type: ClassVar[str] = (
        "earliest, latest, {timestamp_ms: number} or {offsets: {topic: {partition: offset}}}"
    )
    option_form: ClassVar[Any] = Literal["earliest", "latest"] | dict[str, Any]
    hides_values: ClassVar[bool] = False

    def __str__(self) -> str:
        return str(self.to_json())

    @classmethod
    def from_option(cls, value: object, *, is_text: bool) -> StartingOffsets:
        """Return the start position in a value.

        Args:
            value: ``earliest``, ``latest``, or an object; in Python a time with a zone, or
                ``{topic: {partition: offset}}``.
            is_text: Whether the value comes from outside Python.

        Raises:
            ValueError: it has another form.
        """
        if isinstance(value, StartingOffsets):
            return value
        if value in ("earliest", "latest"):
            return cls(mode=value)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return cls(mode="timestamp", timestamp_ms=max(0, int(value.timestamp() * 1_000)))
        if not isinstance(value, Mapping):
            raise ValueError(value)
        if is_text and set(value) == {"timestamp_ms"}:
            return cls(mode="timestamp", timestamp_ms=_count(value["timestamp_ms"]))
        topics = value if not is_text else value["offsets"] if set(value) == {"offsets"} else None
        if not isinstance(topics, Mapping) or not (topics or is_text):
            raise ValueError(value)
        found = {topic: _offsets(each, is_text=is_text) for topic, each in topics.items()}
        return cls(mode="offsets", topics=found)

    @property
    def offsets(self) -> dict[str, int]:
        """The offsets by partition, as topic/number."""
        found = self.topics.items()
        return {f"{topic}/{n}": offset for topic, each in found for n, offset in each.items()}

    def to_json(self) -> Any:
        """Return the position as a graph stores it."""
        if self.mode == "timestamp":
            return {"timestamp_ms": self.timestamp_ms}
        if self.mode != "offsets":
            return self.mode
        found = self.topics.items()
        return {"offsets": {topic: {str(n): o for n, o in each.items()} for topic, each in found}}


def _offsets(partitions: Any, *, is_text: bool) -> dict[int, int]:
    if not isinstance(partitions, Mapping):
        raise ValueError(partitions)
    numbers = {n: int(n) if is_text and str(n).isdecimal() else n for n in partitions}
    found = {_count(numbers[n]): _count(offset) for n, offset in partitions.items()}
    return dict(sorted(found.items()))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The settings of a missing topic's creation; -1 uses the brokers' default."""

    partitions: int = _BROKER_DEFAULT
    replication_factor: int = _BROKER_DEFAULT
    config: Mapping[str, str] = field(default_factory=dict)
    option_type: ClassVar[str] = "{partitions: number, replication_factor: number, config: map}"
    option_form: ClassVar[Any] = dict[str, Any]
    hides_values: ClassVar[bool] = False

    @classmethod
    def from_option(cls, value: object, *, is_text: bool) -> TopicPlan:  # noqa: ARG003 - as others
        """Return the plan in an object.

        Raises:
            ValueError: it has another form.
        """
        if isinstance(value, TopicPlan):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(value)
        plan = {name: item for name, item in value.items() if item is not None}
        config = plan.pop("config", {})
        is_known = plan.keys() <= {"partitions", "replication_factor"}
        if not (is_known and isinstance(config, Mapping)) or 0 in map(_count, plan.values()):
            raise ValueError(value)
        texts = {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in config.items()}
        return cls(**plan, config=texts)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a graph stores it, without defaults of the brokers."""
        counts = {"partitions": self.partitions, "replication_factor": self.replication_factor}
        plan: dict[str, Any] = {n: count for n, count in counts.items() if count != _BROKER_DEFAULT}
        return plan | ({"config": dict(self.config)} if self.config else {})
