"""SQL expressions as plain data: SDK expressions with operations ``sql.…``.

The first argument of an operation is the type of its result, the others are expressions, or plain
values for columns and literals. A tree is stored as JSON text, and needs no library to be read.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow

from bicycle_runtime.expressions.sql.casts import conversion
from bicycle_runtime.expressions.sql.functions import Signature, SqlFunction
from bicycle_runtime.expressions.sql.python_calls import PythonFunction
from bicycle_runtime.expressions.sql.table import FUNCTIONS
from bicycle_runtime.expressions.sql.types import (
    SqlType,
    as_decimal,
    common_type,
    decimal_digits,
    implicit_distance,
)
from bicycle_sdk.expressions import Expression, col

# Types that a text in quotes becomes where a function expects them.
_QUOTED = frozenset({"TIMESTAMP", "DATE", "TIME", "INTERVAL", "JSON"})
_QUOTED_DISTANCE = 3
_OF_PYTHON = {type(None): "NULL", bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
# Functions that compute an argument only for the rows that need it.
_LAZY = {"coalesce": "coalesce", "ifnull": "coalesce", "nvl": "coalesce", "if": "if", "iff": "if"}


# Words of other systems for the current time.
CLOCKS = ("current_date", "current_time", "current_timestamp", "localtimestamp", "now", "proctime")
# Functions of other systems, with what does the same here.
OF_OTHERS = {
    **dict.fromkeys(("datediff", "date_diff"), "write date_diff('day', start, end)"),
    "to_timestamp": "write CAST(text AS TIMESTAMP), or pass seconds",
    "to_timestamp_ltz": "write epoch_ms(milliseconds), or to_timestamp(seconds)",
    "unix_timestamp": "write epoch(time)", "from_unixtime": "write to_timestamp(seconds)",
    "to_date": "write CAST(text AS DATE)", "date_add": "write time + INTERVAL '1' DAY",
    "date_sub": "write time - INTERVAL '1' DAY", "to_char": "write strftime(time, '%Y-%m-%d')",
    "get_json_object": "write json ->> '$.key'", "element_at": "write array[1]",
    "explode": "write FROM table CROSS JOIN UNNEST(column) AS t (x)", "size": "write array_length",
    "nvl2": "write CASE WHEN … END", "decode": "write CASE WHEN … END", "iif": "write if(…)",
    **dict.fromkeys(CLOCKS, "compare event times; a join or a window can read PROCTIME()"),
    **dict.fromkeys(("random", "rand", "uuid"), "results must not depend on chance"),
    **dict.fromkeys(
        (f"{kind}_{end}" for kind in ("tumble", "hop", "session") for end in ("start", "end")),
        "read window_start and window_end of a window function in FROM",
    ),
}  # fmt: skip


class UnknownFunctionError(ValueError):
    """The name of a function that is not in the table."""

    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(name, [*FUNCTIONS, *_LAZY], 1)
        found = OF_OTHERS.get(name) or (f"did you mean {near[0]!r}?" if near else "")
        self.hint = f"; {found}" if found else ""
        super().__init__(f"there is no function {name!r}{self.hint}")


class WrongTypesError(ValueError):
    """Arguments that no signature of a function accepts; ``problem`` follows its name."""

    def __init__(self, name: str, given: Sequence[SqlType], expected: str, group: str = "") -> None:
        is_pair = len(given) == 2  # The operands of an operator.
        if group == "comparison" and is_pair:
            self.problem = f"compares {given[0]} with {given[1]}; cast one of them"
        elif group == "arithmetic" and is_pair:
            hint = "write to_seconds(number)" if "INTERVAL" in given else "cast to a number"
            self.problem = f"computes with {given[0]} and {given[1]}; {hint}"
        else:
            found = ", ".join(given) or "no arguments"
            hint = OF_OTHERS.get(name, "cast the arguments")
            self.problem = f"expects {expected}, got {found}; {hint}"
        super().__init__(f"{name} {self.problem}")


def type_of(expression: Expression) -> SqlType:
    """Return the type of an SQL expression.

    Example:
        >>> type_of(call("add", column("n", "BIGINT"), literal(0.5)))
        'DOUBLE'
    """
    word: SqlType = expression.arguments[0]
    return word


def is_sql(expression: Expression) -> bool:
    """Return whether an expression has SQL semantics."""
    return expression.operation.startswith("sql.")


def column(source: str | Expression, word: SqlType) -> Expression:
    """Return a field of each record as a column.

    A value of another type is an error of its record.

    Args:
        source: The name of a field, or an expression with Python semantics.
        word: The type of the column. Values of a JSON column are encoded as JSON.
    """
    return Expression("sql.column", word, col(source) if isinstance(source, str) else source)


def literal(value: Any, word: SqlType | None = None) -> Expression:
    """Return a constant.

    Args:
        value: A plain value. A TIMESTAMP is in milliseconds, a DATE in days since 1970, a DECIMAL a
            text, a BLOB hexadecimal text, an INTERVAL a list of months, days and nanoseconds.
        word: The type; needed for values other than None, bool, int, float and str.
    """
    return Expression("sql.literal", word or _OF_PYTHON[type(value)], value)


def cast(value: Expression, word: SqlType, *, is_try: bool = False) -> Expression:
    """Return a value converted to a type; the value itself if it has this type.

    Args:
        value: The value.
        word: The type.
        is_try: A value that cannot be converted becomes NULL instead of an error of its record.
    """
    if type_of(value) == word:
        return value
    if value.operation == "sql.literal" and value.arguments[1] is None:
        return literal(None, word)
    return Expression("sql.try_cast" if is_try else "sql.cast", word, value)


def combine(join: Callable[..., Expression], parts: Sequence[Expression]) -> Expression:
    """Return a chain of AND or OR as a balanced tree, which is not deep."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [*(join(*pair) for pair in pairs), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def all_of(conditions: Sequence[Expression]) -> Expression:
    """Return the condition that all of some conditions are true."""
    return combine(partial(call, "and"), conditions)


def case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression) -> Expression:
    """Return the value of the first branch whose condition is true.

    Other branches are not computed.

    Raises:
        ValueError: a condition is not BOOLEAN, or the values have no common type.
    """
    for condition, _ in branches:
        if type_of(condition) not in ("BOOLEAN", "NULL"):
            raise ValueError(f"a condition has the type {type_of(condition)}, expected BOOLEAN")
    values = _unify("CASE", [*(value for _, value in branches), otherwise])
    conditions = [cast(condition, "BOOLEAN") for condition, _ in branches]
    parts = [part for pair in zip(conditions, values, strict=False) for part in pair]
    return Expression("sql.case", type_of(values[-1]), *parts, values[-1])


def call(name: str, *arguments: Expression) -> Expression:
    """Return a function applied to arguments, which are converted to its types.

    Args:
        name: A name of the function in any case.
        arguments: SQL expressions.

    Raises:
        UnknownFunctionError: the table has no such function.
        WrongTypesError: no signature accepts the arguments.
    """
    word = name.lower()
    if word in _LAZY and arguments:
        return _lazy(word, arguments)
    found = FUNCTIONS.get(word)
    if found is None:
        raise UnknownFunctionError(word)
    result, values = resolve(found, word, arguments)
    return Expression(f"sql.{found.name}", result, *values)


def resolve(
    found: SqlFunction, word: str, arguments: Sequence[Expression]
) -> tuple[SqlType, list[Expression]]:
    """Return the type of a call, and its arguments with the types of a signature.

    Raises:
        WrongTypesError: no signature accepts the arguments.
    """
    given = [type_of(each) for each in arguments]
    resolved = _resolve(found, given, [each.operation == "sql.literal" for each in arguments])
    if resolved is None:
        raise WrongTypesError(word, given, expected_types(found), found.group)
    is_format = found.name == "strftime" and arguments[1].operation == "sql.literal"
    if is_format and isinstance(text := arguments[1].arguments[-1], str) and "%" not in text:
        raise ValueError(f"{word} takes a format such as '%Y-%m-%d', got {text!r}")
    pairs = zip(arguments, resolved.arguments, strict=True)
    return resolved.result, [_convert_argument(*pair) for pair in pairs]


def expected_types(function: SqlFunction) -> str:
    """Return the arguments that a function accepts, as text."""
    return " or ".join(f"({each})" for each in function.signatures)


def _lazy(name: str, arguments: Sequence[Expression]) -> Expression:
    if _LAZY[name] == "if":
        if len(arguments) not in (2, 3):
            raise WrongTypesError(name, [type_of(each) for each in arguments], "(BOOLEAN T T?)")
        return case([(arguments[0], arguments[1])], [*arguments, literal(None)][2])
    values = _unify(name, arguments)
    return Expression("sql.coalesce", type_of(values[0]), *values)


def _unify(name: str, values: Sequence[Expression]) -> list[Expression]:
    words = [type_of(each) for each in values]
    found = common_type(words)
    if found is None:  # Texts in quotes become times.
        rest = [type_of(each) for each in values if each.operation != "sql.literal"]
        found = common_type(rest) if rest else None
    if found is None or not all(
        implicit_distance(word, found) is not None
        or (decimal_digits(found) and decimal_digits(as_decimal(word)))
        or each.operation == "sql.literal"
        for word, each in zip(words, values, strict=True)
    ):
        raise WrongTypesError(name, words, "values of one type")
    return [_convert_argument(each, found) for each in values]


def _convert_argument(value: Expression, word: SqlType) -> Expression:
    """Return a value converted to the type of a function.

    Raises:
        ValueError: it is a text in quotes that does not have this type.
    """
    convert = conversion("VARCHAR", word) if word in _QUOTED else None
    if convert is not None and value.operation == "sql.literal" and type_of(value) == "VARCHAR":
        convert(pyarrow.array(value.arguments[1:], pyarrow.string()))
    return cast(value, word)


# --- signatures -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The types that arguments are converted to, and the type of the result."""

    arguments: tuple[SqlType, ...]
    result: SqlType


def _resolve(
    function: SqlFunction, given: Sequence[SqlType], quoted: Sequence[bool]
) -> _Resolved | None:
    """Return the signature that arguments fit with the fewest conversions, or None.

    Args:
        function: The function.
        given: The types of the arguments.
        quoted: Which arguments are texts in quotes, which become times, too.
    """
    found: list[tuple[int, _Resolved]] = []
    for signature in function.signatures:
        expected = signature.expected(len(given))
        fitted = None if expected is None else _fit(expected, given, quoted)
        if fitted is not None:
            distance, types, bound = fitted
            found.append((distance, _Resolved(types, _result(function, signature, types, bound))))
    return min(found, key=lambda each: each[0])[1] if found else None


_Fit = tuple[int, tuple[SqlType, ...], SqlType]


def _fit(expected: list[str], given: Sequence[SqlType], quoted: Sequence[bool]) -> _Fit | None:
    bound = _bind(expected, given, quoted)
    distance, types = 0, []
    for pattern, word, is_quoted in zip(expected, given, quoted, strict=True):
        wanted = pattern.replace("T", bound or "NULL") if _is_variable(pattern) else pattern
        away = 0 if wanted in ("ANY", "TEXT") else implicit_distance(word, wanted)
        if away is None and decimal_digits(wanted) and decimal_digits(as_decimal(word)):
            away = 1
        if away is None and is_quoted and word == "VARCHAR" and wanted in _QUOTED:
            away = _QUOTED_DISTANCE
        if away is None or (bound is None and _is_variable(pattern)):
            return None
        distance += away
        if wanted == "ANY":
            types.append(word)
        elif wanted == "TEXT":
            types.append("VARCHAR")
        elif wanted == "DECIMAL":
            types.append(as_decimal(word) if word != "NULL" else "DECIMAL(19,0)")
        else:
            types.append(wanted)
    return distance, tuple(types), bound or "NULL"


def _bind(expected: list[str], given: Sequence[SqlType], quoted: Sequence[bool]) -> SqlType | None:
    """Return the type that ``T`` means for some arguments, or None."""
    words, texts = ["NULL"], list[SqlType]()
    for pattern, word, is_quoted in zip(expected, given, quoted, strict=True):
        if pattern == "T":
            (texts if is_quoted and word == "VARCHAR" else words).append(word)
        elif _is_variable(pattern):
            brackets = pattern.removeprefix("T")
            if word != "NULL" and not word.endswith(brackets):
                return None
            words.append(word.removesuffix(brackets))
    found = common_type(words)
    if texts and found not in _QUOTED:
        return None if found is None else common_type([found, "VARCHAR"])
    return found


def _result(
    function: SqlFunction, signature: Signature, types: tuple[SqlType, ...], bound: SqlType
) -> SqlType:
    if signature.result == "DECIMAL":
        digits = [word for word in types if decimal_digits(word)]
        assert function.decimal is not None
        return function.decimal(*digits)
    is_bound = _is_variable(signature.result)
    return signature.result.replace("T", bound) if is_bound else signature.result


def _is_variable(pattern: str) -> bool:
    return pattern.rstrip("[]") == "T"


def share_parts(trees: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return equal trees in which equal parts are one object, which is computed once."""
    known: dict[tuple[Any, ...], Expression] = {}

    def share(tree: Expression) -> Expression:
        parts = [share(one) if isinstance(one, Expression) else one for one in tree.arguments]
        keys = (id(one) if isinstance(one, Expression) else repr(one) for one in parts)
        return known.setdefault((tree.operation, *keys), Expression(tree.operation, *parts))

    return tuple(map(share, trees))


# --- as text -------------------------------------------------------------------------------------


def to_text(expression: Expression) -> str:
    """Return an expression as JSON text.

    Example:
        >>> to_text(call("lower", column("name", "VARCHAR")))
        '{"sql.lower":["VARCHAR",{"sql.column":["VARCHAR",{"field":["name"]}]}]}'
    """
    return json.dumps(_data(expression), separators=(",", ":"))


def _data(value: Any) -> Any:
    if isinstance(value, Expression):
        return {value.operation: [_data(each) for each in value.arguments]}
    return value.location if isinstance(value, PythonFunction) else value
