"""The fields of a record: their names, their types, and how they are looked up.

All who need the columns of a record type ask here: rows of CSV, columns of tables and of Parquet.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bicycle_sdk.record_types import annotations_of


class RecordFields(NamedTuple):
    """Names of the fields in order, and their kind: attributes, keys or places."""

    how: Literal["attributes", "keys", "places"]
    names: Sequence[str]


def fields_of(record_type: Any) -> RecordFields | None:
    """Return the declared fields of a record type, or None.

    A ``msgspec.Struct`` tells none: in a file its fields may have other names.

    Example:
        >>> fields_of(dict[str, int]), fields_of(typing.NamedTuple("Point", [("x", int)]))
        (None, RecordFields(how='places', names=('x',)))
    """
    found = typing.get_origin(record_type) or record_type
    if is_model(found) and hasattr(found, "model_fields"):
        return RecordFields("attributes", list(found.model_fields))
    if dataclasses.is_dataclass(found):
        return RecordFields("attributes", [field.name for field in dataclasses.fields(found)])
    if is_named_tuple(found):
        return RecordFields("places", found._fields)
    if typing.is_typeddict(found):
        return RecordFields("keys", list(typing.get_type_hints(found)))
    return None


def is_model(record_type: Any) -> bool:
    """Return whether records are models of Pydantic 2, without importing it."""
    return isinstance(record_type, type) and hasattr(record_type, "__pydantic_validator__")


def types_of(record_type: Any) -> dict[str, Any]:
    """Return the type of each field; a key that may be missing may be None.

    Args:
        record_type: One with fields.

    Raises:
        NameError: a type names what only its own module could tell.
    """
    found = typing.get_origin(record_type) or record_type
    declared, hints = fields_of(found), annotations_of(record_type)
    assert declared is not None
    if is_model(found):  # Its class has no parameters, and the annotations of the generic one.
        hints |= {name: field.annotation for name, field in found.model_fields.items()}
    if declared.how != "keys":
        return {name: hints.get(name, Any) for name in declared.names}
    needed = found.__required_keys__
    return {name: hint if name in needed else hint | None for name, hint in hints.items()}


def is_named_tuple(record_type: Any) -> bool:
    """Return whether records are tuples with named fields."""
    return isinstance(record_type, type) and hasattr(record_type, "_fields")


def without_none(found: Any) -> tuple[Any, bool]:
    """Return a type without None and without words around it, and whether it had None.

    Example:
        >>> without_none(int | None), without_none(str), without_none(int | str | None)
        ((<class 'int'>, True), (<class 'str'>, False), (typing.Any, True))
    """
    while True:
        if typing.get_origin(found) in (typing.Annotated, typing.Required, typing.NotRequired):
            found = typing.get_args(found)[0]
        elif hasattr(found, "__supertype__"):
            found = found.__supertype__
        else:
            break
    if typing.get_origin(found) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(found) if each is not type(None)]
        is_optional = len(members) < len(typing.get_args(found))
        return (members[0] if len(members) == 1 else Any), is_optional
    return found, found in (None, type(None), Any)
