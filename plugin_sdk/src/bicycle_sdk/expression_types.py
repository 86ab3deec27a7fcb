"""Types of expressions, from declared record types: wrong names fail early.

An unknown type is None, and fits everything. Errors that types show are raised when the graph is
built, at the user's line; all others are errors of their record.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.expressions import Expression
from bicycle_sdk.record_types import annotations_of, type_name
from bicycle_sdk.value_functions import BY_NAME

__all__ = ["check_expression"]

_PLAIN: tuple[type | None, ...] = (int, float, str, bool)
_NUMBERS = (int, float, bool)
_ORDERED = frozenset({"<", "<=", ">", ">="})
_CONDITIONS = frozenset({"&", "|", "~"})
_TESTS = frozenset({"==", "!=", "is_null", "is_in", *_ORDERED, *_CONDITIONS})


def check_expression(call: str, expression: Expression, record_type: Any) -> None:
    """Refuse an expression that no record of a type can have a value of.

    Args:
        call: The call that it is given to.
        expression: Over the fields of a record.
        record_type: Declared type of the records, None when unknown.

    Raises:
        StreamDefinitionError: a field is not there, or an operation does not take its values.
    """
    _Checking(call, record_type).type_of(expression)


class _Checking:
    """Finds out types from the leaves up.

    Args: as of ``check_expression``.
    """

    def __init__(self, call: str, record_type: Any) -> None:
        self._call, self._record_type = call, record_type
        self._fields = _field_types(record_type)

    def type_of(self, expression: Expression) -> type | None:
        """Return the type of an expression's result, or None if unknown."""
        operation, arguments = expression.operation, expression.arguments
        if operation == "field":
            return self._field_type(expression)
        if operation == "literal":
            return type(arguments[0])
        parts = [self.type_of(one) for one in arguments if isinstance(one, Expression)]
        known = {part for part in parts if part is not None and part in _PLAIN}
        problem = _problem(operation, known) or _function_problem(operation, parts)
        if problem is not None:
            raise StreamDefinitionError(
                call=self._call,
                problem=f"{expression!r} {problem}",
                hint=(
                    "compare and compute values of the same type; .text() converts any value to "
                    "text"
                ),
            )
        return (
            _result(operation, known)
            if len(known) == len(set(parts))
            else _find_fixed_type(operation)
        )

    def _field_type(self, expression: Expression) -> type | None:
        name, fields = expression.arguments[0], self._fields
        if fields is None or name in fields:
            found = None if fields is None else fields[name]
            return found if found in _PLAIN else None
        near = get_close_matches(name, fields, 1)
        said = type_name(self._record_type)
        known = ", ".join(fields) if fields else "none"
        raise StreamDefinitionError(
            call=self._call,
            problem=f"{expression!r}: records of {said} have no field {name!r}; they have {known}",
            hint=f"write col({near[0]!r})" if near else "name one of their fields",
        )


def _problem(operation: str, known: set[type]) -> str | None:
    is_mixed = str in known and bool(known & set(_NUMBERS))
    if operation in _ORDERED and is_mixed:
        return "compares a text with a number"
    if operation == "+" and is_mixed:
        return "adds a number to a text"
    computes = operation in ("-", "/", "//", "negative", "absolute", "round") and str in known
    if computes or (operation == "*" and {str, float} <= known):
        return "computes with a text"
    if operation in _CONDITIONS and known - {bool}:
        return "combines values that are not conditions; put comparisons in parentheses"
    return None


def _function_problem(operation: str, parts: list[type | None]) -> str | None:
    row = BY_NAME.get(operation)
    if row is None or row.of is not str or not parts or parts[0] not in _NUMBERS:
        return None
    return "applies a text function to a number"


def _find_fixed_type(operation: str) -> type | None:
    """Return the type of an operation's results if it is independent of the operands."""
    if operation in _TESTS:
        return bool
    row = BY_NAME.get(operation)
    return {"text": str, "tuple": tuple}.get(operation) if row is None else row.returns


def _result(operation: str, known: set[type]) -> type | None:
    if operation in ("+", "-", "*", "//", "%") and known <= set(_NUMBERS):
        return float if float in known else int
    if operation == "/" and known <= set(_NUMBERS):
        return float
    if operation == "+" and known == {str}:
        return str
    return _find_fixed_type(operation)


def _field_types(record_type: Any) -> Mapping[str, Any] | None:
    """Return the declared type of each field; None when any may be there."""
    if record_type in (str, int, float, bool, bytes):
        return {}
    origin = typing.get_origin(record_type) or record_type
    is_closed = isinstance(origin, type) and (
        dataclasses.is_dataclass(origin)
        or typing.is_typeddict(origin)
        or hasattr(origin, "__struct_fields__")
        or (issubclass(origin, tuple) and hasattr(origin, "_fields"))
    )
    if not is_closed:
        return None
    try:
        hints = annotations_of(record_type)
    except Exception:  # noqa: BLE001  # annotations are the user's code; unknown is fine.
        return None
    # A class may have properties beside its fields, and these are attributes, too.
    others = {
        name: None
        for kind in origin.__mro__[:-1]
        for name, value in vars(kind).items()
        if isinstance(value, property | types.MemberDescriptorType) and name not in hints
    }
    return {**hints, **others}
