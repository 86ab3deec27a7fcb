"""Functions that are read compute on columns what they return, and fail where they fail."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.expressions.function_reading import Reading, read
from bicycle_runtime.expressions.mapping import mapped
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_shapes import RecordShape, mapped_shape
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
VALUES = {
    "a": NUMBERS,
    "b": NUMBERS,
    "n": st.integers(-2, 2),
    "x": st.floats(-2, 2),
    "s": st.sampled_from(["", "a", "aB", " b ", "ß", "12"]),
    "o": st.one_of(st.none(), st.integers(0, 3), st.just("a")),
}
OPTIONAL = {"m": st.integers(0, 2)}  # Not every record has it.
RECORDS = st.lists(st.fixed_dictionaries(VALUES, optional=OPTIONAL), min_size=1, max_size=6)
FIELDS = st.sampled_from([*(f'r["{name}"]' for name in [*VALUES, *OPTIONAL]), 'r.get("m", 1)'])
LITERALS = st.sampled_from(["0", "1", "2.5", "-1", '"a"', "None", "True"])
LOCALS = st.sampled_from(["u", "v"])


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
        joined('r["s"].', st.sampled_from(["upper", "strip", "title"]), "()"),
        st.sampled_from(["abs", "bool", "float", "int", "str", "round", "len"]).flatmap(call),
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
    )
    if indent > 2:
        return st.one_of(simple, joined(pad, "return ", EXPRESSIONS, "\n"))
    inner = st.lists(block(indent + 1), min_size=1, max_size=2).map("".join)
    return st.one_of(
        simple,
        joined(pad, "if ", EXPRESSIONS, ":\n", inner),
        joined(pad, "if ", EXPRESSIONS, ":\n", inner, pad, "else:\n", inner),
    )


BODIES = st.lists(block(1), max_size=3).map("".join)
RETURNS = st.one_of(
    joined("    return ", EXPRESSIONS, "\n"),
    joined("    return {'k': ", EXPRESSIONS, ", 'v': ", EXPRESSIONS, "}\n"),
    joined("    return (", EXPRESSIONS, ", ", EXPRESSIONS, ")\n"),
)
SOURCES = joined("def function(r):\n    u = 1\n    v = r['n']\n", BODIES, RETURNS)


def first(one, other):  # Called by functions that are read; ``other`` may fail and is not used.
    return one


def made(source):
    names = {"first": first}
    exec(compile(source, "function", "exec"), names)  # as users write it
    return names["function"]


def outcome(function, record):
    try:
        return repr(function(record))
    except Exception as error:  # noqa: BLE001  # Whatever a function raises is an outcome.
        return type(error)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Such as for `1 is None`.
@PATIENT
@given(SOURCES, RECORDS)
def test_what_is_read_gives_what_is_returned_or_leaves_it_to_the_function(source, records):
    function = made(source)
    expected = [outcome(function, record) for record in records]

    try:
        expression = read(function)
        if mapped_shape(expression, RecordShape(form="mapping", names=None))[1] is not None:
            return  # The choice for the chain is to call it.
        frame = Frame.of_dicts(records)
        found = list(map(repr, mapped(expression, frame)))
    except (Reading, Refused):
        return

    assert found == expected
