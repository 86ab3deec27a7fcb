"""Joins in plans: ids, state, warnings, bad rows and late rows."""

from datetime import UTC, datetime, timedelta

from bicycle_runtime.cli.plan import explain_lines, report_lines
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.building import build_tables
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.tables.sql_runs import graph, problems, ran, run

START = datetime(2026, 11, 28, tzinfo=UTC)
HEAD = """
CREATE TABLE o (id BIGINT, k VARCHAR, rest VARCHAR, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH (kind = 'file', path = 'o');
CREATE TABLE s (id BIGINT, n BIGINT, rest VARCHAR, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH (kind = 'file', path = 's');
CREATE TABLE out (a BIGINT, b BIGINT) WITH (kind = 'file', path = 'out');
"""
HOUR = "s.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR"
NEXMARK_Q8 = """
CREATE TABLE person (id BIGINT, name VARCHAR, dateTime TIMESTAMP(3), WATERMARK FOR dateTime AS
  dateTime - INTERVAL '4' SECOND) WITH (kind = 'file', path = 'person');
CREATE TABLE auction (id BIGINT, seller BIGINT, dateTime TIMESTAMP(3), WATERMARK FOR dateTime AS
  dateTime - INTERVAL '4' SECOND) WITH (kind = 'file', path = 'auction');
CREATE TABLE q8 (id BIGINT, name VARCHAR, stime TIMESTAMP(3)) WITH (kind = 'file', path = 'q8');
INSERT INTO q8
  SELECT P.id, P.name, P.starttime
  FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
  ) P
  JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
  ) A
  ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
"""


def at(seconds):
    return START + timedelta(seconds=seconds)


def test_query_8_of_nexmark_gives_new_sellers_of_each_window():
    people = [{"id": n, "name": f"p{n}", "dateTime": at(n)} for n in range(40)]
    auctions = [{"id": n, "seller": n // 2, "dateTime": at(n)} for n in range(40)]

    found = run(NEXMARK_Q8, {"person": people, "auction": auctions}, "q8", epochs=5, parallelism=2)

    expected = {n // 2 for n in range(40) if n // 2 // 10 == n // 10}
    assert {row["id"] for row in found} == expected
    assert len(found) == len(expected)
    assert all(row["stime"] == at(row["id"] // 10 * 10) for row in found)


def test_the_plan_shows_each_join_with_its_bound_and_key_and_has_no_warning():
    text = f"""{HEAD}
        INSERT INTO out SELECT o.id, s.n FROM o JOIN s ON o.id = s.id AND {HOUR};
        INSERT INTO out SELECT o.id, s.n FROM TUMBLE(o, at, INTERVAL '1' HOUR) o
          LEFT JOIN TUMBLE(s, at, INTERVAL '1' HOUR) s
          ON o.id = s.id AND o.window_end = s.window_end;
    """

    report = inspect_job(bundle_of(lambda env: build_tables(env, text, file="v.sql")))

    joins = [state.join for state in report.states if state.join]
    assert joins == [
        "INTERVAL JOIN (0 s to 1 h) ON o.id = s.id", "LEFT WINDOW JOIN (TUMBLE 1 h) ON o.id = s.id",
    ]  # fmt: skip
    lines = report_lines(report)
    assert all(any(line.endswith(f"key groups, {join}") for line in lines) for join in joins)
    assert report.warnings == ()
    assert not any("set by the constructor" in line for line in lines)  # Settings of the join.


def test_a_plan_shows_the_bound_of_each_join():
    text = f"""{HEAD}
        INSERT INTO out SELECT o.id, s.n FROM o JOIN s ON o.id = s.id AND {HOUR};
        INSERT INTO out SELECT o.id, s.n FROM TUMBLE(o, at, INTERVAL '1' HOUR) o
          LEFT JOIN TUMBLE(s, at, INTERVAL '1' HOUR) s
          ON o.id = s.id AND o.window_end = s.window_end;
    """
    bundle = bundle_of(lambda env: build_tables(env, text, file="v.sql"))

    lines = explain_lines(inspect_job(bundle), bundle.graph)

    bounds = [line.rpartition(", ")[2] for line in lines if " key groups, " in line]
    assert bounds == [
        "bounded: a row is removed when the watermark passes its matches",
        "bounded: a row is removed when its window ends",
    ]


def test_a_join_stores_only_its_keys_and_the_columns_that_are_read():
    text = f"""{HEAD}
        INSERT INTO out SELECT o.id, s.n FROM o JOIN s ON o.k = s.rest AND {HOUR};
    """

    report = inspect_job(bundle_of(lambda env: build_tables(env, text, file="v.sql")))

    [join] = [state for state in report.states if state.join]
    types = {item.name: (item.type, item.codec) for item in join.keyed}
    assert types["left"] == ("tuple[str | None, int | None]", "typed")
    assert types["right"] == ("tuple[str | None, int | None]", "typed")


def test_the_state_of_a_join_belongs_to_its_definition():
    def join_ids(bound, column="n"):
        text = f"""{HEAD}
            INSERT INTO out SELECT o.id, s.{column} FROM o JOIN s ON o.id = s.id
              AND s.at BETWEEN o.at AND o.at + INTERVAL '{bound}';
        """
        return {vertex.id for vertex in graph(text).vertices if "-join-" in vertex.id}

    assert join_ids("1 HOUR") == join_ids("60 MINUTE")
    assert not join_ids("1 HOUR") & join_ids("2 HOUR")
    assert not join_ids("1 HOUR") & join_ids("1 HOUR", "id")


def test_a_row_whose_key_cannot_be_computed_is_one_dead_letter():
    text = f"""{HEAD}
        SET on_error = 'dead_letter';
        INSERT INTO out SELECT o.id, s.n FROM o JOIN s ON o.id = 10 / s.n AND {HOUR};
    """
    left = [{"id": n, "at": at(1)} for n in (5, 10)]
    right = [{"n": n, "at": at(2)} for n in (0, 1, 2)]

    with ran(text, {"o": left, "s": right}) as harness:
        found = {(row["a"], row["b"]) for row in harness.results("out")}
        assert found == {(5, 2), (10, 1)}
        assert len(harness.dead_letters) == 1


def test_late_rows_are_counted_and_join_no_row():
    text = f"""{HEAD}
        INSERT INTO out SELECT o.id, s.n FROM o JOIN s ON o.id = s.id AND {HOUR};
    """

    def push_late(harness):
        harness.push([{"id": 1, "n": 7, "at": at(5)}], source="s-source")
        harness.run()

    left = [{"id": 1, "at": at(n)} for n in (1, 100)]
    right = [{"id": 1, "n": n, "at": at(n)} for n in (2, 100)]
    with ran(text, {"o": left, "s": right}, between=push_late) as harness:
        assert sorted(row["b"] for row in harness.results("out")) == [2, 100, 100]
        counts = [item for epoch in harness.epochs for item in epoch.counts.values()]
        assert sum(item.late for item in counts) == 1


def test_a_join_whose_columns_are_not_read_counts_its_pairs():
    text = f"{HEAD} INSERT INTO out SELECT 1, 2 FROM o JOIN s ON o.id = s.id AND {HOUR};"

    rows = {"o": [{"id": 1, "at": at(1)}], "s": [{"id": 1, "at": at(n)} for n in (2, 3)]}

    assert run(text, rows, "out") == [{"a": 1, "b": 2}] * 2


def test_a_window_with_late_updates_is_not_joined():
    text = f"""{HEAD}
        CREATE VIEW counts AS SELECT /*+ ALLOWED_LATENESS('1 MINUTE') */ id, window_end,
          count(*) AS n
          FROM TUMBLE(o, at, INTERVAL '1' HOUR) GROUP BY id, window_end;
        INSERT INTO out SELECT c.id, c.n FROM counts c JOIN counts d ON c.id = d.id
          AND c.window_end = d.window_end;
    """

    [(_, _, problem)] = problems(text)

    assert problem == "ALLOWED_LATENESS: late rows update results; and a join needs final rows"


def test_a_join_of_windows_has_no_late_rows():
    text = f"""{HEAD}
        CREATE VIEW counts AS SELECT id, window_end, count(*) AS n
          FROM TUMBLE(o, at, INTERVAL '1' HOUR) GROUP BY id, window_end;
        CREATE VIEW pairs AS SELECT c.id, d.n FROM counts c JOIN counts d ON c.id = d.id
          AND c.window_end = d.window_end;
        INSERT INTO out SELECT id, n FROM pairs$late;
    """

    [(_, _, problem)] = problems(text)

    assert problem == "there is no table pairs$late: the query of pairs has no window"
