"""Attributes of a function that its constructor sets and nothing changes: parameters, not state.

Read off the code of the class. An attribute that any method assigns is state, and so is one whose
value can be changed in place, unless the constructor was given it under its name.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["fixed_attributes"]

_MAKING = frozenset({"__init__", "__post_init__", "__new__"})
_ASSIGNING = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_UNCHANGING = (
    *(str, bytes, int, float, complex, type(None), Enum, timedelta, PurePath),
    *(type, FunctionType, MethodType),
)


def fixed_attributes(function: Any) -> frozenset[str]:
    """Return the names of the attributes that are no state, in spite of being stored as such.

    Example:
        >>> class Above:
        ...     def __init__(self, limit):
        ...         self.limit, self.seen = limit, 0
        ...     def process(self, value, ctx):
        ...         self.seen += 1
        ...         return [value] if value > self.limit else []
        >>> sorted(fixed_attributes(Above(3)))
        ['limit']
    """
    assigned = set(_assigned_names(type(function)))
    given = _parameters(type(function))
    return frozenset(
        name
        for name, value in getattr(function, "__dict__", {}).items()
        if name not in assigned and (_is_unchanging(value) or name.lstrip("_") in given)
    )


def _assigned_names(cls: type) -> Iterator[str]:
    for owner in cls.__mro__:
        for name, value in vars(owner).items():
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if name not in _MAKING and isinstance(code, CodeType):
                yield from _assigned_in(code)


def _assigned_in(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in _ASSIGNING:
            yield str(step.argval)
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, str):
            yield step.argval  # setattr(self, "name", …) may be behind it.
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _assigned_in(part)


def _parameters(cls: type) -> frozenset[str]:
    """Return what the constructor must be given; a default may be what state begins with."""
    if dataclasses.is_dataclass(cls):
        fields = (field for field in dataclasses.fields(cls) if field.init)
        missing = dataclasses.MISSING
        return frozenset(f.name for f in fields if f.default is f.default_factory is missing)
    parameters = inspect.signature(cls).parameters.values()
    return frozenset(each.name for each in parameters if each.default is each.empty)


def _is_unchanging(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_unchanging, value))
    settings = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, _UNCHANGING) or (settings is not None and settings.frozen)
