"""Expressions over the fields of a record: ``col("price") * 2 > 10``.

An expression is a function of a record, and is accepted wherever a function is. Its computation is
data, not code: the runtime carries it out over columns of many records at once, and a job that
names a field which its records do not have, or adds a number to a text, is refused before it runs.
The results equal Python's for each record by itself, errors included: ints do not overflow, and
None is no number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeGuard

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.value_functions import BY_NAME

__all__ = ["Expression", "col", "field_value", "is_expression", "lit", "named", "together"]

_SYMBOLS = frozenset({"+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "&", "|"})


class Expression:
    """A value computed from each record, built with ``col``, ``lit`` and operators.

    ``operation`` is the name of the operation, ``arguments`` its operands: expressions, or plain
    values if the operation takes these.

    Example:
        >>> total = col("price") * col("quantity")
        >>> total
        col('price') * col('quantity')
        >>> (col("price") > 10) & ~col("kind").lower().is_in(["gift"])
        (col('price') > 10) & ~col('kind').lower().is_in(('gift',))
        >>> total({"price": 3, "quantity": 4})
        12
    """

    __slots__ = ("arguments", "operation")

    def __init__(self, operation: str, *arguments: Any) -> None:
        self.operation = operation
        self.arguments = arguments

    def __call__(self, record: Any) -> Any:
        """Return the value for one record: a mapping, or an object with attributes."""
        if self.operation == "field":
            return field_value(record, self.arguments[0])
        if self.operation == "literal":
            return self.arguments[0]
        if self.operation == "record":
            names, *values = self.arguments
            return dict(zip(names, [value(record) for value in values], strict=True))
        found = [one(record) if isinstance(one, Expression) else one for one in self.arguments]
        return OPERATIONS[self.operation](*found)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.operation, *self.arguments)

    def __repr__(self) -> str:
        return _text(self)

    # --- arithmetic --------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return Expression("+", self, lit(other))

    def __radd__(self, other: Any) -> Expression:
        return Expression("+", lit(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Expression("-", self, lit(other))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("-", lit(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", self, lit(other))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", lit(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", self, lit(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Expression("/", lit(other), self)

    def __floordiv__(self, other: Any) -> Expression:
        return Expression("//", self, lit(other))

    def __rfloordiv__(self, other: Any) -> Expression:
        return Expression("//", lit(other), self)

    def __mod__(self, other: Any) -> Expression:
        return Expression("%", self, lit(other))

    def __rmod__(self, other: Any) -> Expression:
        return Expression("%", lit(other), self)

    def __neg__(self) -> Expression:
        return Expression("negative", self)

    def __abs__(self) -> Expression:
        return Expression("absolute", self)

    def round(self, digits: int | None = None) -> Expression:
        """Return the number rounded like ``round``, half to even; without digits an int."""
        return Expression("round", self, digits)

    # --- conditions --------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # it returns the comparison
        return Expression("==", self, lit(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # likewise
        return Expression("!=", self, lit(other))

    def __lt__(self, other: Any) -> Expression:
        return Expression("<", self, lit(other))

    def __le__(self, other: Any) -> Expression:
        return Expression("<=", self, lit(other))

    def __gt__(self, other: Any) -> Expression:
        return Expression(">", self, lit(other))

    def __ge__(self, other: Any) -> Expression:
        return Expression(">=", self, lit(other))

    def __and__(self, other: Any) -> Expression:
        return Expression("&", self, lit(other))

    def __rand__(self, other: Any) -> Expression:
        return Expression("&", lit(other), self)

    def __or__(self, other: Any) -> Expression:
        return Expression("|", self, lit(other))

    def __ror__(self, other: Any) -> Expression:
        return Expression("|", lit(other), self)

    def __invert__(self) -> Expression:
        return Expression("~", self)

    __hash__ = object.__hash__

    def is_null(self) -> Expression:
        """Return whether the value is None."""
        return Expression("is_null", self)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Return whether the value equals one of some values."""
        return Expression("is_in", self, tuple(values))

    # --- texts -------------------------------------------------------------------------------

    def lower(self) -> Expression:
        """Return the text in lower case."""
        return Expression("lower", self)

    def upper(self) -> Expression:
        """Return the text in upper case."""
        return Expression("upper", self)

    def text(self) -> Expression:
        """Return the value as text, like ``str``."""
        return Expression("text", self)

    # --- functions of values -------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        """Return a function of values (``bicycle_sdk.value_functions``) as a method.

        Raises:
            AttributeError: there is no such function.
        """
        if name not in BY_NAME:
            raise _NoSuchMethodError(name)
        return lambda *arguments: Expression(name, self, *map(lit, arguments))

    # --- Python's methods of values ------------------------------------------------------------

    def __bool__(self) -> bool:  # noqa: PLE0304  # it never returns
        self._refuse("and, or, not, if, and chains such as 1 < x < 2, need a single truth value")

    def __iter__(self) -> NoReturn:
        self._refuse("it does not support unpacking or the operator in")

    def __contains__(self, value: object) -> bool:
        self._refuse("it does not support the operator in")

    def _refuse(self, problem: str) -> NoReturn:
        raise StreamDefinitionError(
            call=repr(self),
            problem=f"an expression has a value for each record; {problem}",
            hint="write &, | and ~ with each comparison in parentheses, and is_in(...)",
        )


class _NoSuchMethodError(AttributeError):
    def __str__(self) -> str:
        # The search takes 2 ms, and most readers of attributes have a default.
        from difflib import get_close_matches

        [name] = self.args
        near = get_close_matches(name, BY_NAME, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"expressions have no method {name!r}{hint}"


def col(name: str) -> Expression:
    """Return the field of a record: an attribute, or the value of a dict key.

    Raises:
        StreamDefinitionError: the name is no text.
    """
    given: object = name  # Jobs need not be type-checked.
    if not isinstance(given, str) or not given:
        raise StreamDefinitionError(
            call="col", problem=f"expected the name of a field, got {given!r}", hint="give a text"
        )
    return Expression("field", name)


def lit(value: Any) -> Expression:
    """Return an expression with a constant value; an expression is returned unchanged."""
    return value if isinstance(value, Expression) else Expression("literal", value)


def named(columns: Mapping[str, Any]) -> Expression:
    """Return a dict with a value of the record under each name."""
    return Expression("record", tuple(columns), *map(lit, columns.values()))


def together(*parts: Any) -> Expression:
    """Return several values as a tuple, for keys of several fields."""
    return Expression("tuple", *map(lit, parts))


def is_expression(function: object) -> TypeGuard[Expression]:
    """Return whether a function is an expression."""
    return isinstance(function, Expression)


def field_value(record: Any, name: str) -> Any:
    """Return a field of a record."""
    return record[name] if isinstance(record, Mapping) else getattr(record, name)


def _both(a: Any, b: Any) -> bool:
    return _condition(a) & _condition(b)


def _either(a: Any, b: Any) -> bool:
    return _condition(a) | _condition(b)


def _condition(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is not a condition; &, | and ~ combine comparisons")
    return value


def _round(value: Any, digits: int | None) -> Any:
    return round(value) if digits is None else round(value, digits)


# Each operation for one record; over columns the results are the same.
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: row.call for name, row in BY_NAME.items()},
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "negative": operator.neg,
    "absolute": operator.abs,
    "round": _round,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": _both,
    "|": _either,
    "~": lambda value: not _condition(value),
    "is_null": lambda value: value is None,
    "is_in": lambda value, values: value in values,
    "text": str,
    "tuple": lambda *parts: parts,
}


def _text(expression: Expression) -> str:
    operation, arguments = expression.operation, expression.arguments
    shown = _TEXTS.get(operation)
    if shown is not None:
        return shown(*arguments)
    if operation in _SYMBOLS:
        left, right = (_inner(part, binds=_SYMBOLS) for part in arguments)
        return f"{left} {operation} {right}"
    if operation not in OPERATIONS:
        return f"{operation}({', '.join(map(repr, arguments))})"
    first, *others = arguments
    options = ", ".join(repr(one) for one in others if one is not None)
    return f"{_inner(first)}.{operation}({options})"


def _named_text(names: tuple[str, ...], *values: Expression) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))


_TEXTS: Mapping[str, Callable[..., str]] = {
    "field": lambda name, *_: f"col({name!r})",
    "literal": repr,
    "negative": lambda value: f"-{_inner(value)}",
    "~": lambda value: f"~{_inner(value)}",
    "absolute": lambda value: f"abs({value!r})",
    "tuple": lambda *parts: f"({', '.join(map(repr, parts))})",
    "record": _named_text,
}


def _inner(part: Expression, *, binds: frozenset[str] = _SYMBOLS | {"negative", "~"}) -> str:
    """Return a part as text, in parentheses if its operation binds less tightly."""
    return f"({part!r})" if part.operation in binds else repr(part)
