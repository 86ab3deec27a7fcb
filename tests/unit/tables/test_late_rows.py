"""Late rows: counted, readable as ``view$late``, and accepted for an allowed lateness."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.tables.sql_runs import graph, problems, ran

START = datetime(2026, 11, 28, tzinfo=UTC)
HEAD = """
    CREATE TABLE t (k VARCHAR, n BIGINT, tags VARCHAR[], doc JSON, moment TIMESTAMP(3),
      WATERMARK FOR moment AS moment - INTERVAL '5' SECOND) WITH (kind = 'file', path = 'in');
"""
COUNTS = """
    CREATE TABLE counts (k VARCHAR, start TIMESTAMP(3), n BIGINT) WITH (kind = 'file', path = 'a');
    CREATE TABLE missed (k VARCHAR, n BIGINT, tags VARCHAR[], doc JSON, moment TIMESTAMP(3),
      starts TIMESTAMP(3), ends TIMESTAMP(3), last TIMESTAMP(3)) WITH (kind = 'file', path = 'b');
"""
VIEW = """
    CREATE VIEW per_key AS SELECT k, window_start, count(*) AS n
      FROM {window} WHERE n > 0 GROUP BY k, window_start;
"""
WINDOWS = {
    "TUMBLE": ("TUMBLE(t, moment, INTERVAL '10' SECOND)", 0, 10),
    "HOP": ("HOP(t, moment, INTERVAL '5' SECOND, INTERVAL '10' SECOND)", 0, 10),
    "CUMULATE": ("CUMULATE(t, moment, INTERVAL '5' SECOND, INTERVAL '20' SECOND)", 0, 20),
    "SESSION": ("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(moment), INTERVAL '3' SECOND)", 3, 6),
}


def row(at, n=1):
    moment = START + timedelta(seconds=at)
    return {"k": "a", "n": n, "tags": ["x", None], "doc": {"a": 1}, "moment": moment}


def moment(at, milliseconds=0):
    return START + timedelta(seconds=at, milliseconds=milliseconds)


def push(*rows):
    def push_rows(harness):
        harness.push(rows, source="t-source")
        harness.run()

    return push_rows


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_late_rows_can_be_read_with_the_window_that_they_missed(kind, parallelism):
    window, start, end = WINDOWS[kind]
    text = f"""{HEAD}{COUNTS}{VIEW.format(window=window)}
        INSERT INTO counts SELECT * FROM per_key;
        INSERT INTO missed SELECT * FROM "per_key$late";
    """
    late = push(row(3, n=7), row(3, n=-1))  # WHERE leaves the second one out.

    with ran(text, {"t": [row(1), row(31)]}, between=late, parallelism=parallelism) as harness:
        [missed] = harness.results("missed")
        assert missed == {
            "k": "a", "n": 7, "tags": ["x", None], "doc": {"a": 1}, "moment": moment(3),
            "starts": moment(start), "ends": moment(end), "last": moment(end, -1),
        }  # fmt: skip
        assert all(each["n"] == 1 for each in harness.results("counts"))
        counts = [item for epoch in harness.epochs for item in epoch.counts.values()]
        assert sum(item.late for item in counts) == 1


def test_late_rows_of_a_window_without_other_readers_can_be_read():
    text = f"""{HEAD}{COUNTS}{VIEW.format(window=WINDOWS["TUMBLE"][0])}
        INSERT INTO missed (n, starts) SELECT n, window_start FROM per_key$late WHERE n > 5;
    """
    with ran(text, {"t": [row(1), row(31)]}, between=push(row(3), row(4, n=6))) as harness:
        assert [each["n"] for each in harness.results("missed")] == [6]


def test_reading_late_rows_keeps_the_state_of_the_window():
    tables, _, missed = f"{HEAD}{COUNTS}".rpartition("CREATE TABLE missed")
    view = VIEW.format(window=WINDOWS["TUMBLE"][0])
    counts = "INSERT INTO counts SELECT * FROM per_key;"
    late = "INSERT INTO missed (n) SELECT n FROM per_key$late;"
    with_late = f"{tables}CREATE TABLE missed{missed}{view}{late}{counts}"
    plain, read = (
        {each.id for each in graph(text).vertices if "-window-" in each.id}
        for text in (f"{tables}{view}{counts}", with_late)
    )
    assert plain and plain == read


KEYED = """
    CREATE TABLE counts (k VARCHAR PRIMARY KEY, n BIGINT) WITH (kind = 'kafka', topic = 'counts',
      bootstrap_servers = 'localhost:9092');
"""


def test_rows_within_the_allowed_lateness_update_the_result():
    text = f"""{HEAD}{KEYED}
        INSERT INTO counts SELECT /*+ ALLOWED_LATENESS('20 SECONDS') */ k, sum(n)
          FROM TUMBLE(t, moment, INTERVAL '10' SECOND) GROUP BY k, window_start;
    """

    def late(harness):
        push(row(3, n=7))(harness)  # The watermark is 26 s: the window ended 16 s ago.
        push(row(60))(harness)
        push(row(4, n=9))(harness)  # 45 s ago.

    with ran(text, {"t": [row(1), row(31)]}, between=late) as harness:
        assert [each["n"] for each in harness.results("counts")] == [1, 8, 1, 1]


def test_late_rows_beyond_the_allowed_lateness_are_final():
    text = f"""{HEAD}{COUNTS}{KEYED.replace("counts", "updated")}
        CREATE VIEW v AS SELECT /*+ ALLOWED_LATENESS('5 SECONDS') */ k, count(*) AS n
          FROM TUMBLE(t, moment, INTERVAL '10' SECOND) GROUP BY k, window_start;
        INSERT INTO updated SELECT k, n FROM v;
        INSERT INTO missed (n) SELECT n FROM v$late WHERE n > 5;
    """
    with ran(text, {"t": [row(1), row(31)]}, between=push(row(3), row(4, n=6))) as harness:
        assert [each["n"] for each in harness.results("missed")] == [6]


HINT = "/*+ ALLOWED_LATENESS('1 MINUTE') */"
UPDATED = KEYED.replace("counts", "updated") + "INSERT INTO updated"
WINDOW = "FROM TUMBLE(t, moment, INTERVAL '10' SECOND) GROUP BY k, window_start"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            f"INSERT INTO counts SELECT {HINT} k, window_start, count(*) {WINDOW};",
            "ALLOWED_LATENESS: late rows update results; counts needs a PRIMARY KEY",
        ),
        (
            f"INSERT INTO counts SELECT {HINT} k, moment, n FROM t;",
            "the hint needs a window in FROM, such as TUMBLE",
        ),
        (
            f"INSERT INTO counts SELECT /*+ NO_MERGE(t) */ k, window_start, count(*) {WINDOW};",
            "the hint /*+ NO_MERGE(t) */ is not supported; known: "
            "/*+ ALLOWED_LATENESS('1 MINUTE') */",
        ),
        (
            f"""CREATE VIEW v AS SELECT {HINT} k, window_time AS at, count(*) AS n FROM TUMBLE(t,
            moment, INTERVAL '10' SECOND) GROUP BY k, window_end, window_start;
            INSERT INTO counts SELECT k, window_start, count(*)
              FROM TUMBLE(v, at, INTERVAL '1' HOUR) GROUP BY k, window_start;""",
            "ALLOWED_LATENESS: late rows update results; a second window would count them twice",
        ),
        (
            f"{UPDATED} SELECT {HINT} k, count(*) FROM {WINDOWS['SESSION'][0]} GROUP BY k, "
            "window_start;",
            "ALLOWED_LATENESS: late rows update results; SESSION cannot remove former results",
        ),
        (
            f"{UPDATED} SELECT {HINT} k, count(*) {WINDOW} HAVING count(*) < 2;",
            "ALLOWED_LATENESS: late rows update results; HAVING cannot remove former results",
        ),
        (
            f"CREATE VIEW v AS SELECT {HINT} k, count(*) AS n {WINDOW}; "
            f"{UPDATED} SELECT k, n FROM (SELECT * FROM v) AS s WHERE n < 2;",
            "ALLOWED_LATENESS: late rows update results; WHERE cannot remove former results",
        ),
        (
            f"CREATE VIEW v AS SELECT {HINT} k, count(*) AS n {WINDOW}; "
            f"{UPDATED} SELECT k, i FROM v CROSS JOIN UNNEST(ARRAY[n]) AS u (i);",
            "ALLOWED_LATENESS: late rows update results; rows of former results cannot be removed",
        ),
        (
            "INSERT INTO counts SELECT k, moment, n FROM t$late;",
            "there is no table t$late: the query of t has no window",
        ),
        (
            "INSERT INTO counts SELECT k, moment, n FROM u$late;",
            "there is no table 'u'; known: t, counts, missed",
        ),
        (
            f"""CREATE VIEW v AS SELECT k, window_start, count(*) {WINDOW} UNION ALL
            SELECT k, window_start, count(*) {WINDOW};
            INSERT INTO counts SELECT k, moment, n FROM v$late;""",
            "there is no table v$late: the query of v has 2 windows; create a view for each",
        ),
        (
            f"INSERT INTO counts SELECT {HINT.replace('1 MINUTE', '1 MONTH')} k, window_start, "
            f"count(*) {WINDOW};",
            "ALLOWED_LATENESS('1 MONTH') must be whole milliseconds, 0 or more",
        ),
    ],
)
def test_wrong_lateness_is_rejected(statement, problem):
    assert [text for _, _, text in problems(HEAD + COUNTS + statement)] == [problem]
