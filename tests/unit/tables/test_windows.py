"""Windows: TUMBLE, HOP, CUMULATE and SESSION return what DuckDB computes from all rows."""

import random
import struct
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.testing import Harness
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.tables.sql_runs import by_duckdb, graph, ran, run

COLUMNS = "k VARCHAR, n BIGINT, f DOUBLE, d DECIMAL(10,2), moment TIMESTAMP"
START = datetime(2026, 11, 28, tzinfo=UTC)
AGGREGATES = (
    "count(*), count(n), sum(n), avg(n), min(n), max(n), sum(f), min(f), sum(d), max(d), "
    "count(DISTINCT n), count(*) FILTER (WHERE n > 2), sum(n) FILTER (WHERE n > 2), min(moment)"
)
TYPES = (
    "c1 BIGINT, c2 BIGINT, c3 BIGINT, c4 DOUBLE, c5 BIGINT, c6 BIGINT, c7 DOUBLE, c8 DOUBLE, "
    "c9 DECIMAL(38,2), c10 DECIMAL(10,2), c11 BIGINT, c12 BIGINT, c13 BIGINT, c14 TIMESTAMP(3)"
)
HEAD = """
CREATE TABLE t (k VARCHAR, n BIGINT, f DOUBLE, d DECIMAL(10,2), moment TIMESTAMP(3),
  WATERMARK FOR moment AS moment - INTERVAL '5' SECOND) WITH (kind = 'file', path = 'in');
"""
FILE = f"""{HEAD}
CREATE TABLE tumbled (k VARCHAR, start TIMESTAMP(3), stop TIMESTAMP(3), {TYPES}) WITH (kind = 'file', path = 'a');
CREATE TABLE hopped (k VARCHAR, start TIMESTAMP(3), {TYPES}) WITH (kind = 'file', path = 'b');
CREATE TABLE grown (k VARCHAR, start TIMESTAMP(3), stop TIMESTAMP(3), {TYPES}) WITH (kind = 'file', path = 'e');
CREATE TABLE sessions (k VARCHAR, start TIMESTAMP(3), stop TIMESTAMP(3), {TYPES}) WITH (kind = 'file', path = 'c');
CREATE TABLE totals (start TIMESTAMP(3), n BIGINT, share DOUBLE) WITH (kind = 'file', path = 'd');
INSERT INTO tumbled SELECT k, window_start, window_end, {AGGREGATES}
  FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(moment), INTERVAL '10' SECOND))
  WHERE n > 0 OR n IS NULL GROUP BY k, window_start, window_end;
INSERT INTO hopped SELECT k, window_start, {AGGREGATES}
  FROM HOP(t, moment, INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY window_start, k;
INSERT INTO grown SELECT k, window_start, window_end, {AGGREGATES}
  FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(moment), INTERVAL '5' SECOND, INTERVAL '20' SECOND))
  GROUP BY k, window_start, window_end;
INSERT INTO sessions SELECT k, window_start, window_end, {AGGREGATES}
  FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(moment), INTERVAL '3' SECOND))
  GROUP BY k, window_start, window_end;
INSERT INTO totals SELECT window_start, sum(n) AS total, sum(f) / count(*)
  FROM TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(moment), SIZE => INTERVAL '1' MINUTE))
  GROUP BY window_start HAVING count(*) > 2;
"""  # noqa: E501 - A line of SQL for each table.
NAMES = ("tumbled", "hopped", "grown", "sessions", "totals")
QUERIES = {
    "tumbled": f"""SELECT k, time_bucket(INTERVAL 10 SECONDS, moment) AS w, w + INTERVAL 10 SECONDS,
        {AGGREGATES} FROM t WHERE n > 0 OR n IS NULL GROUP BY k, w""",
    "hopped": f"""SELECT k, w, {AGGREGATES} FROM (SELECT *, time_bucket(INTERVAL 5 SECONDS, moment)
        - INTERVAL 5 SECONDS * step AS w FROM t, range(3) AS s(step)) GROUP BY k, w""",
    "grown": f"""SELECT k, w, w + INTERVAL 5 SECONDS * step AS stop, {AGGREGATES} FROM (SELECT *,
        time_bucket(INTERVAL 20 SECONDS, moment) AS w FROM t, range(1, 5) AS s(step))
        WHERE moment < w + INTERVAL 5 SECONDS * step GROUP BY k, w, step""",
    "sessions": f"""SELECT k, min(moment), max(moment) + INTERVAL 3 SECONDS, {AGGREGATES} FROM (
        SELECT *, sum(is_new) OVER (PARTITION BY k ORDER BY moment, id) AS session FROM (
        SELECT *, CASE WHEN moment - lag(moment) OVER (PARTITION BY k ORDER BY moment, id)
        <= INTERVAL 3 SECONDS THEN 0 ELSE 1 END AS is_new FROM (SELECT *, row_number() OVER () AS id
        FROM t))) GROUP BY k, session""",
    "totals": """SELECT time_bucket(INTERVAL 1 MINUTE, moment) AS w, sum(n), sum(f) / count(*)
        FROM t GROUP BY w HAVING count(*) > 2""",
}


def rows_of(count, seed):
    chance = random.Random(seed)

    def some(value):
        return None if chance.random() < 0.2 else value

    return [
        {
            "k": some(chance.choice("abc")),
            "n": some(chance.randint(-2, 6)),
            "f": some(chance.randint(-8, 8) / 4),
            "d": some(chance.randint(-500, 500) / 100),
            "moment": START + timedelta(milliseconds=index * 900 + chance.randint(0, 4_000)),
        }
        for index in range(count)
    ]


def plain(row):
    values = row.values() if isinstance(row, dict) else row
    return tuple(
        value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values
    )


def assert_equal(harness, rows):
    expected = by_duckdb(COLUMNS, rows, QUERIES)
    for name in NAMES:
        assert Counter(map(plain, harness.results(name))) == Counter(map(plain, expected[name])), (
            name
        )


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 7), (3, 4)])
def test_windows_return_what_duckdb_computes(parallelism, epochs):
    rows = rows_of(150, seed=epochs)

    with ran(FILE, {"t": rows}, epochs=epochs, parallelism=parallelism) as harness:
        assert_equal(harness, rows)


def test_windows_survive_a_crash_at_every_step_and_a_rescale():
    rows = rows_of(80, seed=1)

    with ran(
        FILE, {"t": rows}, epochs=4, parallelism=2, faults=FAULT_POINTS,
        between=lambda harness: harness.rescale(3),
    ) as harness:  # fmt: skip
        assert harness.crash_count == len(FAULT_POINTS)
        assert_equal(harness, rows)


def test_late_rows_are_counted_and_change_no_result():
    text = f"""{HEAD}
        CREATE TABLE counts (start TIMESTAMP(3), n BIGINT) WITH (kind = 'file', path = 'a');
        INSERT INTO counts SELECT window_start, count(*)
          FROM TUMBLE(t, moment, INTERVAL '10' SECOND) GROUP BY window_start;
    """
    late = [{"moment": START + timedelta(seconds=3)}]

    def push_late(harness):
        harness.push(late, source="t-source")
        harness.run()

    times = [1, 2, 31]  # The watermark is 26 s then.
    rows = [{"moment": START + timedelta(seconds=at)} for at in times]
    with ran(text, {"t": rows}, between=push_late) as harness:
        assert [row["n"] for row in harness.results("counts")] == [2, 1]
        counts = [item for epoch in harness.epochs for item in epoch.counts.values()]
        assert sum(item.late for item in counts) == 1


@pytest.mark.parametrize(
    ("aggregate", "type"),
    [
        ("count(DISTINCT f)", "BIGINT"),
        ("sum(d)", "DECIMAL(38,2)"), ("max(d)", "DECIMAL(10,2)"), ("sum(n)", "BIGINT"),
        ("min(n)", "BIGINT"), ("max(k)", "VARCHAR"), ("min(f)", "DOUBLE"), ("avg(f)", "DOUBLE"),
        ("max(moment)", "TIMESTAMP(3)"), ("count(DISTINCT n)", "BIGINT"),
        ("count(DISTINCT d)", "BIGINT"), ("count(DISTINCT moment)", "BIGINT"),
    ],
)  # fmt: skip
def test_the_state_of_each_aggregate_is_restored(aggregate, type):
    text = f"""{HEAD}
        CREATE TABLE out (k VARCHAR, x {type}) WITH (kind = 'file', path = 'a');
        INSERT INTO out SELECT k, {aggregate} FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY k, window_start;
    """
    rows = rows_of(40, seed=3)

    with ran(text, {"t": rows}, epochs=3, faults=["before_seal"], between=Harness.crash) as harness:
        found = Counter(map(plain, harness.results("out")))

    query = f"SELECT k, {aggregate} FROM t GROUP BY k"
    assert found == Counter(map(plain, by_duckdb(COLUMNS, rows, {"q": query})["q"]))


def test_the_plan_of_windows_has_no_warning():
    bundle = bundle_of(lambda env: build_tables(env, FILE, file="v.sql"))

    assert inspect_job(bundle).warnings == ()


def test_the_state_of_a_window_belongs_to_its_definition():
    def window_ids(aggregates, size):
        text = f"""{HEAD}
            CREATE TABLE out (k VARCHAR, n BIGINT) WITH (kind = 'file', path = 'a');
            INSERT INTO out SELECT k, {aggregates} FROM TUMBLE(t, moment, INTERVAL '{size}' SECOND)
              GROUP BY k, window_start;
        """
        return {vertex.id for vertex in graph(text).vertices if "-window-" in vertex.id}

    assert window_ids("count(*)", 10) == window_ids("COUNT(*)", 10)
    assert not window_ids("count(*)", 10) & window_ids("count(n)", 10)
    assert not window_ids("count(*)", 10) & window_ids("count(*)", 20)


def test_a_sum_that_does_not_fit_is_an_error_of_its_row():
    text = f"""{HEAD}
        SET on_error = 'dead_letter';
        CREATE TABLE out (k VARCHAR, n BIGINT) WITH (kind = 'file', path = 'a');
        INSERT INTO out SELECT k, sum(n) FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY k, window_start;
    """
    large = (1 << 63) - 1
    rows = [{"k": k, "n": n, "moment": START} for k, n in [("a", large), ("a", 1), ("b", large)]]

    with ran(text, {"t": rows}) as harness:
        assert harness.results("out") == [{"k": "b", "n": large}]
        assert len(harness.dead_letters) == 1


def test_nan_is_the_greatest_number():
    text = f"""{HEAD}
        CREATE TABLE out (least DOUBLE, greatest DOUBLE) WITH (kind = 'file', path = 'a');
        INSERT INTO out SELECT min(f), max(f) FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY window_start;
    """
    rows = [{"f": f, "moment": START} for f in (float("nan"), 2.0, 1.0)]

    [row] = run(text, {"t": rows}, "out", parallelism=2)

    assert row["least"] == 1.0
    assert row["greatest"] != row["greatest"]  # It is NaN.


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 3), (3, 7)])
def test_equal_floats_are_one_key_as_in_duckdb(parallelism, epochs):
    query = """SELECT f, f / 3, count(*), count(DISTINCT f), avg(d) FROM {source}
        GROUP BY f, f / 3{window}"""
    text = f"""{HEAD}
        CREATE TABLE out (f DOUBLE, g DOUBLE, n BIGINT, m BIGINT, a DECIMAL(38,6))
          WITH (kind = 'file', path = 'a');
        INSERT INTO out {
        query.format(source="TUMBLE(t, moment, INTERVAL '1' HOUR)", window=", window_start")
    };
    """
    chance = random.Random(parallelism)
    floats = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), None, 0.1, 0.1 + 0.2, 5e-324]
    # NaNs are different objects, and have different bits.
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    rows = [
        {
            "f": chance.choice([*floats, other_nan]),
            "d": chance.choice([None, Decimal(chance.randint(-999, 999)) / 100]),
            "moment": START,
        }
        for _ in range(200)
    ]

    with ran(text, {"t": rows}, epochs=epochs, parallelism=parallelism) as harness:
        found = Counter(map(_comparable, map(plain, harness.results("out"))))

    expected = by_duckdb(COLUMNS, rows, {"q": query.format(source="t", window="")})["q"]
    assert found == Counter(map(_comparable, expected))


def _comparable(row):
    """Return a row whose NaNs and zeros are equal, with the average in 6 digits."""
    *values, average = row
    texts = (None if value is None else repr(value + 0.0) for value in values)
    return (*texts, None if average is None else f"{average:.6f}")


def test_the_average_of_decimals_is_exact_and_rounded_once():
    text = f"""{HEAD.replace("DECIMAL(10,2)", "DECIMAL(38,2)")}
        CREATE TABLE out (a DECIMAL(38,6)) WITH (kind = 'file', path = 'a');
        INSERT INTO out SELECT avg(d) FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY k, window_start;
    """
    amounts = {
        "a": ["1.00", "1.00", "0.00"], "b": ["-0.01", "-0.01", "-0.01", "0.00"],
        "c": ["99999999.99"] * 3, "d": [None], "e": ["0.00", "-0.01"],
        "f": ["123456789012345678901234567890.12", "0.01"],
    }  # fmt: skip
    rows = [
        {"k": k, "d": None if d is None else Decimal(d), "moment": START}
        for k, several in amounts.items()
        for d in several
    ]

    with ran(text, {"t": rows}, epochs=3, faults=["before_seal"], between=Harness.crash) as job:
        found = [row["a"] for row in job.results("out")]

    expected = [
        "0.666667", "-0.007500", "99999999.990000", None, "-0.005000",
        "61728394506172839450617283945.065000",
    ]  # fmt: skip
    assert sorted(map(str, found)) == sorted(map(str, expected))
