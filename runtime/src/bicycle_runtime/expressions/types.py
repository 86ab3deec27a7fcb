"""The types of fields in expressions, and compiled expressions as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FieldWord = Literal["string", "int", "float", "bool", "timestamp", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRead:
    """A column that expressions read: a field of the records, or a path in it.

    ``is_text`` means that the value at a path is read as text, else as JSON.
    """

    field: str
    type: FieldWord
    path: tuple[str | int, ...] = ()
    is_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledExpressions:
    """Expressions in the kernel's syntax, over the columns ``c0``, ``c1``, …."""

    reads: tuple[FieldRead, ...]
    names: tuple[str, ...]
    texts: tuple[str, ...]
    types: tuple[FieldWord, ...]


class ExpressionInvalidError(Exception):
    """An expression that cannot be computed over these fields; ``name`` is which."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name


class ExpressionFailedError(ValueError):
    """An expression without a value for a record: 1/0, overflow, a bad cast."""
