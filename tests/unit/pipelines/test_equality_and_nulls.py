"""One equality of values, and aggregates that leave nulls out, as SQL has them."""

from decimal import Decimal

import pytest

from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.pipelines.record_functions import EqualText, FieldKey
from bicycle_sdk.windows import Average, Count, Sum, WindowPlan
from bicycle_sdk.windows.assigners import tumbling_windows
from tests.unit.pipelines.pipeline_runs import lines, run

EQUAL = [1, 1.0, True]
ROWS = [
    {"at": 0, "k": "a", "x": 1},
    {"at": 1, "k": "a", "x": None},
    {"at": 2, "k": "a", "x": 1.0},
    {"at": 3, "k": "a", "x": True},
    {"at": 4, "k": "a"},
    {"at": 5, "k": "a", "x": "1"},
    {"at": 6, "k": "b", "x": None},
]
ALL = """
    aggregates = [
        { name = "n", agg = "count" },
        { name = "different", agg = "distinct", field = "x" },
        { name = "total", agg = "sum", field = "y" },
        { name = "mean", agg = "avg", field = "y" },
        { name = "least", agg = "min", field = "y" },
        { name = "most", agg = "max", field = "y" },
    ]
"""
WINDOWS = {
    "tumbling": '[window]\nsize = "10s"',
    "session": '[window]\ntype = "session"\ngap = "10s"',
    "count": '[window]\ntype = "count"\nrecords = 6',
    "running": "",
}


def pipeline(path, *, window, count_by="k", ops=ALL, fields=""):
    return f"""
        [source]
        kind = "file"
        path = "{path}"
        time_field = "at"
        {fields}
        {window}
        [ops]
        count_by = "{count_by}"
        {ops}
        [sink]
        kind = "console"
    """


def test_equal_values_are_one_key_and_one_distinct_value():
    keys = {FieldKey(["x"])({"x": value}) for value in EQUAL}

    assert len(keys) == 1
    assert {EqualText.of(value) for value in EQUAL} == {"1"}
    assert EqualText.of("1") != EqualText.of(1)
    assert EqualText.of(None) is None
    assert len({EqualText.of(value) for value in (0.1, "0.1", 1e300, -1, [1], {"a": 1})}) == 6


@pytest.mark.parametrize("within", [lambda x: [x], lambda x: {"a": {"b": [x]}}])
def test_equal_numbers_within_lists_and_tables_are_equal(within):
    values = [within(value) for value in [*EQUAL, Decimal("1.00")]]

    assert len({FieldKey(["x"])({"x": value}) for value in values}) == 1
    assert len({EqualText.of(value) for value in values}) == 1
    others = [1, "1", 1.5, 1e300, float("inf"), None, 0]
    assert len({EqualText.of(within(value)) for value in others}) == len(others) - 1  # inf is null
    assert EqualText.of(within(-0.0)) == EqualText.of(within(False))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_distinct_counts_what_count_by_groups(tmp_path, parallelism):
    path = lines(tmp_path, *ROWS)
    groups = run(
        pipeline(path, window=WINDOWS["tumbling"], count_by="x", ops=""), parallelism=parallelism
    )
    [row, nothing] = sorted(
        run(
            pipeline(
                path, window=WINDOWS["tumbling"], ops='agg = "distinct"\nagg_field = "x"'
            ),
            parallelism=parallelism,
        ),
        key=lambda row: row["k"],
    )  # fmt: skip

    assert sorted((str(row["x"]), row["count"]) for row in groups if row["x"] is not None) in (
        [("1", 1), ("1", 3)], [("1", 1), ("1.0", 3)], [("1", 1), ("True", 3)]
    )  # fmt: skip
    assert row["distinct_count"] == len([row for row in groups if row["x"] is not None]) == 2
    assert nothing["distinct_count"] == 0


@pytest.mark.parametrize("window", ["tumbling", "session", "running", "count"])
@pytest.mark.parametrize("is_typed", [False, True])
def test_aggregates_leave_nulls_out(tmp_path, window, is_typed):
    values = [None, 2, None, 4, None, 3]
    rows = [{"at": at, "k": "a", "x": y, "y": y} for at, y in enumerate(values)]
    rows += [{"at": at, "k": "b", "x": None, "y": None} for at in range(6)]
    fields = 'fields = { at = "int", k = "string", x = "int?", y = "int?" }' if is_typed else ""

    text = pipeline(lines(tmp_path, *rows), window=WINDOWS[window], fields=fields)
    found = {row["k"]: row for row in run(text)}  # The last one of each, where they run along.

    names = ("n", "different", "total", "mean", "least", "most")
    assert [found["a"][name] for name in names] == [6, 3, 9, 3.0, 2, 4]
    assert [found["b"][name] for name in names] == [6, 0, None, None, None, None]


def test_a_field_without_nulls_shares_the_count_of_an_average_that_leaves_none_out():
    def selector(record):
        return record

    plan = WindowPlan(
        assigner=tumbling_windows(10),
        aggregates=(Count(), Average(selector), Average(selector, skips_none=True)),
    )

    kinds = [(type(each), getattr(each, "selector", None)) for each in Folding(plan).functions]
    assert kinds == [(Count, None), (Sum, selector), (Sum, selector), (Count, selector)]
