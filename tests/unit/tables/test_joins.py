"""Joins return what DuckDB returns from all rows, at any parallelism and in any epochs."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.testing import Harness
from tests.unit.tables.sql_runs import built, ran

START = datetime(2026, 11, 28, tzinfo=UTC)
TABLES = {
    "o": "id BIGINT, k BIGINT, c VARCHAR, d DECIMAL(10,2), moment TIMESTAMP",
    "s": "id BIGINT, k BIGINT, c VARCHAR, e DECIMAL(12,4), moment TIMESTAMP",
    "r": "c VARCHAR, rate BIGINT, moment TIMESTAMP",
}
NEAR = "s.moment BETWEEN o.moment - INTERVAL '3' SECOND AND o.moment + INTERVAL '2' SECOND"
TUMBLED = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(moment), INTERVAL '5' SECOND))"
HOPPED = "HOP({}, moment, INTERVAL '2' SECOND, INTERVAL '4' SECOND)"
BUCKETS = "(SELECT *, time_bucket(INTERVAL 5 SECONDS, moment) AS window_start FROM {})"
HOPS = (
    "(SELECT *, time_bucket(INTERVAL 2 SECONDS, moment) - INTERVAL 2 SECONDS * step AS "
    "window_start FROM {}, range(2) AS steps(step))"
)
SAME = "AND a.window_start = b.window_start AND a.window_end = b.window_end"
COUNTED = (
    "(SELECT k, window_start AS f, window_end AS u, count(*) AS n FROM {} GROUP BY k, window_start,"
    " window_end)"
)
COUNTS = "(SELECT k, window_start AS f, count(*) AS n FROM {} GROUP BY ALL)"
# Query: the types of its columns, its text, and the text for DuckDB if that differs.
QUERIES = {
    "between": ("BIGINT, BIGINT", f"SELECT o.id, s.id FROM o JOIN s ON o.k = s.k AND {NEAR}"),
    "compared": (
        "BIGINT, BIGINT",
        "SELECT o.id, s.id FROM o JOIN s ON s.moment < o.moment + INTERVAL '2' SECOND AND s.moment"
        " + INTERVAL '1' SECOND > o.moment AND s.k = o.k",
    ),
    "subtracted": (
        "BIGINT, BIGINT",
        "SELECT o.id, s.id FROM o INNER JOIN s ON o.k = s.k AND o.moment - s.moment <= INTERVAL '2'"
        " SECOND AND o.moment >= s.moment",
    ),
    "commas": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o, s WHERE o.k = s.k AND {NEAR} AND o.id > 5 AND o.id + s.id > 20",
    ),
    "cross": ("BIGINT", f"SELECT s.id FROM o CROSS JOIN s WHERE o.k = s.k AND {NEAR}"),
    "left": (
        "BIGINT, BIGINT, TIMESTAMP",
        f"SELECT o.id, s.id, s.moment FROM o LEFT JOIN s ON o.k = s.k AND {NEAR}",
    ),
    "left_filtered": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o LEFT OUTER JOIN s ON o.k = s.k AND {NEAR} AND s.id % 2 = 0"
        " AND o.id % 3 <> 0 WHERE s.id IS NULL OR s.id < 40",
    ),
    "right": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o RIGHT JOIN s ON o.k = s.k AND {NEAR} AND s.id > 9"
        " WHERE o.id IS NULL OR o.id > 3",
    ),
    "full": (
        "BIGINT, VARCHAR, BIGINT, VARCHAR",
        f"SELECT o.id, o.c, s.id, s.c FROM o FULL JOIN s ON o.k = s.k AND o.c = s.c AND {NEAR}",
    ),
    "expressions": (
        "BIGINT, DECIMAL(12,4)",
        "SELECT o.id, s.e FROM o JOIN s ON o.k + 1 = s.k AND upper(o.c) = upper(s.c) AND"
        f" o.d = s.e AND {NEAR}",
    ),
    "also": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o JOIN s ON o.k = s.k AND {NEAR} AND (o.id < s.id OR o.c = s.c)",
    ),
    "using_": (
        "BIGINT, VARCHAR, BIGINT, BIGINT",
        f"SELECT k, c, o.id, s.id FROM o JOIN s USING (k, c) WHERE {NEAR}",
    ),
    "star": (
        "BIGINT, BIGINT, VARCHAR, DECIMAL(10,2), TIMESTAMP, BIGINT, DECIMAL(12,4), TIMESTAMP",
        f"SELECT * FROM o JOIN s USING (k, c) WHERE {NEAR}",
    ),
    "itself": (
        "BIGINT, BIGINT",
        "SELECT a.id, b.id FROM o a JOIN o AS b ON a.k = b.k AND a.id < b.id AND b.moment BETWEEN"
        " a.moment - INTERVAL '5' SECOND AND a.moment + INTERVAL '5' SECOND",
    ),
    "three": (
        "BIGINT, BIGINT, BIGINT",
        f"SELECT o.id, s.id, z.id FROM o JOIN s ON o.k = s.k AND {NEAR} JOIN o AS z ON z.k = s.k"
        " AND z.moment BETWEEN o.moment AND o.moment + INTERVAL '1' SECOND",
    ),
    "view": (
        "BIGINT, BIGINT",
        "SELECT v.number, s.id FROM v JOIN s ON v.key = s.k AND s.moment BETWEEN v.since -"
        " INTERVAL '1' SECOND AND v.since",
        "SELECT o.id, s.id FROM o JOIN s ON o.k = s.k AND o.id > 3 AND s.moment BETWEEN o.moment -"
        " INTERVAL '2' SECOND AND o.moment - INTERVAL '1' SECOND",
    ),
    "tumbled": (
        "BIGINT, BIGINT, TIMESTAMP, TIMESTAMP",
        f"SELECT a.id, b.id, a.window_start, b.window_end FROM (SELECT * FROM {TUMBLED.format('o')}"
        f" WHERE id > 2) a JOIN (SELECT * FROM {TUMBLED.format('s')}) b ON a.k = b.k {SAME}",
        "SELECT a.id, b.id, a.window_start, b.window_start + INTERVAL 5 SECONDS FROM"
        f" {BUCKETS.format('o')} a JOIN {BUCKETS.format('s')} b USING (k, window_start)"
        " WHERE a.id > 2",
    ),
    "tumbled_full": (
        "BIGINT, BIGINT, TIMESTAMP",
        f"SELECT a.id, b.number, coalesce(a.window_start, b.w) FROM {TUMBLED.format('o')} AS a FULL"
        f" JOIN (SELECT id AS number, k, window_start AS w FROM {TUMBLED.format('s')}) b"
        " ON a.k = b.k AND a.window_start = b.w",
        "SELECT a.id, b.id, coalesce(a.window_start, b.window_start) FROM"
        f" {BUCKETS.format('o')} a FULL JOIN {BUCKETS.format('s')} b"
        " ON a.k = b.k AND a.window_start = b.window_start",
    ),
    "hopped": (
        "BIGINT, BIGINT, TIMESTAMP",
        f"SELECT a.id, b.id, b.window_start FROM {HOPPED.format('o')} a JOIN {HOPPED.format('s')} b"
        f" ON a.k = b.k {SAME} AND a.id > b.id",
        f"SELECT a.id, b.id, b.window_start FROM {HOPS.format('o')} a JOIN {HOPS.format('s')} b"
        " ON a.k = b.k AND a.window_start = b.window_start AND a.id > b.id",
    ),
    "counted": (
        "BIGINT, TIMESTAMP, BIGINT, BIGINT",
        f"SELECT a.k, a.f, a.n, b.n FROM {COUNTED.format(TUMBLED.format('o'))} a LEFT JOIN"
        f" {COUNTED.format(TUMBLED.format('s'))} b ON a.k = b.k AND a.f = b.f AND a.u = b.u",
        f"SELECT a.k, a.f, a.n, b.n FROM {COUNTS.format(BUCKETS.format('o'))} a LEFT JOIN"
        f" {COUNTS.format(BUCKETS.format('s'))} b ON a.k = b.k AND a.f = b.f",
    ),
    "counted_hops": (
        "BIGINT, TIMESTAMP, BIGINT, BIGINT",
        f"SELECT a.k, a.f, a.n, b.n FROM {COUNTED.format(HOPPED.format('o'))} a JOIN"
        f" {COUNTED.format(HOPPED.format('s'))} b ON a.k = b.k AND a.u = b.u",
        f"SELECT a.k, a.f, a.n, b.n FROM {COUNTS.format(HOPS.format('o'))} a JOIN"
        f" {COUNTS.format(HOPS.format('s'))} b ON a.k = b.k AND a.f = b.f",
    ),
    "rows_and_counts": (
        "BIGINT, BIGINT",
        f"SELECT a.id, b.n FROM {TUMBLED.format('o')} a JOIN {COUNTED.format(TUMBLED.format('s'))}"
        " b ON a.k = b.k AND a.window_end = b.u",
        f"SELECT a.id, b.n FROM {BUCKETS.format('o')} a JOIN {COUNTS.format(BUCKETS.format('s'))} b"
        " ON a.k = b.k AND a.window_start = b.f",
    ),
    "then_window": (
        "BIGINT, TIMESTAMP, BIGINT",
        f"SELECT k, window_start, count(*) FROM {TUMBLED.format('pairs')}"
        " GROUP BY k, window_start, window_end",
        "SELECT o.k, time_bucket(INTERVAL 5 SECONDS, greatest(o.moment, s.moment)) AS w, count(*)"
        f" FROM o JOIN s ON o.k = s.k AND {NEAR} GROUP BY ALL",
    ),
    "enriched_then_window": (
        "BIGINT, TIMESTAMP, BIGINT",
        f"SELECT k, window_start, count(other) FROM {TUMBLED.format('enriched')}"
        " GROUP BY k, window_start, window_end",
        "SELECT o.k, time_bucket(INTERVAL 5 SECONDS, o.moment) AS w, count(s.id) FROM o LEFT JOIN s"
        " ON o.k = s.k AND s.moment BETWEEN o.moment - INTERVAL '3' SECOND AND o.moment"
        " GROUP BY ALL",
    ),
    "as_of": (
        "BIGINT, BIGINT",
        "SELECT o.id, r.rate FROM o JOIN r FOR SYSTEM_TIME AS OF o.moment ON o.c = r.c",
        "SELECT o.id, r.rate FROM o ASOF JOIN r ON o.c = r.c AND o.moment >= r.moment",
    ),
    "as_of_left": (
        "BIGINT, BIGINT",
        "SELECT o.id, x.rate FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF o.moment AS x ON o.c = x.c"
        " AND o.id % 2 = 0",
        "SELECT o.id, CASE WHEN o.id % 2 = 0 THEN r.rate END FROM o ASOF LEFT JOIN r ON o.c = r.c"
        " AND o.moment >= r.moment",
    ),
    "left_guarded": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o LEFT JOIN s ON o.k = s.k AND upper(o.c) = s.c AND {NEAR} AND"
        " o.k <> 0 AND 10 / o.k > 4",
    ),
    "full_guarded": (
        "BIGINT, BIGINT",
        f"SELECT o.id, s.id FROM o FULL JOIN s ON {NEAR} AND s.k <> 0 AND 10 / s.k > 4 AND"
        " o.k <> 0 AND 10 / o.k > 4 AND o.k = s.k",
    ),
    "tumbled_after": (
        "BIGINT, BIGINT",
        f"SELECT a.id, b.id FROM {TUMBLED.format('o')} AS a JOIN {TUMBLED.format('s')} AS b"
        f" ON a.k = b.k {SAME} AND b.moment > a.moment + INTERVAL '1' SECOND",
        f"SELECT a.id, b.id FROM {BUCKETS.format('o')} a JOIN {BUCKETS.format('s')} b"
        " USING (k, window_start) WHERE b.moment > a.moment + INTERVAL '1' SECOND",
    ),
    "as_of_recent": (
        "BIGINT, BIGINT",
        "SELECT o.id, r.rate FROM o JOIN r FOR SYSTEM_TIME AS OF o.moment ON o.c = r.c AND"
        " r.moment > o.moment - INTERVAL '1' SECOND",
        "SELECT o.id, r.rate FROM o ASOF JOIN r ON o.c = r.c AND o.moment >= r.moment"
        " WHERE r.moment > o.moment - INTERVAL '1' SECOND",
    ),
    "as_of_filtered": (
        "BIGINT, BIGINT",
        "SELECT o.id, r.rate * o.k FROM o JOIN r FOR SYSTEM_TIME AS OF o.moment ON o.c = r.c AND"
        " r.rate > 3 AND o.k <> r.rate",
        "SELECT o.id, r.rate * o.k FROM o ASOF JOIN r ON o.c = r.c AND o.moment >= r.moment"
        " WHERE r.rate > 3 AND o.k <> r.rate",
    ),
}  # fmt: skip
VIEWS = f"""
CREATE VIEW v (number, key, since) AS SELECT id, k, moment - INTERVAL '1' SECOND FROM o
  WHERE id > 3;
CREATE VIEW pairs AS SELECT o.k, greatest(s.moment, o.moment) AS moment FROM o JOIN s ON o.k = s.k
  AND {NEAR};
CREATE VIEW enriched AS SELECT o.k, o.moment, s.id AS other FROM o LEFT JOIN s ON o.k = s.k
  AND s.moment BETWEEN o.moment - INTERVAL '3' SECOND AND o.moment;
"""


def head_of(names=("o", "s", "r")):
    lines = []
    for name in names:
        columns = TABLES[name].replace("TIMESTAMP", "TIMESTAMP(3)")
        key = "PRIMARY KEY (c), " if name == "r" else ""
        lines.append(
            f"CREATE TABLE {name} ({columns}, {key}WATERMARK FOR moment AS moment - INTERVAL '5' "
            f"SECOND) WITH (kind = 'file', path = '{name}');"
        )
    return "\n".join(lines)


def file_of(queries):
    lines = [head_of(), VIEWS]
    for name, (types, query, *_) in queries.items():
        kinds = types.replace("TIMESTAMP", "TIMESTAMP(3)").split(", ")
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
        lines.append(f"CREATE TABLE {name} ({columns}) WITH (kind = 'file', path = '{name}');")
        lines.append(f"INSERT INTO {name} {query};")
    return "\n".join(lines)


def inputs_of(count, seed):
    chance = random.Random(seed)

    def some(value):
        return None if chance.random() < 0.1 else value

    def at(index, spread):
        return START + timedelta(milliseconds=index * 400 + chance.randint(0, spread))

    def number():
        return Decimal(chance.randint(0, 3)) / 2

    return {
        "o": [
            {"id": n, "k": some(chance.randint(0, 3)), "c": some(chance.choice("ab")),
             "d": some(number()), "moment": at(n, 3_000)}
            for n in range(count)
        ],
        "s": [
            {"id": n, "k": some(chance.randint(0, 3)), "c": some(chance.choice("abA")),
             "e": some(number()), "moment": at(n, 3_000)}
            for n in range(count)
        ],
        "r": [
            {"c": some(chance.choice("ab")), "rate": chance.randint(1, 9), "moment": at(n * 3, 300)}
            for n in range(count // 3)
        ],
    }  # fmt: skip


def plain(row):
    values = row.values() if isinstance(row, dict) else row
    return tuple(
        value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values
    )


def by_duckdb(inputs, queries):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in inputs[name]:
                marks = ", ".join("?" for _ in row)
                connection.execute(f"INSERT INTO {name} VALUES ({marks})", list(row.values()))
        return {
            name: Counter(map(plain, connection.execute(texts[-1]).fetchall()))
            for name, (_, *texts) in queries.items()
        }


def assert_equal(harness, inputs, queries):
    expected = by_duckdb(inputs, queries)
    for name in queries:
        assert expected[name], name
        assert Counter(map(plain, harness.results(name))) == expected[name], name


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 7), (3, 4)])
def test_joins_return_what_duckdb_returns(parallelism, epochs):
    inputs = inputs_of(60, seed=epochs)

    with ran(file_of(QUERIES), inputs, epochs=epochs, parallelism=parallelism) as harness:
        assert_equal(harness, inputs, QUERIES)


def test_joins_survive_a_crash_at_every_step_and_a_rescale():
    names = ("left", "full", "tumbled", "hopped", "counted", "three", "as_of_left", "then_window")
    queries = {name: QUERIES[name] for name in names}
    inputs = inputs_of(45, seed=2)

    with ran(
        file_of(queries), inputs, epochs=4, parallelism=2, faults=FAULT_POINTS,
        between=lambda harness: harness.rescale(3),
    ) as harness:  # fmt: skip
        assert harness.crash_count == len(FAULT_POINTS)
        assert_equal(harness, inputs, queries)


EQUAL_TIMES = f"""
CREATE TABLE out (id BIGINT, other BIGINT) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT o.id, b.id FROM {TUMBLED.format("o")} AS o JOIN {TUMBLED.format("s")} AS b
  ON {{}} o.window_start = b.window_start AND o.moment = b.moment;
"""


@pytest.mark.parametrize("key", ["", "o.k = b.k AND"])
def test_equal_event_times_are_keys_of_a_window_join(key):
    rows = [(1, 1, 0), (2, 1, 1), (3, 2, 1)]
    o, s = (
        [
            {"id": n * factor, "k": k, "moment": START + timedelta(seconds=at)}
            for n, k, at in rows[:count]
        ]
        for count, factor in ((2, 1), (3, 10))
    )
    expected = [(1, 10), (2, 20)] if key else [(1, 10), (2, 20), (2, 30)]

    with ran(head_of(("o", "s")) + EQUAL_TIMES.format(key), {"o": o, "s": s}) as harness:
        assert sorted(map(plain, harness.results("out"))) == expected


def test_a_key_of_an_outer_join_is_computed_only_if_the_conditions_are_true():
    text = f"""{head_of(("o", "s"))}
        CREATE TABLE out (id BIGINT, other BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT o.id, s.id FROM o LEFT JOIN s ON o.k = s.k
          AND CAST(o.c AS BIGINT) = s.id AND {NEAR} AND o.k <> 0 AND 10 / o.k > 1;
    """
    o = [{"id": 1, "k": 0, "c": "x", "moment": START}, {"id": 2, "k": 5, "c": "7", "moment": START}]
    s = [{"id": 7, "k": 5, "moment": START}]

    with ran(text, {"o": o, "s": s}) as harness:
        assert sorted(map(plain, harness.results("out"))) == [(1, None), (2, 7)]


NOW_RATES = """
CREATE TABLE o (id BIGINT, c VARCHAR) WITH (kind = 'file', path = 'o');
CREATE TABLE r (c VARCHAR, rate BIGINT, PRIMARY KEY (c)) WITH (kind = 'file', path = 'r');
CREATE TABLE out (id BIGINT, rate BIGINT) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT o.id, r.rate FROM o {} r FOR SYSTEM_TIME AS OF {} ON o.c = r.c {};
"""


@pytest.mark.parametrize("clock", ["PROCTIME()", "now()", "CURRENT_TIMESTAMP"])
@pytest.mark.parametrize(
    ("join", "more", "expected"),
    [
        ("JOIN", "", [(2, 10), (3, 20)]),
        ("LEFT JOIN", "", [(1, None), (2, 10), (3, 20), (4, None)]),
        ("JOIN", "AND r.rate + o.id > 20", [(3, 20)]),
    ],
)
def test_rows_join_the_version_of_their_processing_time(clock, join, more, expected):
    steps = [
        ("o", {"id": 1, "c": "a"}), ("r", {"c": "a", "rate": 10}), ("o", {"id": 2, "c": "a"}),
        ("r", {"c": "a", "rate": 20}), ("r", {"c": None, "rate": 30}),
        ("o", {"id": 3, "c": "a"}), ("o", {"id": 4, "c": None}),
    ]  # fmt: skip
    env = built(NOW_RATES.format(join, clock, more))

    with Harness(env, scripted=["o-source", "r-source"]) as harness:
        for table, row in steps:
            harness.push([row], source=f"{table}-source")
            harness.run()
            if row.get("rate") == 20:
                harness.crash()
        found = harness.results("out")

    assert [(row["id"], row["rate"]) for row in found] == expected
