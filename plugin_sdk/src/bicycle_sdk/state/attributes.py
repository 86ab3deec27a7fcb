"""Attributes of a function object that are its state."""

from __future__ import annotations

import inspect
import typing
from typing import Any

from bicycle_sdk.state.descriptors import StateDescriptor

__all__ = ["known_hints", "state_attributes"]


def state_attributes(function: object) -> dict[str, Any]:
    """Return the state attributes of a function before ``open``, by name.

    These are the attributes of the object, and the annotated fields of its class with a default.
    """
    values = dict(vars(function)) if hasattr(function, "__dict__") else {}
    for cls in type(function).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(function, name):
                values[name] = getattr(function, name)
    for name in known_hints(type(function)):
        if name not in values and hasattr(function, name) and _is_users(type(function), name):
            values[name] = getattr(function, name)
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("__")
        and name != "state_version"
        and not isinstance(value, StateDescriptor)
    }


def known_hints(annotated: Any) -> dict[str, Any]:
    """Return the annotated types, empty if one cannot be resolved here."""
    try:
        return typing.get_type_hints(annotated)
    except (NameError, TypeError, AttributeError):
        return {}


def _is_users(cls: type, name: str) -> bool:
    """Return whether a class field is a user's default: no ClassVar, not the SDK's."""
    for owner in cls.__mro__:
        declared = inspect.get_annotations(owner).get(name)
        if declared is not None:
            return not owner.__module__.startswith("bicycle_sdk") and "ClassVar" not in str(
                declared
            )
    return False
