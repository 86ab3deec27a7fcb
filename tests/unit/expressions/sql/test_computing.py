"""SQL expressions on columns: values, NULLs, rows that fail, branches that are not computed."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow
import pytest

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.sql.compiling import compile_text
from bicycle_runtime.expressions.sql.computing import rows_of
from bicycle_runtime.expressions.sql.tree import (
    UnknownFunctionError,
    WrongTypesError,
    call,
    case,
    cast,
    column,
    literal,
    type_of,
)
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused

TYPES = {"n": "BIGINT", "x": "DOUBLE", "t": "VARCHAR", "at": "TIMESTAMP", "d": "DECIMAL(10,2)"}
COLUMNS = {name: column(name, word) for name, word in TYPES.items()}
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = datetime(2026, 2, 28, 12, tzinfo=UTC)
DECIMALS = [Decimal("1.25"), None, Decimal(0), Decimal(3)]
DIVIDED = "divide by zero error"
TOO_BIG = "the result has more than 64 bits"
INFINITE = "'inf' is not a DECIMAL(38, 30)"
NO_INT = "failed to parse string: 'x' as a scalar of type int64"
BATCH = pyarrow.record_batch(
    {
        "n": [1, None, 0, -(2**63)],
        "x": [0.5, 2.0, None, float("inf")],
        "t": ["12", "x", None, "7"],
        "at": pyarrow.array([AT, None, AT, AT], pyarrow.timestamp("us", "UTC")),
        "d": pyarrow.array(DECIMALS, pyarrow.decimal128(10, 2)),
    }
)  # fmt: skip


def computed(text, batch=BATCH, columns=COLUMNS):
    """Return the result of an expression for each row: its value, or its error."""
    found, errors = rows_of(batch).array(compile_text(text, columns))
    return [errors.get(at, value) for at, value in enumerate(found.to_pylist())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 / n", [10, None, DIVIDED, 0]),
        ("n - 1", [0, None, -1, TOO_BIG]),
        ("n * x", [0.5, None, None, float("-inf")]),
        ("10 / x", [20.0, 5.0, None, 0.0]),
        ("cast(t AS BIGINT) IS NULL", [False, NO_INT, True, False]),
        ("try_cast(t AS BIGINT)", [12, None, None, 7]),
        ("d + d", [Decimal("2.50"), None, Decimal(0), Decimal(6)]),
        ("cast(x AS DECIMAL(38, 30)) = x", [True, True, None, INFINITE]),
        ("greatest(INTERVAL '1' DAY, INTERVAL '36' HOUR) = INTERVAL '36' HOUR", [True] * 4),
        ("d * 3", [Decimal("3.75"), None, Decimal(0), Decimal(9)]),
        ("at + INTERVAL '1 month'", [LATER, None, LATER, LATER]),
        ("n > 0 AND t = '12'", [True, False, False, False]),
        ("n > 0 OR NULL", [True, None, None, None]),
        ("NOT (n > 0)", [False, None, True, True]),
        ("floor(at TO YEAR) = date_trunc('year', at)", [True, None, True, True]),
        ("ceil(at TO YEAR) = date_trunc('year', at) + INTERVAL '1' YEAR", [True, None, True, True]),
        ("ceil(date_trunc('day', at) TO DAY) = date_trunc('day', at)", [True, None, True, True]),
    ],
)  # fmt: skip
def test_values_nulls_and_errors_are_those_of_each_row(text, expected):
    assert computed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN n <> 0 THEN 10 / n ELSE 0 END", [10, 0, 0, 0]),
        ("CASE WHEN n = 1 THEN 1 WHEN 10 / n = 0 THEN 2 END", [1, None, DIVIDED, 2]),
        ("CASE WHEN n = 0 THEN 1 WHEN 10 / n = 0 THEN 2 END", [None, None, 1, 2]),
        ("CASE n WHEN 0 THEN x ELSE 1 / n END", [1.0, None, None, 0.0]),
        ("coalesce(x, 10 / n)", [0.5, 2.0, DIVIDED, float("inf")]),
        ("coalesce(n, 1 / 0)", [1, DIVIDED, 0, -(2**63)]),
        ("if(n = 0, 0, 10 / n)", [10, None, 0, 0]),
        ("n <> 0 AND 10 / n > 1", [True, None, False, False]),
        ("n = 0 OR 10 / n > 1", [True, None, True, False]),
        ("nullif(n, 0)", [1, None, None, -(2**63)]),
        ("coalesce(10 / nullif(n, 0), 0)", [10, 0, 0, 0]),
        ("CASE WHEN n <> 0 THEN 10 / n END + 1", [11, None, None, 1]),
    ],
)
def test_a_branch_is_computed_only_for_the_rows_that_take_it(text, expected):
    assert computed(text) == expected


def test_each_bad_row_has_its_error_and_its_neighbors_have_values():
    batch = pyarrow.record_batch({"n": [at % 3 for at in range(4_096)]})
    found, errors = rows_of(batch).array(compile_text("6 / n + 1", {"n": column("n", "BIGINT")}))

    assert sorted(errors) == list(range(0, 4_096, 3))
    assert found.to_pylist()[:6] == [None, 7, 4, None, 7, 4]


def test_a_frame_with_a_bad_row_is_refused_so_that_rows_go_one_by_one():
    frame = Frame.of_arrow(BATCH)

    assert evaluate(compile_text("n % 7", COLUMNS), frame).items == [1, None, 0, -1]
    with pytest.raises(Refused):
        evaluate(compile_text("10 / n", COLUMNS), frame)


def test_values_of_records_become_columns_or_errors_of_their_record():
    frame = Frame.of_dicts([{"n": 1, "t": "a"}, {"n": 2, "t": "b"}])
    assert evaluate(compile_text("t || cast(n + 1 AS VARCHAR)", COLUMNS), frame).items == [
        "a2",
        "b3",
    ]

    with pytest.raises(Refused):
        evaluate(compile_text("n + 1", COLUMNS), Frame.of_dicts([{"n": 1}, {"n": 1.5}]))


def test_whole_ms_are_times_within_the_bounds_of_event_time():
    at = compile_text("at", COLUMNS)
    times = evaluate(at, Frame.of_dicts([{"at": 0}, {"at": 1_769_860_800_000}]))
    assert times.items == [datetime(1970, 1, 1, tzinfo=UTC), AT]

    for value in (2**62, -(2**62), True):
        with pytest.raises(Refused):
            evaluate(at, Frame.of_dicts([{"at": value}]))


def test_a_tree_is_built_by_calls():
    n = column("n", "BIGINT")
    tree = case([(call("gt", n, literal(1)), call("power", n, literal(2)))], literal(None))

    assert type_of(tree) == "DOUBLE"
    frame = Frame.of_arrow(pyarrow.record_batch({"n": [1, 3]}))
    assert evaluate(tree, frame).items == [None, 9.0]


def test_constants_of_all_types_are_plain_data():
    values = [
        literal(0, "TIMESTAMP"), literal(20_000, "DATE"), literal("1.50", "DECIMAL(4,2)"),
        literal("61ff", "BLOB"), literal([1, 2, 3], "INTERVAL"), literal([1, None], "BIGINT[]"),
    ]  # fmt: skip
    frame = Frame.of_arrow(pyarrow.record_batch({"n": [1]}))

    found = [evaluate(each, frame).items[0] for each in values]

    assert found[0] == datetime(1970, 1, 1, tzinfo=UTC)
    assert found[1].isoformat() == "2024-10-04"
    assert found[2:] == [Decimal("1.50"), b"a\xff", pyarrow.MonthDayNano((1, 2, 3)), [1, None]]


def test_arguments_are_converted_to_the_nearest_signature():
    n, x, d = column("n", "BIGINT"), column("x", "DOUBLE"), column("d", "DECIMAL(10,2)")

    assert type_of(call("add", n, n)) == "BIGINT"
    assert type_of(call("add", n, x)) == "DOUBLE"
    assert type_of(call("add", n, d)) == "DECIMAL(22,2)"
    assert type_of(call("multiply", d, d)) == "DECIMAL(20,4)"
    assert type_of(call("coalesce", literal(None), x)) == "DOUBLE"
    assert type_of(call("gt", column("at", "TIMESTAMP"), literal("2026-01-01"))) == "BOOLEAN"
    assert cast(n, "BIGINT") is n


def test_unknown_functions_and_wrong_types_are_errors_that_name_the_nearest():
    with pytest.raises(
        UnknownFunctionError, match=r"no function 'lenght'; did you mean 'length'\?"
    ):
        call("lenght", literal("a"))
    with pytest.raises(WrongTypesError, match=r"lower expects \(VARCHAR\), got BIGINT"):
        call("lower", literal(1))
    with pytest.raises(ValueError, match=r"line 1, column 5"):
        compile_text("1 + lenght('a')", {})


def test_a_decimal_becomes_the_nearest_float():
    frame = Frame.of_arrow(pyarrow.record_batch({"n": [1]}))
    texts = ["-3.82", "-4.81", "0.1", "-1.90"]

    found = [
        evaluate(cast(literal(text, "DECIMAL(10,2)"), "DOUBLE"), frame).items[0] for text in texts
    ]

    assert found == [float(text) for text in texts]


def test_not_null_is_an_error_of_the_rows_with_null():
    rows = rows_of(pyarrow.record_batch({"n": [1, None, 3]}))

    found = rows.array(call("not_null", column("n", "BIGINT")))

    assert found.column.to_pylist() == [1, None, 3]
    assert list(found.errors) == [1]


@pytest.mark.parametrize("text", ["d > 100", "d = 1.5", "d IN (1, 2)", "coalesce(d, 0) = 0"])
def test_a_decimal_is_compared_with_a_constant(text):
    found = compile_text(text, {"d": column("d", "DECIMAL(10,2)")})

    assert type_of(found) == "BOOLEAN"
