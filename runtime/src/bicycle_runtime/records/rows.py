"""Rows: plain objects with the fields of a record, which are quicker to make than the record.

They take its place where nothing but fields is looked at. So they must hold what the attributes of
the record would: a type that could show anything else has no rows.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.inspect import DataclassType, Field, FloatType, IntType, StrType, StructType

__all__ = ["plain_fields", "row_type_of"]

_KINDS: tuple[tuple[type, type], ...] = ((IntType, int), (FloatType, float), (StrType, str))


def row_type_of(record_type: Any) -> type[msgspec.Struct] | None:
    """Return a type whose objects are decoded and checked as records of a type are.

    Args:
        record_type: Any type; dataclasses and ``msgspec.Struct`` without code of their own that
            runs when a record is made or a field is looked up have rows, others give None.

    Example:
        >>> @dataclasses.dataclass
        ... class Reading:
        ...     sensor: str
        ...     value: int = 0
        >>> msgspec.json.decode(b'{"sensor": "a"}', type=row_type_of(Reading)).value
        0
    """
    fields = _fields(record_type)
    if not fields:
        return None
    hints = typing.get_type_hints(record_type, include_extras=True)
    parts = [(field.name, hints[field.name], _default(field)) for field in fields]
    # Decoded objects form no cycles, so the collector need not follow them.
    return msgspec.defstruct("Row", parts, kw_only=True, gc=False)


def plain_fields(record_type: Any) -> Mapping[str, type]:
    """Return the fields whose values are all ints, floats or strings; none for a type without rows.

    Example:
        >>> @dataclasses.dataclass
        ... class Reading:
        ...     sensor: str
        ...     value: int
        ...     notes: list[str]
        >>> plain_fields(Reading)
        {'sensor': <class 'str'>, 'value': <class 'int'>}
    """
    return {
        field.name: plain
        for field in _fields(record_type)
        for kind, plain in _KINDS
        if type(field.type) is kind and (field.required or type(field.default) is plain)
    }


def _fields(record_type: Any) -> tuple[Field, ...]:
    if not isinstance(record_type, type) or not _is_plain(record_type):
        return ()
    try:
        typing.get_type_hints(record_type)
        info = msgspec.inspect.type_info(record_type)
    except (NameError, TypeError):  # a name that only its own module could tell
        return ()
    if isinstance(info, StructType):
        is_told = info.tag is None and not info.array_like and not info.forbid_unknown_fields
        return info.fields if is_told and _keeps_names(info.fields) else ()
    return info.fields if isinstance(info, DataclassType) else ()


def _is_plain(record_type: type) -> bool:
    """Tell whether no code of the type runs when a record is made, or a field is looked up."""
    if hasattr(record_type, "__post_init__"):
        return False
    if vars(object)["__getattribute__"] is not inspect.getattr_static(
        record_type, "__getattribute__"
    ):
        return False
    if not dataclasses.is_dataclass(record_type):
        return issubclass(record_type, msgspec.Struct)
    fields = dataclasses.fields(record_type)
    return all(field.init and not _is_computed(record_type, field.name) for field in fields)


def _is_computed(record_type: type, name: str) -> bool:
    found = inspect.getattr_static(record_type, name, None)
    return hasattr(found, "__get__") and not isinstance(found, types.MemberDescriptorType)


def _keeps_names(fields: tuple[Field, ...]) -> bool:
    return all(field.encode_name == field.name for field in fields)


def _default(field: Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)
