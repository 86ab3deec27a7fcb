"""Expressions over columns give what they give record by record, and what the function gives."""

import pickle
from types import FunctionType, SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.expressions.evaluation import evaluate, mask_of
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.vectors import Refused
from bicycle_sdk.expressions import col, lit, together
from tests.examples import examples

PATIENT = settings(
    max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck)
)
INTS = st.one_of(
    st.integers(-9, 9), st.integers(-(2**70), 2**70),
    st.sampled_from([2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 0]),
)  # fmt: skip
FLOATS = st.one_of(
    st.integers(-9999, 9999).map(lambda cents: cents / 100),
    st.floats(),
    st.sampled_from([0.0, -0.0, 0.125, 2.675, 1e15, 2.0**53, 0.5, 1.5, 2.5]),
)
TEXTS = st.one_of(st.sampled_from(["", "a", "Ab", "ß", "İ", "\ud800", "12"]), st.text(max_size=4))
NAMES = {"i": INTS, "j": INTS, "f": FLOATS, "g": FLOATS, "t": TEXTS, "u": TEXTS, "b": st.booleans()}
# Any value may stand in this one, as in JSON without a type, and it may be missing.
ANY = st.one_of(INTS, FLOATS, TEXTS, st.booleans(), st.none(), st.just([1]), st.just({"k": 2}))
ROWS = st.lists(st.fixed_dictionaries(NAMES, optional={"x": ANY}), min_size=1, max_size=6)


def binary(operators):
    return lambda parts: st.builds(
        lambda a, o, b: f"({a} {o} {b})", parts, st.sampled_from(operators), parts
    )


LEAVES = st.one_of(
    st.sampled_from([*NAMES, "x"]).map(lambda name: f"col({name!r})"),
    st.sampled_from(["0", "1", "-3", "2.5", "'a'", "True", "None", "10**20"]).map(
        lambda value: f"lit({value})"
    ),
)
TERMS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        binary(["+", "-", "*", "/", "//", "%"])(parts),
        binary(["==", "!=", "<", "<=", ">", ">=", "&", "|"])(parts),
        st.builds(lambda a, o: f"({o}{a})", parts, st.sampled_from(["-", "~"])),
        st.builds(
            lambda a, call: f"{a}{call}",
            parts,
            st.sampled_from(
                [".round()", ".round(2)", ".round(0)", ".is_null()", ".lower()", ".upper()",
                 ".text()", ".is_in([1, 'a', None, 2.5])"]
            ),
        ),
        parts.map(lambda a: f"abs({a})"),
        st.builds(lambda a, b: f"together({a}, {b})", parts, parts),
    ),
    max_leaves=6,
)  # fmt: skip
LAMBDAS = st.recursive(
    st.one_of(
        st.sampled_from([*NAMES, "x"]).map(lambda name: f"r[{name!r}]"),
        st.sampled_from(["0", "1", "-3", "2.5", "'a'", "True", "None", "10**20"]),
        st.just("r.get('x', 1)"),
        st.just("LIMIT"),
    ),
    lambda parts: st.one_of(
        binary(["+", "-", "*", "/", "//", "%", "==", "!=", "<", ">=", "and", "or", "in", "is"])(
            parts
        ),
        st.builds(lambda a, b, c: f"({a} if {b} else {c})", parts, parts, parts),
        st.builds(lambda a, b, c: f"({a} < {b} <= {c})", parts, parts, parts),
        st.builds(lambda a, b: f"f'{{{a}}}:{{{b}!r}}'", st.sampled_from(["r[\"i\"]", "r[\"f\"]"]),
                  st.sampled_from(["r[\"t\"]", "r[\"x\"]"])),
        st.builds(lambda a, b: f"max({a}, {b})", parts, parts),
        st.builds(
            lambda a, call: f"{call}({a})",
            parts,
            st.sampled_from(["not ", "-", "abs", "round", "int", "float", "str", "len", "bool"]),
        ),
        st.builds(
            lambda a, call: f"({a}){call}",
            parts,
            st.sampled_from([".lower()", ".strip()", ".startswith('a')", " in (1, 'a', None)",
                             " is None", " is not None", "['k']"]),
        ),
        st.builds(lambda a, b: f"({a}, {b})[1]", parts, parts),
        st.builds(lambda a: f"round({a}, 2)", parts),
    ),
    max_leaves=6,
)  # fmt: skip


def one_by_one(function, records):
    """Return what a function gives for each record, None when one of them fails."""
    try:
        return [function(record) for record in records]
    except Exception:  # noqa: BLE001  # any error of the record
        return None


def in_columns(expression, frame):
    try:
        return evaluate(expression, frame).items
    except Refused:
        return None


def shown(values):
    """Return values with their types, so that 1, 1.0, True and -0.0 are told apart."""
    return [f"{type(value).__name__} {value!r}" for value in values]


def frames(records):
    dicts = Frame.of_dicts(records)
    yield dicts
    if all("x" in record for record in records):
        objects = [SimpleNamespace(**record) for record in records]
        yield Frame.of_rows(FieldRows(objects=objects, make=None))


@PATIENT
@given(text=TERMS, records=ROWS)
def test_an_expression_gives_the_same_in_columns_or_leaves_it_to_records(text, records):
    expression = eval(text, {"col": col, "lit": lit, "together": together})
    if callable(expression) and not hasattr(expression, "operation"):
        return
    expected = one_by_one(expression, records)
    for frame in frames(records):
        found = in_columns(expression, frame)
        assert found is None or (expected is not None and shown(found) == shown(expected))
    assert repr(pickle.loads(pickle.dumps(expression))) == repr(expression)


@PATIENT
@given(text=LAMBDAS, records=ROWS)
def test_a_function_that_is_read_gives_what_it_gives_called(text, records):
    try:
        function: FunctionType = eval(f"lambda r: {text}", {"LIMIT": 3})
    except SyntaxError:
        return
    try:
        expression = read(function)
    except Reading:  # It is called then.
        return
    expected = one_by_one(function, records)
    dicts = Frame.of_dicts(records)
    found = in_columns(expression, dicts)
    assert found is None or (expected is not None and shown(found) == shown(expected))


PLAIN_ROWS = st.lists(
    st.fixed_dictionaries(
        {"i": st.integers(-999, 999), "f": st.integers(-9999, 9999).map(lambda n: n / 100),
         "t": st.sampled_from(["a", "Bb"])}
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


@pytest.mark.parametrize(
    "function",
    [
        lambda r: r["i"] * 2 + 1,
        lambda r: r["f"] * r["i"] - 0.5,
        lambda r: round(r["f"], 1),
        lambda r: round(r["f"]),
        lambda r: r["i"] // 7 * 7,
        lambda r: r["f"] > 3 and r["t"] == "a",
        lambda r: f"{r['t']}-{r['i']:04d}",
        lambda r: r["t"].lower() if r["i"] % 2 else "none",
        lambda r: (r["t"], r["i"]),
    ],
)
@given(records=PLAIN_ROWS)
def test_plain_values_are_never_left_to_records(function, records):
    dicts = Frame.of_dicts(records)

    found = in_columns(read(function), dicts)

    assert shown(found) == shown(map(function, records))


@given(records=ROWS)
def test_what_counts_as_true_is_what_python_says(records):
    dicts = Frame.of_dicts(records)
    frame = dicts
    for name in NAMES:
        assert mask_of(frame.field(name)).listed == [bool(record[name]) for record in records]


def test_numbers_without_room_for_more_digits_are_rounded_as_python_does():
    records = [{"f": 1e308}, {"f": -1.7e308}, {"f": 0.125}]
    dicts = Frame.of_dicts(records)

    found = in_columns(read(lambda r: round(r["f"], 2)), dicts)

    assert shown(found) == shown([1e308, -1.7e308, 0.12])


def test_a_name_outside_is_looked_up_again_for_each_batch():
    space = {"LIMIT": 1}
    expression = read(eval("lambda r: r['i'] > LIMIT", space))
    assert in_columns(expression, Frame.of_dicts([{"i": 2}])) == [True]

    space["LIMIT"] = 5

    assert in_columns(expression, Frame.of_dicts([{"i": 2}])) == [False]


def test_a_function_that_is_another_one_now_is_called():
    space = {}
    exec("def inner(r):\n return r['i']\ndef outer(r):\n return inner(r)", space)
    expression = read(space["outer"])
    assert in_columns(expression, Frame.of_dicts([{"i": 2}])) == [2]

    space["inner"] = len

    assert in_columns(expression, Frame.of_dicts([{"i": 2}])) is None
