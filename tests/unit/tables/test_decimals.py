"""Decimals of Python in expressions of the Table API."""

from decimal import Decimal

import pytest

from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import StreamDefinitionError
from tests.unit.tables.sql_runs import ran, run


def test_a_decimal_keeps_all_digits_of_a_comparison():
    table = StreamEnvironment().sql("SELECT CAST('12345678901234567.89' AS DECIMAL(20, 2)) AS d")

    assert table.where(col("d") == Decimal("12345678901234567.88")).preview() == []
    assert len(table.where(col("d") == Decimal("12345678901234567.89")).preview()) == 1
    assert table.select(value=col("d") * Decimal("1.1")).columns == {"value": "DECIMAL(22,3)"}


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")])
def test_a_number_without_a_constant_is_refused(value):
    table = StreamEnvironment().sql("SELECT 1 AS n")

    with pytest.raises(StreamDefinitionError, match="has no constant in SQL"):
        table.where(col("n") > value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (col("d") == Decimal("1.5000000001"), False),
        (col("d") * Decimal("1.1"), Decimal("1.65")),
        (col("d") - Decimal("-1E+3"), Decimal("1001.5")),
        (col("x") * Decimal("0.5"), 0.75),
        (Decimal("-0.00"), Decimal(0)),
    ],
)
def test_a_decimal_is_an_exact_constant(expression, value):
    table = StreamEnvironment().sql(
        "SELECT CAST('1.50' AS DECIMAL(9, 2)) AS d, CAST(1.5 AS DOUBLE) AS x"
    )

    assert table.select(value=expression).preview() == [{"value": value}]


SUMS = """\
SET on_error = 'dead_letter';
CREATE TABLE t (id BIGINT, a {0}, b {0}) WITH (kind = 'file', path = 'in');
CREATE TABLE out (v DECIMAL(38, {2})) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT {1} FROM t
"""
HALF = "5" + "0" * 37


@pytest.mark.parametrize(
    ("kind", "value", "scale", "a", "b", "expected"),
    [
        ("DECIMAL(38)", "a + b", 0, HALF, "1", HALF[:-1] + "1"),
        ("DECIMAL(38)", "a - b", 0, HALF, "1", "4" + "9" * 37),
        ("DECIMAL(38)", "a * b", 0, HALF, "1", HALF),
        ("DECIMAL(38)", "a + 1", 0, HALF, "0", HALF[:-1] + "1"),
        ("DECIMAL(38, 10)", "a + b", 10, "5" + "0" * 27 + ".5", "1", "5" + "0" * 26 + "1.5"),
    ],
)
def test_operands_have_up_to_38_digits(kind, value, scale, a, b, expected):
    rows = [{"id": 1, "a": "1", "b": "1"}, {"id": 2, "a": a, "b": b}]

    assert run(SUMS.format(kind, value, scale), {"t": rows}, "out")[1] == {"v": Decimal(expected)}


@pytest.mark.parametrize("value", ["a + b", "a * b", "CAST(a AS DECIMAL(38, 2))"])
def test_more_than_38_digits_are_an_error_of_the_row(value):
    rows = [{"id": 1, "a": "1", "b": "1"}, {"id": 2, "a": "9" * 38, "b": "9" * 38}]

    with ran(SUMS.format("DECIMAL(38)", value, 2), {"t": rows}) as harness:
        assert len(harness.results("out")) == 1
        [letter] = harness.dead_letters

    assert letter["message"] == "the number has more digits than its DECIMAL type"
