"""The types of fields in expressions, and a compiled expression as plain data that travels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CompiledExpressions",
    "ExpressionFailedError",
    "ExpressionInvalidError",
    "FieldRead",
    "FieldWord",
]

FieldWord = Literal["string", "int", "float", "bool", "timestamp", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRead:
    """A column that expressions read: a field of the records, or what lies in it at a path.

    ``is_text`` says of a path whether its value is wanted as text, else as JSON.
    """

    field: str
    type: FieldWord
    path: tuple[str | int, ...] = ()
    is_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledExpressions:
    """Expressions in the words of the kernel, over the columns ``c0``, ``c1``, … of ``reads``."""

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
    """An expression that has no value for a record: 1/0, a number that is too large, a bad cast."""
