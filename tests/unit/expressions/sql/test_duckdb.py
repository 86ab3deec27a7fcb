"""SQL functions return on random columns with nulls what DuckDB returns.

A row on which a function fails here is NULL in DuckDB, or fails there, too. Where semantics differ
on purpose, ``docs/reference/sql-functions.md`` has a row in its table of differences, and the text
for DuckDB is written in the way that the difference describes.
"""

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow
import pytest

from bicycle_runtime.expressions.sql.compiling import compile_text
from bicycle_runtime.expressions.sql.computing import rows_of
from bicycle_runtime.expressions.sql.table import ROWS
from bicycle_runtime.expressions.sql.tree import column
from bicycle_sdk.expressions import Expression

COUNT = 1_000
ZONE = pyarrow.timestamp("ms", "UTC")
START = datetime(1999, 12, 28, tzinfo=UTC)
ARROW = {
    "n": pyarrow.int64(), "m": pyarrow.int64(), "k": pyarrow.int64(), "x": pyarrow.float64(),
    "y": pyarrow.float64(), "t": pyarrow.string(), "u": pyarrow.string(), "s": pyarrow.string(),
    "ok": pyarrow.bool_(), "no": pyarrow.bool_(), "ts": ZONE, "tb": ZONE, "day": pyarrow.date32(),
    "d": pyarrow.decimal128(10, 2), "e": pyarrow.decimal128(8, 3), "j": pyarrow.string(),
    "l": pyarrow.list_(pyarrow.int64()), "r": pyarrow.list_(pyarrow.int64()),
    "w": pyarrow.list_(pyarrow.string()), "b": pyarrow.binary(), "o": pyarrow.int64(),
}  # fmt: skip
TYPES = {
    "n": "BIGINT", "m": "BIGINT", "k": "BIGINT", "o": "BIGINT", "x": "DOUBLE", "y": "DOUBLE",
    "t": "VARCHAR", "u": "VARCHAR", "s": "VARCHAR", "ok": "BOOLEAN", "no": "BOOLEAN",
    "ts": "TIMESTAMP", "tb": "TIMESTAMP", "day": "DATE", "d": "DECIMAL(10,2)",
    "e": "DECIMAL(8,3)", "j": "VARCHAR", "l": "BIGINT[]", "r": "BIGINT[]", "w": "VARCHAR[]",
    "b": "BLOB",
}  # fmt: skip
COLUMNS = {name: column(name, word) for name, word in TYPES.items()}
INTS = [0, 1, -1, 2, 3, 7, -8, 12, 100, 2**31, 2**62, 2**63 - 1, -(2**63)]
SMALL = [0, 1, 2, 3, 5, 8, -1, -2, 20]
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, -2.25, 1e-7, 3.14159, 1e10, -1e10, 123456.789]
TEXTS = ["", "a", "b", "ab", "aab", "Ada", "ADA", "ä", "Straße", "a b  c", " x ", "12", "-7", "a%b",
         "a,b,,c", "2026-01-31", "true", "x1y22", "日本"]  # fmt: skip
JSON = ['{"a": 1}', '{"a": "x", "b": [1, 2, "z"]}', "[1, 2]", '"text"', "null", "12", "{}", "{",
        '{"a": null}', '{"a": {"b": true}}', '{"a.b": 1, "a[0]": 2, "a:b": 3, "*": 4}']  # fmt: skip
VALUES = {
    "n": lambda r: r.choice(INTS), "m": lambda r: r.choice(INTS), "k": lambda r: r.choice(SMALL),
    "o": lambda r: r.randrange(1, 12), "x": lambda r: r.choice(FLOATS),
    "y": lambda r: r.choice([r.uniform(-9, 9), *FLOATS]), "t": lambda r: r.choice(TEXTS),
    "u": lambda r: r.choice(TEXTS), "s": lambda r: r.choice(["a", "b", ",", " ", "ab", "x"]),
    "ok": lambda r: r.random() < 0.5, "no": lambda r: r.random() < 0.5,
    "ts": lambda r: START + timedelta(milliseconds=r.randrange(40_000_000_000)),
    "tb": lambda r: START + timedelta(milliseconds=r.randrange(4_000_000_000)),
    "day": lambda r: date(1999, 12, 28) + timedelta(days=r.randrange(900)),
    "d": lambda r: Decimal(r.randrange(-10**6, 10**6)).scaleb(-2),
    "e": lambda r: Decimal(r.randrange(-10**5, 10**5)).scaleb(-3),
    "j": lambda r: r.choice(JSON), "b": lambda r: r.choice([b"", b"a", b"\x00\xff", b"abc"]),
    "l": lambda r: [r.choice([None, 1, 2, 3]) for _ in range(r.randrange(4))],
    "r": lambda r: [r.choice([1, 2, 5]) for _ in range(r.randrange(4))],
    "w": lambda r: [r.choice(["a", "b", "c"]) for _ in range(r.randrange(4))],
}  # fmt: skip


def random_batch(seed):
    draw = random.Random(seed)
    return pyarrow.record_batch(
        {
            name: pyarrow.array(
                [None if draw.random() < 0.15 else VALUES[name](draw) for _ in range(COUNT)], kind
            )
            for name, kind in ARROW.items()
        }
    )


# SQL texts; where DuckDB spells a function differently, or differs, a pair with its text.
EQUAL = [
    # Comparisons and logic.
    "n = m", "x <> y", "t < u", "n <= x", "ts > tb", "t >= u", "k BETWEEN 0 AND o", "l = r",
    "n IS DISTINCT FROM m", "t IS NOT DISTINCT FROM u", "k IN (1, 2, o)", "t IN ('a', 'Ada')",
    "k IN (1, NULL)", "k NOT IN (1, 2)", "t IS NULL", "x IS NOT NULL", "ok AND no", "ok OR no",
    "NOT ok", "ok IS TRUE", "ok IS NOT TRUE", "ok IS FALSE", "ok IS NOT FALSE", "d > e", "d = k",
    "day < ts", "nullif(k, o)", "coalesce(t, u, 'none')", "coalesce(k, x)", "if(ok, n, m)",
    "CASE WHEN ok THEN t WHEN no THEN u END",
    "CASE k WHEN 1 THEN 'one' WHEN o THEN 'o' ELSE t END",
    "CASE WHEN ok THEN l WHEN k > 0 THEN array_reverse(r) END", "if(ok, d, e)", "coalesce(d, k)",
    "CASE WHEN ok THEN ts ELSE tb END", "if(ok, day, NULL)", "nullif(l, r)", "l < r", "r >= l",
    "greatest(ts, tb)", "ts = '2000-01-01'", "t IN (u, s)", "d IN (1.5, 2)",
    "CASE WHEN ok THEN 1 WHEN no THEN 2.5 ELSE k END", "(ts - tb) > INTERVAL '1 day'",
    # Arithmetic and mathematics.
    "n + m", "n - m", "n * k", "k + x", "x - y", "x * y", "d + e", "d - e", "d * e", "d + k",
    "x % y", "n % m", "k / o", "n / m", "d % e",
    "k & o", "k | o", "xor(k, o)", "~k", "o << k",
    "k >> 1",
    "-k", "-x", "-d", "abs(k)", "abs(n)", "abs(y)", "abs(d)", "ceil(y)", "ceil(d)", "floor(y)",
    "floor(d)", "round(y)", "round(y, 2)", "round(d)", "round(d, 1)", "trunc(y)", "sign(y)",
    "sign(k)", "power(y, 2)", "power(k, k)", "sqrt(y)", "cbrt(y)", "exp(k)",
    "ln(y)",
    "log2(y)", "log10(y)", "log(2, y)", "sin(y)", "cos(y)", "tan(y)",
    "cot(y + 100)", "asin(y / 1e11)", "acos(y / 1e11)", "atan(y)", "atan2(x, y)", "sinh(k)",
    "cosh(k)", "tanh(y)", "degrees(y)", "radians(y)", "gcd(k, o)", "lcm(k, o)",
    ("factorial(k)", "CAST(factorial(CAST(k AS INTEGER)) AS BIGINT)"), "pi() * k",
    "greatest(k, o, 3)", "least(t, u)", "greatest(d, e)", "least(x, y)", "isnan(y)", "isinf(y)",
    "isfinite(y)",
    # Texts.
    "t LIKE '%a%'", "t LIKE u", "t ILIKE 'a_a'", "t NOT LIKE 'a%'", "t NOT ILIKE 'a%'",
    "k NOT BETWEEN 1 AND 2", "t || u", "concat(t, u, k, ok, d, x)", "l || r",
    "concat_ws('-', t, k)",
    "concat_ws('-', t, u)", "lower(t)", "upper(t)", "length(t)", "strlen(t)",
    "bit_length(t)", "trim(t)", "ltrim(t)", "rtrim(t)", "trim(t, 'ab')", "ltrim(t, s)",
    "rtrim(t, s)", "substr(t, 2)", "substr(t, 2, 2)",
    ("substr(t, o, 2)", "substr(t, CAST(o AS INTEGER), 2)"), "left(t, 2)", "left(t, k)",
    "right(t, 2)", "right(t, k)", "replace(t, 'a', 'xy')", "replace(t, s, u)",
    "translate(t, 'abx', 'xy')", "strpos(t, s)", "position('b' IN t)", "starts_with(t, s)",
    "starts_with(t, 'a')", "ends_with(t, 'b')", "ends_with(t, s)", "contains(t, s)",
    "contains(t, 'a')",
    ("lpad(t, o, s)", "lpad(t, CAST(o AS INTEGER), s)"),
    "rpad(t, 5, '.')", "repeat(s, o)", "reverse(t)", "ascii(s)",
    ("chr(o + 64)", "chr(CAST(o + 64 AS INTEGER))"), "split_part(t, ',', 2)",
    ("split_part(t, s, o)", "split_part(t, s, CAST(o AS INTEGER))"),
    "regexp_matches(t, '[a-c]b')", "regexp_matches(t, s)", "regexp_full_match(t, '[a-z]*')",
    "regexp_replace(t, '[0-9]+', '#', 'g')", "regexp_replace(t, 'a', 'b')",
    "regexp_extract(t, '([a-z])([0-9]+)', 2)", "regexp_extract(t, '[0-9]+')",
    ("regexp_count(t, 'a')", "len(regexp_extract_all(t, 'a'))"), "levenshtein(s, 'ab')", "md5(t)",
    "sha1(t)", "sha256(t)", "hex(t)", "to_hex(o)", "unhex('61' || '62')",
    "to_base64(b)", "from_base64('YXo=')", "octet_length(encode(t))",
    "decode(encode(t))", "url_encode(t)", "url_decode('a%20b')",
    "format('{}-{}', t, u)",
    # Times.
    "year(ts)", "quarter(ts)", "month(ts)", "week(ts)", "day(ts)", "dayofweek(ts)", "isodow(ts)",
    "dayofyear(ts)", "hour(ts)", "minute(ts)", "second(ts)", "millisecond(ts)", "isoyear(ts)",
    "date_part('year', ts)", "extract(hour FROM ts)", "year(day)", "date_trunc('month', ts)",
    "date_trunc('week', ts)", "date_trunc('hour', ts)", "date_trunc('quarter', ts)",
    "date_diff('day', ts, tb)", "date_diff('month', ts, tb)", "date_diff('hour', ts, tb)",
    "date_diff('week', ts, tb)", "date_diff('week', tb, tb + to_hours(k * 24 + o * 30))",
    *(f"date_diff('week', ts, TIMESTAMP '{day}')" for day in (
        "2000-01-02 00:00:00", "2000-01-03 00:00:00", "1969-12-31 23:59:59.5")),
    "date_diff('year', ts, tb)", "date_diff('minute', ts, tb)", "ts + INTERVAL '3 days'",
    "ts - INTERVAL '1 month'", "ts + to_months(k)", "ts + to_hours(k)", "ts + to_minutes(k)",
    ("day + k", "day + CAST(k AS INTEGER)"), "day - day", "ts + to_days(k)", "ts + to_years(k)",
    "ts + to_seconds(k)",
    "time_bucket(INTERVAL '15 minutes', ts)", "time_bucket(INTERVAL '2 months', ts)",
    "epoch_ms(ts)", "epoch(ts)", "epoch_ms(o * 86400000)",
    ("to_timestamp(o)", "epoch_ms(o * 1000)"),
    "make_date(2000, o, 3)", "make_timestamp(2000, o, 3, 4, 5, 6.5)", "last_day(ts)",
    "strftime(ts, '%d.%m.%Y %H:%M:%S')", "strptime('28.11.2026', '%d.%m.%Y')", "dayname(ts)",
    "monthname(ts)",
    # JSON.
    ("json_get(j, '$.a')", "nullif(json_extract(j, '$.a')::VARCHAR, 'null')"),
    ("json_get_text(j, '$.b[2]')", "json_extract_string(j, '$.b[2]')"),
    ("json_get_text(j, 'a')", "json_extract_string(j, 'a')"),
    *(f"cast(j AS JSON) ->> {path}" for path in (
        "'a'", "'a.b'", "'a[0]'", "'a:b'", "'*'", "'$.\"a.b\"'", "'$.a.b'", "'$.b[#-1]'",
        "'$[#-2]'", "'$[-1]'", "'0'", "0", "-1")),
    ("json_get(j, '$.a.b')", "json_extract(j, '$.a.b')::VARCHAR"), "json_array_length(j)",
    ("json_type(j)", "CASE json_type(j) WHEN 'UBIGINT' THEN 'BIGINT' ELSE json_type(j) END"),
    "json_valid(j)", "json_keys(j)",
    ("json_exists(j, '$.a')", "json_exists(j, '$.a') AND json_type(j, '$.a') <> 'NULL'"),
    "json_contains(j, '{}')",
    "to_json(t)", "to_json(k)",
    # Arrays.
    "array_length(ARRAY[k, o])", "l[1]", "l[k]", "array_length(l)",
    ("array_contains(r, o)", "CASE WHEN o IS NOT NULL THEN list_contains(r, o) END"),
    "array_position(r, o)", "array_has_any(r, l)",
    "array_has_all(r, l)", "array_slice(r, 2, 3)", "array_concat(l, r)", "array_append(l, k)",
    "array_prepend(k, l)", "array_sort(r)", "array_reverse(l)",
    ("array_sort(array_distinct(l))", "list_sort(list_distinct(l))"),
    ("array_sort(array_intersect(r, l))",
     "CASE WHEN len(r) + len(l) >= 0 THEN list_sort(list_intersect(r, l)) END"),
    "list_min(l)", "list_max(l)",
    "list_sum(r)",
    "flatten(ARRAY[r, l])", "range(0, o)", "generate_series(1, o, 2)", "string_split(t, ',')",
    "array_to_string(w, '-')",
    # Casts.
    ("cast(y AS BIGINT)", "cast(trunc(y) AS BIGINT)"),
    ("cast(d AS BIGINT)", "cast(trunc(d) AS BIGINT)"),
    "cast(k AS DOUBLE)", "cast(k AS VARCHAR)", "cast(y AS VARCHAR)", "cast(d AS VARCHAR)",
    "cast(ok AS VARCHAR)", "cast(ok AS BIGINT)", "cast(k AS BOOLEAN)", "try_cast(t AS BIGINT)",
    "try_cast(t AS DOUBLE)", "try_cast(t AS DATE)", "cast(t AS BOOLEAN)", "cast(ts AS DATE)",
    "cast(day AS TIMESTAMP)", "cast(k AS DECIMAL(6, 2))", "cast(e AS DECIMAL(7, 1))",
    "cast(y AS DECIMAL(18, 3))", "cast(day AS VARCHAR)", "cast('12.5' AS DECIMAL(5, 2))",
]  # fmt: skip
# Functions that DuckDB does not have; their examples test them.
ONLY_HERE = {"initcap", "json_items", "not_null", "parse_json"}


def pair(text):
    return text if isinstance(text, tuple) else (text, text)


@pytest.fixture(scope="module")
def database():
    connection = duckdb.connect()
    connection.execute("SET integer_division = true")
    connection.execute("SET TimeZone = 'UTC'")
    batch = random_batch(1)
    connection.register("given", pyarrow.Table.from_batches([batch]))
    casts = ", ".join(f"CAST({name} AS TIMESTAMP) AS {name}" for name in ("ts", "tb"))
    connection.execute(f"CREATE TABLE rows_ AS SELECT * REPLACE ({casts}) FROM given")
    return connection, batch


@pytest.mark.parametrize("text", EQUAL, ids=lambda text: pair(text)[0])
def test_a_function_returns_what_duckdb_returns(database, text):
    connection, batch = database
    here, there = pair(text)

    found, errors = rows_of(batch).array(compile_text(here, COLUMNS))
    rows = connection.execute(f"SELECT TRY({there}) FROM rows_").fetchall()

    expected = [None if at in errors else row[0] for at, row in enumerate(rows)]
    for at, (value, wanted) in enumerate(zip(found.to_pylist(), expected, strict=True)):
        assert same(value, wanted), (batch.slice(at, 1).to_pylist(), value, wanted)
    assert all(rows[at][0] is None for at in errors), errors


def test_each_function_is_compared_or_listed():
    named = set()
    for text in EQUAL:
        operations(compile_text(pair(text)[0], COLUMNS), named)

    assert {row.name for row in ROWS} - named == ONLY_HERE


def operations(tree, found):
    found.add(tree.operation.removeprefix("sql."))
    for part in tree.arguments:
        if isinstance(part, Expression):
            operations(part, found)


def same(value, wanted):
    if value is None or wanted is None:
        return value is wanted
    if isinstance(value, list):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(value, datetime):
        wanted = datetime.combine(wanted, datetime.min.time()) if type(wanted) is date else wanted
        return value == (wanted if wanted.tzinfo else wanted.replace(tzinfo=UTC))
    if isinstance(value, float) or isinstance(wanted, float):
        value, wanted = float(value), float(wanted)
        both_nan = math.isnan(value) and math.isnan(wanted)
        return both_nan or value == wanted or math.isclose(value, wanted, rel_tol=1e-9)
    if isinstance(value, date) and isinstance(wanted, datetime):
        return datetime.combine(value, datetime.min.time()) == wanted
    return value == wanted


@pytest.mark.parametrize("text", EQUAL, ids=lambda text: pair(text)[0])
def test_a_batch_returns_what_its_rows_and_slices_return(text):
    batch, tree = random_batch(2).slice(17, 40), compile_text(pair(text)[0], COLUMNS)
    found, errors = rows_of(batch).array(tree)

    for size in (1, 13):
        values, failed = [], {}
        for start in range(0, batch.num_rows, size):
            part = rows_of(batch.slice(start, size)).array(tree)
            values += part.column.to_pylist()
            failed |= {start + at: error for at, error in part.errors.items()}
        assert all(map(same, values, found.to_pylist()))
        assert failed == dict(errors)
