"""Functions that are read compute on columns what they return, and fail where they fail."""

import copy
from datetime import datetime
from operator import itemgetter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.map_shapes import flat_mapped_shape, mapped_shape
from bicycle_runtime.expressions.mapping import flat_mapped, mapped
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.frames.vectors import Refused
from tests.examples import examples

PATIENT = settings(
    max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck)
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**62, -(2**63), 2**53 + 1, 10**20, True]),
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 1e308, float("inf"), float("nan"), 0.5, 2.5, 1.005]),
)
TEXTS = st.sampled_from(["", "a", "aB", " b ", "ß", "12", "a,b", "b c a"])
VALUES = {
    "a": NUMBERS,
    "b": NUMBERS,
    "n": st.integers(-2, 2),
    "x": st.floats(-2, 2),
    "s": TEXTS,
    "o": st.one_of(st.none(), st.integers(0, 3), st.just("a")),
    "l": st.lists(st.integers(-2, 2), max_size=3),
    "t": st.lists(TEXTS, max_size=2),
    "d": st.sampled_from(["2026-11-28T13:05:09", "2026-11-28T13:05:09+02:00", "28.11.2026"]),
}
OPTIONAL = {"m": st.integers(0, 2)}  # Not every record has it.
RECORDS = st.lists(st.fixed_dictionaries(VALUES, optional=OPTIONAL), min_size=1, max_size=6)
FIELDS = st.sampled_from([*(f'r["{name}"]' for name in [*VALUES, *OPTIONAL]), 'r.get("m", 1)'])
LITERALS = st.sampled_from(["0", "1", "2.5", "-1", '"a"', "None", "True", "LIMIT", "TABLE"])
LOCALS = st.sampled_from(["u", "v"])
NAMES = st.sampled_from(["a", "s", "m", "k", "z"])


def joined(*parts):
    return st.tuples(*(st.just(p) if isinstance(p, str) else p for p in parts)).map("".join)


def deeper(inner):
    def binary(*symbols):
        return joined("(", inner, " ", st.sampled_from(symbols), " ", inner, ")")

    def call(name, *others):
        return joined(name, "(", inner, *others, ")")

    return st.one_of(
        binary("+", "-", "*", "/", "//", "%"),
        binary("<", "<=", "==", "!=", ">"),
        binary("and", "or"),
        joined("(", inner, " < ", inner, " <= ", inner, ")"),
        joined("(", inner, " if ", inner, " else ", inner, ")"),
        joined("(not ", inner, ")"),
        joined("(-", inner, ")"),
        joined("(", inner, " is None)"),
        joined("(", inner, ' in ("a", 1, None))'),
        joined("(", inner, ", ", inner, ")[", st.sampled_from(["0", "1"]), "]"),
        joined('f"{', LOCALS, "}{", LOCALS, '!s:>3}"'),
        joined('r["s"].', st.sampled_from(["upper", "strip", "title", "split"]), "()"),
        joined("(", inner, ")", st.sampled_from(["[0]", "[1:]", "[:-1]", "[::2]", "[u:v]"])),
        joined(
            "(",
            inner,
            ")",
            st.sampled_from([".split(',')", ".replace('a', 'b')", ".startswith('a')"]),
        ),
        joined(
            "TABLE",
            st.sampled_from([".get(", "["]).flatmap(
                lambda way: joined(way, inner, ")" if way == ".get(" else "]")
            ),
        ),
        joined(
            "datetime.fromisoformat(", inner, ")", st.sampled_from(["", ".timestamp()", ".hour"])
        ),
        joined("[", inner, ", ", inner, "]"),
        joined("[(", inner, ", i) for i in ", inner, "]"),
        joined("[i for i in ", inner, " if ", inner, "]"),
        joined("sum(i for i in ", inner, ")"),
        joined("kept(", inner, ", low=", inner, ")"),
        st.sampled_from(
            ["abs", "bool", "float", "int", "str", "round", "len", "min", "sorted"]
        ).flatmap(call),
        call("round", ", 1"),
        call("max", ", ", inner),
        call("first", ", ", inner),
    )


EXPRESSIONS = st.recursive(st.one_of(FIELDS, FIELDS, LITERALS, LOCALS), deeper, max_leaves=6)


def block(indent):
    """Return statements that may end without a return."""
    pad = "    " * indent
    simple = st.one_of(
        joined(pad, LOCALS, " = ", EXPRESSIONS, "\n"),
        joined(pad, EXPRESSIONS, "\n"),
        joined(pad, LOCALS, " += ", EXPRESSIONS, "\n"),
        joined(pad, 'r["', NAMES, '"] = ', EXPRESSIONS, "\n"),
        joined(pad, 'r["', NAMES, '"] += ', EXPRESSIONS, "\n"),
        joined(pad, st.sampled_from(["r.update(", "r |= dict("]), NAMES, "=", EXPRESSIONS, ")\n"),
        joined(pad, "marked(r)\n"),
    )
    if indent > 2:
        return st.one_of(simple, joined(pad, "return ", RESULTS, "\n"))
    inner = st.lists(block(indent + 1), min_size=1, max_size=2).map("".join)
    return st.one_of(
        simple,
        joined(pad, "if ", EXPRESSIONS, ":\n", inner),
        joined(pad, "if ", EXPRESSIONS, ":\n", inner, pad, "else:\n", inner),
    )


RESULTS = st.one_of(
    EXPRESSIONS,
    st.just("r"),
    joined("{'k': ", EXPRESSIONS, ", 'v': ", EXPRESSIONS, "}"),
    joined("(", EXPRESSIONS, ", ", EXPRESSIONS, ")"),
    joined("{**r, '", NAMES, "': ", EXPRESSIONS, "}"),
    joined("r | {'", NAMES, "': ", EXPRESSIONS, "}"),
    joined("dict(r, ", NAMES, "=", EXPRESSIONS, ")"),
)
BODIES = st.lists(block(1), max_size=3).map("".join)
RETURNS = joined("    return ", RESULTS, "\n")
SOURCES = joined("def function(r):\n    u = 1\n    v = r['n']\n", BODIES, RETURNS)
ITEMS = st.one_of(
    EXPRESSIONS,
    joined("[", RESULTS, " for i in ", EXPRESSIONS, "]"),
    joined("[", RESULTS, " for i in ", EXPRESSIONS, " if ", EXPRESSIONS, "]"),
    joined("[{'i': i, 'v': ", EXPRESSIONS, "} for i in r['l'] if i > ", EXPRESSIONS, "]"),
    joined("[(i, ", EXPRESSIONS, ") for i in r['s'].split()]"),
)
LISTS = joined("def function(r):\n    u = 1\n    v = r['n']\n", BODIES, "    return ", ITEMS, "\n")


def first(one, other):  # Called by functions that are read; ``other`` may fail and is not used.
    return one


def kept(value, low=0, *, high=3):
    if value is None:
        return low
    return min(max(value, low), high)


def marked(record):
    record["z"] = record["n"] + 1
    return record


def made(source):
    names = {
        "first": first, "kept": kept, "marked": marked, "datetime": datetime, "LIMIT": 2,
        "TABLE": {"a": 1, 2: "b", None: [1]},
    }  # fmt: skip
    exec(compile(source, "function", "exec"), names)  # as users write it
    return names["function"]


def outcome(function, record):
    try:
        return function(record)
    except Exception as error:  # noqa: BLE001  # Whatever a function raises is an outcome.
        return type(error)


def aliases(values):
    """Return for each list and dict within records where it is found first."""
    seen = {}

    def walk(value, path):
        if isinstance(value, list | dict):
            yield path, seen.setdefault(id(value), path)
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            if isinstance(part, list | dict | tuple):
                yield from walk(part, (*path, name))

    return list(walk(list(values), ()))


def frames(records):
    """Return records as dicts that exist, and as rows whose dicts are created on demand."""
    yield Frame.of_dicts(copy.deepcopy(records))
    names = list(records[0])
    if all(list(record) == names for record in records):
        rows = copy.deepcopy(records)
        yield Frame.of_rows(
            FieldRows(
                objects=rows, make=lambda: copy.deepcopy(records), names=lambda: names,
                getter=itemgetter, values=lambda row: tuple(row.values()),
            )
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Such as for `1 is None`.
@PATIENT
@given(SOURCES, RECORDS)
def test_what_is_read_gives_what_is_returned_or_leaves_it_to_the_function(source, records):
    function = made(source)
    expected = [outcome(function, record) for record in copy.deepcopy(records)]

    try:
        expression = read(function, may_change=True)
    except Reading:
        return
    if mapped_shape(expression, RecordShape(form="mapping", names=None))[1] is not None:
        return  # The choice for the chain is to call it.
    for frame in frames(records):
        given_records = list(frame)
        before = repr(given_records)
        try:
            found = list(mapped(expression, frame))
        except Refused:
            continue
        assert repr(found) == repr(expected)
        assert aliases(found) == aliases(expected)
        assert repr(given_records) == before  # The input is unchanged.


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@PATIENT
@given(LISTS, RECORDS)
def test_a_flat_map_that_is_read_gives_what_is_returned(source, records):
    function = made(source)
    results = [outcome(function, record) for record in copy.deepcopy(records)]

    try:
        expression = read(function, may_change=True)
    except Reading:
        return
    if flat_mapped_shape(expression, RecordShape(form="mapping", names=None))[1] is not None:
        return
    for frame in frames(records):
        try:
            found, rows = flat_mapped(expression, frame)
        except Refused:
            continue
        assert all(isinstance(result, list | tuple) for result in results)
        expected = [(row, each) for row, result in enumerate(results) for each in result]
        assert repr(list(found)) == repr([each for _, each in expected])
        assert rows.tolist() == [row for row, _ in expected]
