"""Types of keys: the types whose own equality is the equality of their encoding.

Two keys are one key when their encoded bytes are equal. A worker looks keys up in dicts, which use
``__eq__`` and ``__hash__``. Where these disagree with the encoding, the groups of a stream would
depend on its parallelism, so such keys are refused. How keys are encoded is no subject here.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

__all__ = ["PLAIN_KEYS", "KeyProblem", "declared_key_problem", "key_problem"]

PLAIN_KEYS = frozenset(
    {type(None), bool, int, float, str, bytes, Decimal, uuid.UUID, datetime.date}
)  # fmt: skip
_BASES = frozenset({*PLAIN_KEYS, tuple, frozenset, datetime.datetime, Enum})
_GENERATED_FILE = "<string>"  # The file name of methods that ``dataclasses`` writes.
_TYPES_MAX = 1_024


class KeyProblem(NamedTuple):
    """The type of a key, or of a part of it, and the reason why it is refused."""

    type_name: str
    reason: str


def key_problem(key: Any) -> KeyProblem | None:
    """Return why a key is refused, or None if its equality matches its encoding.

    Example:
        >>> key_problem(("ada", 1)) is None
        True
        >>> class Folded(str):
        ...     def __eq__(self, other): return self.lower() == other.lower()
        ...     def __hash__(self): return hash(self.lower())
        >>> key_problem((Folded("Ada"), 1)).type_name
        'Folded'
    """
    kind: Any = type(key)
    if kind in PLAIN_KEYS:
        return None
    reason = _type_problem(kind)
    if reason is not None:
        return KeyProblem(kind.__qualname__, reason)
    base = _base_with_other_hash(kind)
    if base is not None and hash(key) != base.__hash__(key):
        reason = f"it equals a {base.__qualname__}, but has another hash"
        return KeyProblem(kind.__qualname__, reason)
    if isinstance(key, datetime.datetime):
        return _clock_problem(key)
    parts = _parts(key)
    if PLAIN_KEYS.issuperset(map(type, parts)):
        return None
    return next(filter(None, map(key_problem, parts)), None)


def declared_key_problem(declared: Any) -> KeyProblem | None:
    """Return why keys of a declared type are refused, as far as the type shows it.

    Args:
        declared: A class, a type with arguments (``tuple[str, Point]``), or None when unknown.
    """
    arguments = typing.get_args(declared)
    if arguments:
        return next(filter(None, map(declared_key_problem, arguments)), None)
    if not isinstance(declared, type):
        return None
    reason = _type_problem(declared)
    if reason is not None:
        return KeyProblem(declared.__qualname__, reason)
    return None


def _parts(key: Any) -> Iterable[Any]:
    if isinstance(key, (tuple, frozenset)):
        return key
    if dataclasses.is_dataclass(key) and not isinstance(key, (type, *_BASES)):
        return [getattr(key, name) for name in _compared_fields(type(key))]
    return ()


@functools.lru_cache(_TYPES_MAX)
def _type_problem(kind: Any) -> str | None:
    is_dataclass = dataclasses.is_dataclass(kind)
    if kind in _BASES or not (is_dataclass or issubclass(kind, tuple(_BASES))):
        return None  # A type without an encoding is refused with another reason.
    definer: Any = next(base for base in kind.__mro__ if "__eq__" in vars(base))
    name = definer.__qualname__
    if definer is object:
        return None if issubclass(kind, Enum) else "it compares by identity (eq=False)"
    method = vars(definer)["__eq__"]
    if definer not in _BASES and isinstance(method, types.FunctionType):
        is_made = method.__code__.co_filename == _GENERATED_FILE
        if not (is_made and dataclasses.is_dataclass(definer)):
            return "its class defines __eq__, but keys are equal if their encoded values are"
        if _compared_fields(definer) != _compared_fields(kind):
            return f"its __eq__ is inherited from {name}, which compares fewer fields"
    return "it hashes by identity" if kind.__hash__ is object.__hash__ else None


@functools.lru_cache(_TYPES_MAX)
def _base_with_other_hash(kind: Any) -> Any:
    """Return the plain type of which a class inherits the equality, but not the hash."""
    equal, hashed = (
        next(base for base in kind.__mro__ if name in vars(base)) for name in ("__eq__", "__hash__")
    )
    return equal if equal in _BASES and hashed not in _BASES else None


def _compared_fields(kind: Any) -> Sequence[str]:
    return [field.name for field in dataclasses.fields(kind) if field.compare]


def _clock_problem(key: datetime.datetime) -> KeyProblem | None:
    """Refuse a zone that changes its offset: its clock shows some times twice."""
    zone = key.tzinfo
    if zone is None or isinstance(zone, datetime.timezone) or zone.utcoffset(None) is not None:
        return None
    return KeyProblem(
        type(key).__qualname__,
        f"some local times of its time zone {zone} occur twice and compare equal; convert it with "
        ".astimezone(datetime.UTC)",
    )
