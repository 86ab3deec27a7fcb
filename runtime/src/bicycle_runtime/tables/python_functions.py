"""Functions in Python for SQL, with types from their annotations.

A function is ``module:name``, or the name of an entry point of an installed distribution in the
group ``bicycle.sql_functions``. Calls are resolved as those of the functions of SQL.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from bicycle_runtime.endpoints.named_functions import FunctionMissingError, found_object
from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.functions import Signature, SqlFunction
from bicycle_runtime.expressions.sql.python_calls import PythonFunction
from bicycle_runtime.expressions.sql.table import FUNCTIONS
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.dialect import Name
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.records import WORDS, RecordColumn, record_columns, type_of_hint
from bicycle_sdk.entry_points import entry_points
from bicycle_sdk.expressions import Expression
from bicycle_sdk.sql_functions import SqlMark, sql_mark
from bicycle_sdk.windows.functions import AggregateFunction

GROUP = "bicycle.sql_functions"
_WORDS: Mapping[Any, SqlType] = {**WORDS, bytes: "BLOB", Decimal: "DECIMAL", Any: "JSON"}
# Names that mean functions of SQL everywhere.
RESERVED_FUNCTIONS = frozenset(
    {*FUNCTIONS, "if", "coalesce", "cast", "count", "sum", "avg", "min", "max", "unnest"}
)
_REPEATED = inspect.Parameter.VAR_POSITIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A function in Python under its name in SQL, perhaps an aggregate."""

    name: str
    row: SqlFunction
    python: PythonFunction
    aggregate: AggregateFunction[Any, Any, Any] | None = None
    columns: tuple[RecordColumn, ...] = ()  # Of the rows that it returns; the name may be empty.

    def bind_rows(self, arguments: Sequence[Expression]) -> tuple[PythonFunction, list[Expression]]:
        """Return the function and its converted arguments, for a call that returns rows.

        Raises:
            ValueError: the arguments do not fit the annotations.
        """
        found = replace(self, columns=()).call(arguments)
        return found.arguments[1], list(found.arguments[2:])

    def call(self, arguments: Sequence[Expression]) -> Expression:
        """Return a call; for an aggregate, its converted argument.

        Raises:
            ValueError: the arguments do not fit the annotations.
        """
        if self.columns:
            raise ValueError(
                f"{self.name} returns rows: write FROM table CROSS JOIN LATERAL TABLE({self.name}"
                "(…)) AS t"
            )
        result, given = tree.resolve(self.row, self.name, arguments)
        if self.aggregate is not None:
            return given[0]
        kept = self.python.takes_null
        bound = replace(
            self.python,
            types=tuple(map(tree.type_of, given)),
            takes_null=(*kept, *kept[-1:] * (len(given) - len(kept)))[: len(given)],
        )
        return Expression("sql.python", result, bound, *given)


class CalledName(str):
    """The name of a function in a parsed query, with the function."""

    __slots__ = ("function",)
    function: UserFunction


def called(node: exp.Expr) -> UserFunction | None:
    """Return the function in Python that a part of a query calls, or None."""
    is_call = isinstance(node, exp.Anonymous) and isinstance(node.this, CalledName)
    return node.this.function if is_call else None


def with_functions(node: exp.Expr, functions: Mapping[str, UserFunction]) -> exp.Expr:
    """Return a query whose calls of functions in Python have these functions."""
    if functions:
        node = node.copy()
        for part in node.find_all(exp.Anonymous):
            found = functions.get(str(part.this).lower())
            if found is not None:
                name = CalledName(part.this)
                name.function = found
                part.set("this", name)
    return node


def load_function(name: Name, location: Name, *, of_plugins: bool) -> UserFunction:
    """Return the function at a location.

    Args:
        name: Its name in SQL.
        location: Its location.
        of_plugins: Whether ``module:name`` must be of an installed plugin, as in pipelines.

    Raises:
        SqlProblem: it cannot be imported, or its annotations are not types of SQL.
    """
    path, at = location.text, location.at
    if ":" not in path:
        points = {each.name: each.location for each in entry_points(GROUP)}
        if path not in points:
            known = ", ".join(sorted(points)) or "none"
            raise SqlProblem(
                at, f"{path!r} is neither 'module:function' nor an entry point of the group "
                f"{GROUP}; known: {known}",
            )  # fmt: skip
        path, of_plugins = points[path], False
    try:
        target = found_object(path, of_plugins=of_plugins)
    except FunctionMissingError as error:
        raise SqlProblem(at, str(error)) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise SqlProblem(at, f"{path!r} cannot be imported: {text}") from error
    try:
        return describe_function(name.text, target, path)
    except (TypeError, ValueError, NameError) as error:
        raise SqlProblem(at, f"{path!r} cannot be called by SQL: {error}") from error


def describe_function(name: str, target: Any, location: str) -> UserFunction:
    """Return a Python object as a function of SQL.

    Raises:
        ValueError: it is no function, or its annotations are not types of SQL.
    """
    is_aggregate = isinstance(target, type) and issubclass(target, AggregateFunction)
    mark = sql_mark(target) or SqlMark(kind="aggregate" if is_aggregate else "scalar")
    if mark.kind == "aggregate" and not is_aggregate:
        raise ValueError("an aggregate is a class derived from AggregateFunction")
    if not callable(target):
        raise ValueError(f"it is {type(target).__name__}, not a function")
    if inspect.iscoroutinefunction(target):
        raise ValueError("it is async; a function of SQL returns its result")
    aggregate = target() if is_aggregate else None
    source = target if aggregate is None else aggregate.add
    result_of = target if aggregate is None else aggregate.get_result
    parameters = list(inspect.signature(source).parameters.values())
    if aggregate is not None:
        parameters = parameters[1:]  # The accumulator.
    if any(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in parameters):
        raise ValueError("keyword arguments are not supported")
    if (mark.is_on_columns and not parameters) or (aggregate is not None and len(parameters) != 1):
        raise ValueError("it needs one argument")
    hints = typing.get_type_hints(source, include_extras=True)
    given = [_type_of(hints, each.name) for each in parameters]
    results = typing.get_type_hints(result_of, include_extras=True)
    columns = _row_columns(results.get("return")) if aggregate is None else ()
    if columns and mark.is_on_columns:
        raise ValueError("a function on columns returns a value for each row")
    result, returns_null = ("NULL", True) if columns else _type_of(results, "return")
    if "DECIMAL" in (
        result,
        *(each.type for each in columns),
        *(["-"] if aggregate is None else [given[0][0]]),
    ):
        raise ValueError('a Decimal needs digits: Annotated[Decimal, "DECIMAL(10, 2)"]')
    signature = Signature(
        tuple(word for word, _ in given), result,
        optional=sum(each.default is not each.empty for each in parameters),
        is_repeated=any(each.kind is _REPEATED for each in parameters),
    )  # fmt: skip
    python = PythonFunction(
        location=location, function=target, types=signature.arguments,
        takes_null=tuple(mark.is_on_columns or takes for _, takes in given),
        returns_null=mark.is_on_columns or returns_null,
        is_on_columns=mark.is_on_columns, is_deterministic=mark.is_deterministic,
    )  # fmt: skip
    row = SqlFunction(
        names=(name,), group="text", signatures=(signature,), compute=target, examples=()
    )
    return UserFunction(name=name, row=row, python=python, aggregate=aggregate, columns=columns)


def _row_columns(hint: Any) -> tuple[RecordColumn, ...]:
    """Return the columns of the rows that a function returns; empty for values.

    It returns rows if its result is an iterator of values or records, or a list of records.
    """
    origin, items = typing.get_origin(hint), typing.get_args(hint)
    if origin not in (list, abc.Iterable, abc.Iterator, abc.Generator) or not items:
        return ()
    kind = typing.get_origin(items[0]) or items[0]
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    if has_fields or (typing.is_typeddict(kind) and origin is not list):
        return tuple(record_columns(items[0]))
    if origin is list:
        return ()
    word, is_nullable = type_of_hint(items[0], _WORDS)
    return (RecordColumn(name="", type=word, is_nullable=is_nullable),)


def _type_of(hints: Mapping[str, Any], name: str) -> tuple[SqlType, bool]:
    """Return the type of SQL that an annotation means, and whether None is possible."""
    if name not in hints:
        shown = "its result" if name == "return" else f"the argument {name!r}"
        raise ValueError(f"{shown} has no annotation")
    return type_of_hint(hints[name], _WORDS)
