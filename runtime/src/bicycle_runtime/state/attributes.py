"""Which attributes of a function are state, and how each is stored.

Read off the instance and its class: a plain ``dict`` is stored entry by entry, anything else as one
value. Annotations give the types.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.state.tracked import TouchTrackedDict, TrackedDict
from bicycle_runtime.state.values import ValueCodec
from bicycle_sdk.state import StateDescriptor

__all__ = ["Attribute", "describe_attributes"]

_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None), complex})


@dataclass(slots=True)
class Attribute:
    """One state attribute of a rich function: how it is stored."""

    name: str
    codec: ValueCodec
    tracked: type[TrackedDict] | None
    declared: Any


def describe_attributes(function: Any) -> list[Attribute]:
    """Return the state attributes of a function, which are what it holds now, by name.

    A plain ``dict`` annotated ``dict[K, V]`` is stored entry by entry, anything else as one value.
    """
    hints = _hints(type(function))
    return [
        _attribute(name, value, hints.get(name))
        for name, value in sorted(_instance_values(function).items())
    ]


def _attribute(name: str, value: Any, declared: Any) -> Attribute:
    arguments = typing.get_args(declared)
    if type(value) is dict:
        value_type = (
            arguments[1] if typing.get_origin(declared) is dict and len(arguments) == 2 else None
        )  # key and value
        tracked = TrackedDict if _is_immutable(value_type) else TouchTrackedDict
        return Attribute(name, ValueCodec(value_type), tracked, declared)
    origin = typing.get_origin(declared) or declared
    is_faithful = isinstance(origin, type) and type(value) is origin
    return Attribute(name, ValueCodec(declared if is_faithful else None), None, declared)


def _is_immutable(declared: Any) -> bool:
    if typing.get_origin(declared) is tuple:
        return all(
            _is_immutable(part) for part in typing.get_args(declared) if part is not Ellipsis
        )
    return declared in _IMMUTABLE


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {}  # an annotation that can not be resolved here: the values are stored undeclared


def _instance_values(function: Any) -> dict[str, Any]:
    values = dict(vars(function)) if hasattr(function, "__dict__") else {}
    for cls in type(function).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(function, name):
                values[name] = getattr(function, name)
    for name in _hints(type(function)):
        if name not in values and hasattr(function, name) and _is_users(type(function), name):
            values[name] = getattr(function, name)
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("__") and not isinstance(value, StateDescriptor)
    }


def _is_users(cls: type, name: str) -> bool:
    """Tell whether a class field is a default of the user's: no ClassVar, none of the SDK's."""
    for owner in cls.__mro__:
        declared = inspect.get_annotations(owner).get(name)
        if declared is not None:
            return not owner.__module__.startswith("bicycle_sdk") and "ClassVar" not in str(
                declared
            )
    return False
