"""Functions of fields of records that sources and sinks of texts need.

They are imported by workers. A record without a field has the value None there.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from typing import Any, ClassVar

import msgspec

from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_runtime.formats.typed_values import json_text
from bicycle_sdk.expressions import Expression, lit


def text_of(record: Any) -> str:
    """Return a record as text: texts as they are, anything else as JSON.

    Example:
        >>> text_of("ada"), text_of({"a": 1}), text_of(None)
        ('ada', '{"a":1}', '')
    """
    if isinstance(record, str):
        return record
    return "" if record is None else json_text(record)


def field_of(record: Any, name: str) -> Any:
    """Return a field of a record, or None."""
    return record.get(name) if isinstance(record, dict) else None


def expression_of(name: str) -> Expression:
    """Return ``field_of`` over columns."""
    return Expression("field_or", name, lit(None))


class OfField(HasExpression):
    """A function of one field."""

    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field

    def expression(self) -> Expression:
        """Return the expression over columns, which keeps values of some types."""
        return Expression("converted", self.as_they_are, self.of, expression_of(self.field))

    def __call__(self, record: Any) -> Any:
        return self.of(field_of(record, self.field))

    as_they_are: ClassVar[frozenset[type]] = frozenset()

    @staticmethod
    @abstractmethod
    def of(value: Any) -> Any:
        """Return the result for the value of the field."""


class FieldText(OfField):
    """A field as text, or None."""

    __slots__ = ()

    @staticmethod
    def of(value: Any) -> str | None:
        return None if value is None else text_of(value)


class PayloadSchema:
    """A Kafka message as a record: a JSON object, else its text, else base64."""

    __slots__ = ()

    def decode(self, data: bytes) -> dict[str, Any]:
        r"""Return the record.

        Example:
            >>> [PayloadSchema().decode(data) for data in (b'{"a": 1}', b"hi", b"\xff")]
            [{'a': 1}, {'bytes': 'hi'}, {'bytes_b64': '/w=='}]
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"bytes_b64": base64.b64encode(data).decode()}
        try:
            found = msgspec.json.decode(data)
        except msgspec.DecodeError:
            found = None
        return found if isinstance(found, dict) else {"bytes": text}
