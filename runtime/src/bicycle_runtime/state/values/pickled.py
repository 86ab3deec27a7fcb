"""Classes whose objects are pickled in state, with the schema of each.

A pickle names the classes of its objects and nothing of their fields: with another version of such
a class it is read into something else, or not at all. So the manifest has the form of each class
that was pickled, as a state of its own named ``class module:Name``; a job whose classes do not fit
any more is refused before it starts. Classes of Python's own library and of ours are not among
them, nor are classes pickled by value.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from msgspec import Struct

from bicycle_runtime.base.own_code import OWN_PACKAGES
from bicycle_runtime.layouts.state import PICKLED, UNTYPED, SchemaVersion, StateMetadata
from bicycle_runtime.records.codecs import type_name_of
from bicycle_runtime.state.values.schemas import Schema, describe
from bicycle_runtime.state.values.state_metadata import DeclaredState

Shapes = Callable[[Collection[str]], Mapping[str, Schema]]  # Of the classes that are still there.

_PREFIX = "class "
_OURS = frozenset({"builtins", "__main__", *OWN_PACKAGES})
# Methods by which a class defines its own pickling; a dataclass with slots gets some of them made.
_HOOKS = ("__reduce__", "__reduce_ex__", "__setstate__")


def noted_class(cls: type) -> StateMetadata | None:
    """Return the metadata of a pickled class, or None for a class that cannot change.

    Example:
        >>> from decimal import Decimal
        >>> noted_class(Decimal) is None
        True
    """
    module = str(cls.__module__)
    is_ours = module.partition(".")[0] in _OURS | sys.stdlib_module_names
    if is_ours or not _is_by_name(cls, module):
        return None
    name = f"{_PREFIX}{module}:{cls.__qualname__}"
    return StateMetadata(
        name=name,
        stored_name=name,
        kind=PICKLED,
        schema_versions=(SchemaVersion(schema=shape_of(cls)),),
    )


def _is_by_name(cls: type, module: str) -> bool:
    """Return whether pickle finds a class by name, instead of storing it with objects."""
    try:
        return attrgetter(cls.__qualname__)(sys.modules[module]) is cls
    except (KeyError, AttributeError):
        return False


def declared_classes(states: Iterable[StateMetadata], shapes: Shapes) -> list[DeclaredState]:
    """Return the noted classes that still exist, with their present schemas."""
    names = [state.name for state in states if state.kind == PICKLED]
    found = shapes(names) if names else {}
    return [
        DeclaredState(name=name, kind=PICKLED, schema=found[name], stored_name=name)
        for name in names
        if name in found
    ]


def shapes_here(names: Collection[str]) -> dict[str, Schema]:
    """Return how classes look in this process, which imports their modules."""
    found = {}
    for name in names:
        module, _, path = name.removeprefix(_PREFIX).partition(":")
        try:
            cls = attrgetter(path)(importlib.import_module(module))
        except (ImportError, AttributeError):
            continue  # The caller reports its absence.
        if isinstance(cls, type):
            found[name] = shape_of(cls)
    return found


@lru_cache(maxsize=1_024)
def shape_of(cls: type) -> Schema:
    """Return the schema of objects of a class, as far as the class declares it.

    Types of fields are texts: a class that a field is of is noted by itself.
    """
    try:
        return _shape_of(cls)
    except Exception:  # noqa: BLE001  # annotations and attributes of classes may raise anything
        return {"type": "object", "name": cls.__qualname__}


def _shape_of(cls: type) -> Schema:
    if issubclass(cls, enum.Enum) and (members := describe(cls)) != UNTYPED:
        return members
    shape: dict[str, Any] = {"type": "object", "name": cls.__qualname__}
    if any(_is_users(getattr(cls, hook, None)) for hook in _HOOKS):
        shape["restores_itself"] = True
    # An object without ``__dict__`` does not look up missing attributes in its class.
    if "__slots__" in vars(cls) or issubclass(cls, tuple | Struct):
        shape["is_fixed"] = True
    hints = _hints(cls)
    names = [each.name for each in dataclasses.fields(cls)] if is_dataclass(cls) else list(hints)
    if names:
        shape["fields"] = [
            {"name": name, "type": _text(hints[name])} | _default(cls, name) for name in names
        ]
    return shape


def _is_users(hook: Any) -> bool:
    """Return whether the class's author wrote a pickling method."""
    module = getattr(hook, "__module__", None)
    return hasattr(hook, "__code__") and module not in ("dataclasses", "enum", "typing")


def _default(cls: type, name: str) -> dict[str, Any]:
    """Return whether a field is optional because the class has a default for it."""
    return {"is_optional": True} if hasattr(cls, name) and "__slots__" not in vars(cls) else {}


def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a class and its bases, unresolvable ones as texts."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        bases = [getattr(base, "__annotations__", {}) for base in reversed(cls.__mro__)]
        return {name: declared for each in bases for name, declared in each.items()}


def _text(declared: Any) -> str:
    return declared if isinstance(declared, str) else type_name_of(declared)
