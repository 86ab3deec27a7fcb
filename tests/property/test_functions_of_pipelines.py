"""Functions of pipelines give over columns what they give for each record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.expressions.evaluation import evaluate, has_expression
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.mapping import mapped
from bicycle_runtime.expressions.sql.compiling import compile_expressions
from bicycle_runtime.expressions.sql.steps import ComputedFields, Where
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.operators.functions.watermarks import is_out_of_bounds
from bicycle_runtime.pipelines.builtin_functions import Keep
from bicycle_runtime.pipelines.record_functions import (
    FieldKey,
    FieldValue,
    GoesByText,
    GoesTo,
    NumberOf,
    TimeOf,
    TypedRecord,
)
from tests.property.pipeline_values import NUMBERS, SETTINGS, TEXTS

VALUES = st.one_of(NUMBERS, TEXTS, st.booleans(), st.none(), st.just([1]), st.just({"y": "z"}))
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["n", "t", "j"]), VALUES, max_size=3), min_size=1, max_size=8
)
FIELDS = {"n": "float", "t": "string", "j": "json"}
TEXTS_OF_SQL = {
    "where": "n > 1 and t <> 'b'",
    "twice": "n * 2 + length(t)",
    "word": "coalesce(upper(t), 'none')",
    "path": "j ->> 'y'",
    "share": "n / 3",
}


def sql(*names):
    return compile_expressions({name: TEXTS_OF_SQL[name] for name in names}, FIELDS)


FUNCTIONS = {
    "key": FieldKey(["t"]),
    "keys": FieldKey(["t", "n"]),
    "value": FieldValue("n"),
    "number": NumberOf("n"),
    "time": TimeOf("n"),
    "contains": Keep("contains", "a", "t"),
    "exists": Keep("exists", "", "n"),
    "goes": GoesTo("n", {"a": [1, "b"], "b": [2, True]}, "rest", "b"),
    "goes-on": GoesTo("n", {"a": [1, "b"], "b": [2, "a"]}, "rest", "rest"),
    "goes-anywhere": GoesTo("t", {"a": ["a"]}, None, None),
    "goes-by-value": GoesTo("t", None, None, "a"),
    "goes-by-text": GoesByText("n", {"1": ["1"]}, "rest", "rest"),
    "typed": TypedRecord({"n": "int", "t": "string"}),
    "typed-more": TypedRecord({"n": "float", "t": "timestamp", "j": "json"}),
    "typed-open": TypedRecord({"n": "int?", "t": "string?", "j": "json?"}),
    "typed-open-times": TypedRecord({"n": "float?", "t": "timestamp?"}),
    "typed-csv": TypedRecord({"n": "int?", "t": "string?", "j": "json?"}, is_csv=True),
    "typed-csv-times": TypedRecord({"n": "float?", "t": "timestamp?"}, is_csv=True),
    "where": Where(sql("where")),
    "select": ComputedFields(sql("twice", "word", "path", "share")),
    "set": ComputedFields(sql("share", "word"), kept=["n", "j"]),
}


def one_by_one(function, records):
    found = []
    for record in records:
        try:
            found.append(function(record))
        except Exception as error:  # noqa: BLE001 - any error is a record that failed
            found.append(error)
    return found


def on_columns(function, records):
    """Return the results; None where columns are refused."""
    frame = Frame.of_dicts(records)
    expression = read(function)
    try:
        if expression.operation != "record":
            return evaluate(expression, frame).items
        return mapped(expression, frame).records
    except Refused:
        return None


def shown(values):
    return [repr(bool(value) if value in (None, False) else value) for value in values]


@pytest.mark.parametrize("name", FUNCTIONS)
@SETTINGS
@given(records=RECORDS)
def test_a_function_gives_over_columns_what_it_gives_for_each_record(name, records):
    function = FUNCTIONS[name]
    found = on_columns(function, records)
    expected = one_by_one(function, records)

    if name == "time" and found is not None and is_out_of_bounds(found):
        return  # Who takes times from columns looks at their bounds, and then asks one by one.
    if found is not None:
        show = shown if name == "where" else lambda values: list(map(repr, values))
        assert show(found) == show(expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_good_records_are_not_refused(name):
    records = [{"n": 3, "t": "a", "j": {"y": "1"}}, {"n": 4, "t": "b", "j": None}]
    if name in ("typed-more", "typed-open-times", "typed-csv-times"):
        records = [{**record, "n": 1.5} for record in records]
    if name == "typed-csv":
        records = [{"n": "3", "t": "a", "j": "{}"}, {"n": "", "t": "", "j": ""}]

    assert has_expression(FUNCTIONS[name])
    assert on_columns(FUNCTIONS[name], records) is not None
