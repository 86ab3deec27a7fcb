"""Decimals of Python in expressions of the Table API."""

from decimal import Decimal

import pytest

from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import StreamDefinitionError


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
