"""Shapes: the known fields of records before the start, and matching expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bicycle_runtime.frames.rows import field_names, is_mapping, other_fields, plain_fields
from bicycle_sdk.expressions import Expression
from bicycle_sdk.windows import WindowResult

_RECORDS = frozenset({"assigned", "make", "record", "replaced", "updated"})
RecordForms = Literal["object", "mapping", "tuple", "named tuple", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    """The way to look up fields in records, and their names.

    ``names`` are all of them, None if any may be there; ``kinds`` has the known types: object for
    fields that hold neither numbers nor texts. ``record_type`` is the type of objects if known.
    """

    form: RecordForms
    names: frozenset[Any] | None
    kinds: Mapping[Any, type] = field(default_factory=dict)
    record_type: type | None = None

    @property
    def is_open(self) -> bool:
        """Return whether records are dicts with arbitrary fields."""
        return self.form == "mapping" and self.names is None

    def problem(self, expression: Expression) -> str | None:
        """Return why an expression cannot be computed of such records; None when it can."""
        for part in _parts(expression, set()):
            if part.operation in _RECORDS:
                return "it creates records within a value"
            if part.operation == "itself" and self.form != "value":
                return "its record is part of a value"
            if not self._has(part):
                return "it reads fields that its records do not have"
        return None

    def kind_of(self, expression: Expression) -> type | None:
        """Return the type of a field's values, or None if unknown or not a field."""
        if expression.operation == "itself":
            return self.kinds.get(None)
        return self.kinds.get(expression.arguments[0]) if expression.operation == "field" else None

    def kind_problem(self, expression: Expression, kinds: tuple[type, ...]) -> str | None:
        """Return why an expression is not declared to have one of some types, or None."""
        if self.kind_of(expression) in (None, *kinds):
            return None
        words = " or ".join(kind.__name__ for kind in kinds)
        name = f"field {expression.arguments[0]!r}" if expression.arguments else "its record"
        return f"{name} is not declared as {words}"

    def _has(self, part: Expression) -> bool:
        if part.operation == "field_or":
            return self.form == "mapping"
        if part.operation != "field":
            return True
        name, *way = part.arguments
        forms = {
            "attribute": ("object", "named tuple"),
            "item": ("mapping", "tuple", "named tuple"),
        }
        fits = self.form in (forms[way[0]] if way else ("object", "mapping", "named tuple"))
        if self.form == "named tuple" and way:
            fits = fits and isinstance(name, int if way[0] == "item" else str)
        return fits and (self.names is None or name in self.names)


# Results of windows: their fields have names and places.
RESULT_SHAPE = RecordShape(
    form="named tuple",
    names=frozenset({*WindowResult._fields, *range(len(WindowResult._fields))}),
)


def shape_of_form(kind: type | None, names: Sequence[Any]) -> RecordShape:
    """Return the shape of records in columns.

    Args:
        kind: Their type; None for plain values.
        names: Of their columns: fields, or places.
    """
    form: RecordForms = "object"
    if kind is None:
        form = "value"
    elif issubclass(kind, tuple):
        form = "tuple" if kind is tuple else "named tuple"
        names = [*names, *range(len(names))]
    elif kind is dict:
        form = "mapping"
    return RecordShape(form=form, names=frozenset(names))


def shape_of(record_type: Any) -> RecordShape | None:
    """Return the shape of records that a source reads as a type, or None."""
    names = field_names(record_type)
    kinds = {**dict.fromkeys(other_fields(record_type), object), **plain_fields(record_type)}
    if is_mapping(record_type):
        return RecordShape(form="mapping", names=names, kinds=kinds)
    if names is None:
        return None
    return RecordShape(form="object", names=names, kinds=kinds, record_type=record_type)


def _parts(expression: Expression, seen: set[int]) -> Iterator[Expression]:
    """Yield the parts of an expression, each once."""
    if id(expression) in seen:
        return
    seen.add(id(expression))
    yield expression
    for argument in expression.arguments:
        if isinstance(argument, Expression):
            yield from _parts(argument, seen)
