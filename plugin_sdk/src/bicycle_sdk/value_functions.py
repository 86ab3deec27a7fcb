"""The table of functions of values: one row declares a function for every front.

A row makes its function available in three ways: Python functions that call it are computed on
columns, ``col("name").method()`` accepts its name, and the declared types check expressions before
the start. The runtime computes the function with ``call`` itself, so all fronts return the results
of Python. The examples of a row are its test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timezone
from operator import attrgetter
from typing import Any, Literal

__all__ = ["Example", "Spelling", "ValueFunction"]

Example = tuple[tuple[Any, ...], Any]
Spelling = Literal["call", "method", "attribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFunction:
    """A function of plain values whose only effect is its result.

    Args:
        name: The operation in an expression, and the method of an expression.
        call: Python's function. It must not run code of its arguments.
        spelling: How Python code names it: ``len(x)``, ``x.strip()`` or ``x.year``.
        takes: Types of arguments that are accepted beside int, float, str, bool and None. Items of
            lists and tuples must be plain values.
        of: The type that the first argument must have, None for several types.
        returns: The type of each result, None for several types.
        examples: Arguments and results; at least one.
    """

    name: str
    call: Callable[..., Any]
    spelling: Spelling = "method"
    takes: frozenset[type] = frozenset()
    of: type | None = None
    returns: type | None = None
    examples: tuple[Example, ...]


def _call(
    call: Callable[..., Any], *examples: Example, returns: type | None = None,
    takes: tuple[type, ...] = (), name: str | None = None, of: type | None = None,
) -> ValueFunction:  # fmt: skip
    return ValueFunction(
        name=name or call.__name__, call=call, spelling="call", takes=frozenset(takes), of=of,
        returns=returns, examples=examples,
    )  # fmt: skip


def _text(call: Callable[..., Any], *examples: Example, returns: type = str) -> ValueFunction:
    return ValueFunction(name=call.__name__, call=call, of=str, returns=returns, examples=examples)


def _time(call: Callable[..., Any], *examples: Example, returns: type) -> ValueFunction:
    return ValueFunction(
        name=call.__name__, call=call, takes=frozenset({datetime}), of=datetime, returns=returns,
        examples=examples,
    )  # fmt: skip


def _part(name: str, result: int) -> ValueFunction:
    return ValueFunction(
        name=name, call=attrgetter(name), spelling="attribute", takes=frozenset({datetime}),
        of=datetime, returns=int, examples=(((_EXAMPLE_TIME,), result),),
    )  # fmt: skip


_EXAMPLE_TIME = datetime(2026, 11, 28, 13, 5, 9, 250_000, tzinfo=UTC)
_SEQUENCES = (list, tuple)

ROWS: tuple[ValueFunction, ...] = (
    # Conversions and numbers.
    _call(int, (("12",), 12), ((2.9,), 2), returns=int),
    _call(float, (("1.5",), 1.5), ((True,), 1.0), returns=float),
    _call(str, ((1.0,), "1.0"), ((None,), "None"), returns=str),
    _call(bool, (("",), False), ((2,), True), returns=bool),
    _call(isinstance, ((1, int), True), returns=bool, takes=(type,)),
    _call(len, (("abc",), 3), (([1, 2],), 2), returns=int, takes=(*_SEQUENCES, dict)),
    _call(min, ((2, 1), 1), (([2, 1],), 1), takes=_SEQUENCES),
    _call(max, ((2, 1), 2), (([2, 1],), 2), takes=_SEQUENCES),
    _call(sum, (([1, 2.5],), 3.5), takes=_SEQUENCES),
    _call(sorted, (([2, 1],), [1, 2]), returns=list, takes=_SEQUENCES),
    _call(ord, (("a",), 97), returns=int, of=str),
    _call(chr, ((97,), "a"), returns=str, of=int),
    _call(divmod, ((7, 2), (3, 1)), returns=tuple),
    _call(math.floor, ((2.5,), 2), returns=int),
    _call(math.ceil, ((2.5,), 3), returns=int),
    _call(math.sqrt, ((2.25,), 1.5), returns=float),
    _call(math.log, ((1,), 0.0), returns=float),
    _call(math.log10, ((100,), 2.0), returns=float),
    _call(math.exp, ((0,), 1.0), returns=float),
    _call(math.isnan, ((1.0,), False), returns=bool),
    # Methods of strings.
    _text(str.capitalize, (("aB",), "Ab")),
    _text(str.casefold, (("Straße",), "strasse")),
    _text(str.count, (("banana", "an"), 2), returns=int),
    _text(str.endswith, (("a.csv", ".csv"), True), returns=bool),
    _text(str.find, (("abc", "c"), 2), returns=int),
    _text(str.index, (("abc", "c"), 2), returns=int),
    _text(str.isalnum, (("a1",), True), returns=bool),
    _text(str.isalpha, (("a1",), False), returns=bool),
    _text(str.isdigit, (("12",), True), returns=bool),
    _text(str.islower, (("ab",), True), returns=bool),
    _text(str.isnumeric, (("12",), True), returns=bool),
    _text(str.isspace, ((" ",), True), returns=bool),
    _text(str.isupper, (("ab",), False), returns=bool),
    ValueFunction(
        name="join", call=str.join, of=str, takes=frozenset(_SEQUENCES), returns=str,
        examples=(((",", ["a", "b"]), "a,b"),),
    ),
    _text(str.ljust, (("a", 3), "a  ")),
    _text(str.lower, (("AB",), "ab")),
    _text(str.lstrip, ((" a ",), "a ")),
    _text(str.partition, (("a=b", "="), ("a", "=", "b")), returns=tuple),
    _text(str.removeprefix, (("ab", "a"), "b")),
    _text(str.removesuffix, (("ab", "b"), "a")),
    _text(str.replace, (("abab", "a", "c"), "cbcb")),
    _text(str.rfind, (("aba", "a"), 2), returns=int),
    _text(str.rjust, (("a", 3), "  a")),
    _text(str.rpartition, (("a=b=c", "="), ("a=b", "=", "c")), returns=tuple),
    _text(str.rsplit, (("a b c", " ", 1), ["a b", "c"]), returns=list),
    _text(str.rstrip, ((" a ",), " a")),
    _text(str.split, (("a b  c",), ["a", "b", "c"]), (("a,b", ","), ["a", "b"]), returns=list),
    _text(str.splitlines, (("a\nb",), ["a", "b"]), returns=list),
    _text(str.startswith, (("/home", "/"), True), returns=bool),
    _text(str.strip, ((" a ",), "a"), (("--a", "-"), "a")),
    _text(str.swapcase, (("aB",), "Ab")),
    _text(str.title, (("a b",), "A B")),
    _text(str.upper, (("ab",), "AB")),
    _text(str.zfill, (("7", 3), "007")),
    # Entries of dicts that are fields.
    ValueFunction(
        name="get", call=dict.get, of=dict, takes=frozenset({dict}),
        examples=((({"a": 1}, "a"), 1), (({}, "a", 0), 0)),
    ),
    # Times.
    _call(
        datetime.fromisoformat, (("2026-11-28T13:05:09.25+00:00",), _EXAMPLE_TIME),
        returns=datetime, of=str,
    ),
    _call(
        datetime.fromtimestamp, ((1795871109.25, UTC), _EXAMPLE_TIME),
        returns=datetime, takes=(timezone,),
    ),
    _call(
        datetime.strptime, (("28.11.2026", "%d.%m.%Y"), datetime(2026, 11, 28)),  # noqa: DTZ001  # as strptime returns it
        returns=datetime, of=str,
    ),
    _time(datetime.timestamp, ((_EXAMPLE_TIME,), 1795871109.25), returns=float),
    _time(datetime.isoformat, ((_EXAMPLE_TIME,), "2026-11-28T13:05:09.250000+00:00"), returns=str),
    _time(datetime.strftime, ((_EXAMPLE_TIME, "%H:%M"), "13:05"), returns=str),
    _time(datetime.weekday, ((_EXAMPLE_TIME,), 5), returns=int),
    _time(datetime.date, ((_EXAMPLE_TIME,), date(2026, 11, 28)), returns=date),
    _part("year", 2026), _part("month", 11), _part("day", 28), _part("hour", 13),
    _part("minute", 5), _part("second", 9), _part("microsecond", 250_000),
)  # fmt: skip


BY_NAME: Mapping[str, ValueFunction] = {row.name: row for row in ROWS}
CALLS: Mapping[Callable[..., Any], ValueFunction] = {
    row.call: row for row in ROWS if row.spelling == "call"
}
METHODS: Mapping[str, ValueFunction] = {row.name: row for row in ROWS if row.spelling == "method"}
ATTRIBUTES: Mapping[str, ValueFunction] = {
    row.name: row for row in ROWS if row.spelling == "attribute"
}
