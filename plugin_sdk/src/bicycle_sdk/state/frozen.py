"""Types whose values cannot be changed in place, as far as the type shows it."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import types
import typing
from typing import Any

__all__ = ["is_frozen_type"]

_FROZEN = (
    str, int, float, bool, bytes, complex, type(None),
    datetime.date, datetime.time, datetime.timedelta, enum.Enum,
)  # fmt: skip
# By name: importing their modules would take a tenth of the time in which the SDK must be there.
_FROZEN_NAMES = frozenset({("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction")})


def is_frozen_type(declared: Any) -> bool:
    """Return whether values of a type cannot be changed in place, False if unknown.

    Example:
        >>> is_frozen_type(int), is_frozen_type(tuple[str, int]), is_frozen_type(list[int])
        (True, True, False)
    """
    origin = typing.get_origin(declared)
    if origin is typing.Literal:
        return True
    if origin in (tuple, frozenset, typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(declared) if part is not Ellipsis]
        return all(map(is_frozen_type, parts))
    if not isinstance(declared, type) or origin is not None:
        return declared is None
    if dataclasses.is_dataclass(declared):
        return _is_frozen_dataclass(declared)
    names = {(base.__module__, base.__qualname__) for base in declared.__mro__}
    return issubclass(declared, _FROZEN) or not names.isdisjoint(_FROZEN_NAMES)


def _is_frozen_dataclass(declared: type) -> bool:
    if not declared.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # every dataclass has it
        return False
    try:
        hints = typing.get_type_hints(declared)
    except (NameError, TypeError, AttributeError):
        return False
    return all(
        is_frozen_type(hints.get(part.name, object)) for part in dataclasses.fields(declared)
    )
