"""Attributes of a function that are state, and how each is stored.

Read off the instance and its class: a plain ``dict`` is stored entry by entry, anything else as one
value. Annotations determine the types, and with them the schemas by which values can be read later.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import partial
from typing import Any

from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.state.memory.tracked import Tracking
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.schema_registry import Hook, SchemaRegistry
from bicycle_runtime.state.values.schemas import describe, describe_key
from bicycle_runtime.state.values.state_metadata import DeclaredState
from bicycle_sdk.functions import RichAsyncFunction
from bicycle_sdk.state.aliases import aliases_of
from bicycle_sdk.state.attributes import known_hints, state_attributes

SNAPSHOT = "$snapshot"  # The location of results of ``snapshot_state``.
_SNAPSHOT_NAME = "snapshot_state"
_VERSION = "state_version"
_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None), complex})


@dataclass(slots=True)
class Attribute:
    """One state attribute of a rich function: how it is stored.

    ``tracked`` has the notes of a dict that is stored entry by entry. ``state_name`` is the name of
    its change sets, when that is not its own.
    """

    name: str
    codec: ValueCodec
    tracked: Tracking | None
    declared: Any
    state_name: str = ""

    def __post_init__(self) -> None:
        self.state_name = self.state_name or self.name


def describe_attributes(function: Any, registry: SchemaRegistry | None = None) -> list[Attribute]:
    """Return the state attributes of a function, with their present values, by name.

    A plain ``dict`` annotated ``dict[K, V]`` is stored entry by entry, anything else as one value.
    Of a function that makes its own snapshots these are stored instead: the last one, ``SNAPSHOT``.

    Args:
        function: The function, before it is opened.
        registry: Knows in which schema versions they are sealed; None when nothing is.

    Raises:
        SCHEMA_REFUSED: sealed values cannot be read by the current declaration.
    """
    snapshots = _snapshots(function)
    sealed = registry or SchemaRegistry()
    registry = SchemaRegistry() if snapshots else sealed  # Nothing of attributes is sealed then.
    found = []
    for state, value_type, declared in _declared_attributes(function):
        opened = registry.open(state, value_type, _hook_of(function, state.name))
        tracked = None
        if state.kind == "entries":
            tracked = Tracking(touches=not _is_immutable(value_type))
        found.append(Attribute(state.name, opened.codec, tracked, declared, opened.stored_name))
    for state, declared in snapshots:
        opened = sealed.open(state, declared, _hook_of(function, state.name))
        found.append(Attribute(SNAPSHOT, opened.codec, None, declared))
    return found


def declared_attributes(function: Any) -> list[DeclaredState]:
    """Return the state attributes of a function as its code declares them, by name.

    For a function that makes its own snapshots, these are the snapshots.
    """
    snapshots = [state for state, _ in _snapshots(function)]
    return snapshots or [state for state, _, _ in _declared_attributes(function)]


def _snapshots(function: Any) -> list[tuple[DeclaredState, Any]]:
    """Return the snapshot state and its type, if a function makes its own snapshots."""
    hook = getattr(type(function), _SNAPSHOT_NAME, None)
    if hook is None or hook is RichAsyncFunction.snapshot_state:
        return []
    declared = known_hints(hook).get("return")
    state = DeclaredState(
        name=_SNAPSHOT_NAME,
        kind="attribute",
        schema=describe(declared),
        version=getattr(function, _VERSION, 1),
        migrates=_hook_of(function, _SNAPSHOT_NAME) is not None,
        stored_name=SNAPSHOT,
    )
    return [(state, declared)]


def _declared_attributes(function: Any) -> list[tuple[DeclaredState, Any, Any]]:
    """Return for each attribute the state, the type of its values, and its annotation."""
    cls = type(function)
    hints, aliases = known_hints(cls), aliases_of(cls)
    found = []
    for name, value in sorted(state_attributes(function).items()):
        declared = hints.get(name)
        value_type, keys = _value_type(value, declared)
        state = DeclaredState(
            name=name,
            kind="entries" if type(value) is dict else "attribute",
            schema=describe(value_type),
            keys=keys,
            version=getattr(function, _VERSION, 1),
            aliases=aliases.get(name, ()),
            migrates=_hook_of(function, name) is not None,
        )
        found.append((state, value_type, declared))
    return found


def _value_type(value: Any, declared: Any) -> tuple[Any, Any]:
    """Return the type of the values that are stored, and the schema of their keys."""
    origin, arguments = typing.get_origin(declared) or declared, typing.get_args(declared)
    if type(value) is dict:
        is_typed = origin is dict and len(arguments) == 2  # key and value
        return (arguments[1], describe_key(arguments[0])) if is_typed else (None, UNTYPED)
    is_faithful = isinstance(origin, type) and type(value) is origin
    return (declared if is_faithful else None), UNTYPED


def _hook_of(function: Any, attribute: str) -> Hook | None:
    """Return the function that migrates values of an attribute, or None."""
    own = getattr(type(function), "migrate_state", None)
    if own is None or own is RichAsyncFunction.migrate_state:
        return None
    return partial(function.migrate_state, attribute)


def _is_immutable(declared: Any) -> bool:
    if typing.get_origin(declared) is tuple:
        return all(
            _is_immutable(part) for part in typing.get_args(declared) if part is not Ellipsis
        )
    return declared in _IMMUTABLE
