"""SQL expressions on slices, long decimals, intervals and patterns, compared with DuckDB."""

from datetime import date, datetime
from decimal import Decimal

import duckdb
import pyarrow
import pytest

from bicycle_runtime.expressions.sql.compiling import compile_text
from bicycle_runtime.expressions.sql.tree import column
from tests.unit.expressions.sql.test_computing import NO_INT, computed
from tests.unit.expressions.sql.test_duckdb import same

LISTS = pyarrow.array([["1"], ["x"], None, ["2", None], [], ["3"]])
LONG = Decimal("12345678901234567890123456789012345")
START = datetime(2026, 1, 1)  # noqa: DTZ001  # DuckDB has a type without zone
TYPES = {
    "a": "DECIMAL(38,0)", "m": "DECIMAL(3,2)", "k": "BIGINT", "x": "DOUBLE", "day": "DATE",
    "ts": "TIMESTAMP", "later": "TIMESTAMP", "s": "VARCHAR", "p": "VARCHAR", "r": "VARCHAR",
}  # fmt: skip
COLUMNS = {name: column(name, word) for name, word in TYPES.items()}
ROWS = {
    "a": pyarrow.array([LONG, None, Decimal(-5)], pyarrow.decimal128(38, 0)),
    "m": pyarrow.array([Decimal("9.99"), Decimal("-9.50"), None], pyarrow.decimal128(3, 2)),
    "k": pyarrow.array([1, 0, -1]),
    "x": pyarrow.array([-0.0, 1.0, None]),
    "day": pyarrow.array([date(2024, 2, 29), date(2026, 1, 31), None]),
    "ts": pyarrow.array([START] * 3, pyarrow.timestamp("ms")),
    "later": pyarrow.array(
        [START.replace(day=2, hour=2), START.replace(day=3), None], pyarrow.timestamp("ms")
    ),
    "s": pyarrow.array(["C:\\Users\\a", "Straße\n", "aab"]),
    "p": pyarrow.array(["C:\\\\Users%", "%\n", "_\\ab"]),
    "r": pyarrow.array([r"\w+", r"^\w+$", "(b|$)"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "bad"), [("try_cast(l AS BIGINT[])", None), ("cast(l AS BIGINT[])", NO_INT)]
)
def test_a_bad_item_concerns_only_its_array(text, bad):
    expected = [[1], bad, None, [2, None], [], [3]]

    for start in range(6):
        for size in range(7 - start):
            batch = pyarrow.record_batch({"l": LISTS}).slice(start, size)
            found = computed(text, batch, {"l": column("l", "VARCHAR[]")})
            assert found == expected[start : start + size]


EQUAL = [
    # Intervals.
    "later - ts < INTERVAL '36' HOUR", "later - ts IN (INTERVAL '26' HOUR, INTERVAL '48' HOUR)",
    "later - ts BETWEEN INTERVAL '1 day 1 hour' AND INTERVAL '47' HOUR",
    "INTERVAL '24' HOUR = INTERVAL '1' DAY", "INTERVAL '1' MONTH >= INTERVAL '30' DAY",
    "nullif(later - ts, INTERVAL '48' HOUR) IS NULL",
    "ARRAY[later - ts] = ARRAY[INTERVAL '26' HOUR]",
    # Times.
    "day + INTERVAL '1' DAY", "INTERVAL '1' MONTH + day", "day - INTERVAL '1 month'",
    "DATE '2026-01-01' + INTERVAL '90' MINUTE", "to_timestamp(1.001)", "to_timestamp(1.009)",
    "to_timestamp(-1.009)",
    # Whole numbers of more than 64 bits.
    "a = 12345678901234567890123456789012346", "a IN (12345678901234567890123456789012345, 5)",
    "a + 9223372036854775808", "a % -18446744073709551616",
    "k + 9223372036854775806 = 9223372036854775808",
    "CAST(12345678901234567890123456789012345 AS DECIMAL(38, 0))",
    # Decimals.
    "a % 7", "CAST('12345678901234567890123456789012.125' AS DECIMAL(38, 2))",
    "ceil(m)", "floor(m)", "round(m)",
    "round(m, 1)", "round(m, -1)", "round(m, 5)", "CAST(m AS DECIMAL(4, 1))",
    "CAST(m AS DECIMAL(2, 1))",
    # Zeros and patterns.
    "x IN (0.0, 2.0)", "x NOT IN (1.0)", "regexp_matches(s, r)", "regexp_full_match(s, r)",
    "regexp_extract(s, r)", "regexp_replace(s, r, '<\\0>')", "regexp_replace(s, r, '-', 'g')",
    r"regexp_matches(s, '^\w+$')", "regexp_matches(s, 'e$')", r"regexp_replace(s, '\Ba', '-')",
    r"regexp_replace(s, '(a)(.)', '\2\1\\')", r"regexp_replace(s, 'A', '\0\0', 'gi')",
    "regexp_extract(s, '(z)?a', 1)", "regexp_extract(s, '(?i)u(.)', 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", EQUAL)
def test_results_are_those_of_duckdb(text):
    batch = pyarrow.record_batch(ROWS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", pyarrow.table(ROWS))
        rows = connection.execute(f"SELECT TRY({text}) FROM t").fetchall()

    zoned = batch.schema
    for name in ("ts", "later"):
        at = zoned.get_field_index(name)
        zoned = zoned.set(at, pyarrow.field(name, pyarrow.timestamp("ms", "UTC")))
    for found, [wanted] in zip(computed(text, batch.cast(zoned), COLUMNS), rows, strict=True):
        is_failed = wanted is None and isinstance(found, str)
        assert is_failed or same(found, wanted), (found, wanted)


@pytest.mark.parametrize("call", ["s LIKE {}", "s ILIKE {}"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"C:\\Users%", [True, False, False]), (r"%\\a", [True, False, False]),
        (r"%\\%", [True, False, False]), ("%\n", [False, True, False]),
        (r"_\ab", [False, False, True]), (r"%\a%", [True, True, True]),
    ],
)  # fmt: skip
def test_a_pattern_matches_the_same_texts_as_a_constant_and_in_a_column(call, pattern, expected):
    batch = pyarrow.record_batch({"s": ROWS["s"], "p": [pattern] * 3})

    assert computed(call.format(f"'{pattern}'"), batch, COLUMNS) == expected
    assert computed(call.format("p"), batch, COLUMNS) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("regexp_replace(s, 'a', 'b', 'x')", "the options of regexp_replace are 'g' and 'i'"),
        (r"regexp_replace(s, 'a', '\8')", "regexp_replace without 'g' has groups 0 to 7"),
        ("regexp_extract(s, 'a', 10)", "the group of regexp_extract must be 0 to 9"),
    ],
)
def test_groups_and_options_that_do_not_exist_are_rejected(text, reason):
    with pytest.raises(ValueError, match=reason):
        compile_text(text, {"s": column("s", "VARCHAR")})


@pytest.mark.parametrize("text", ["k + [1, 2, 3, 4][1:4:2][1]", "k + [1, 2][1, 2]"])
def test_steps_and_further_indexes_of_arrays_are_rejected(text):
    with pytest.raises(ValueError, match=r"\(line 1, column 6\): an array is read by \[index\] or"):
        compile_text(text, COLUMNS)
