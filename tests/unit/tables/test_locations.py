"""Errors of rows name the expression in the user's SQL text, or the call of the program."""

import inspect
import textwrap
from dataclasses import dataclass

from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from tests.unit.tables.sql_runs import built, ran

TABLES = """\
CREATE TABLE i (a BIGINT NOT NULL, b BIGINT, t TIMESTAMP(3),
  WATERMARK FOR t AS t - INTERVAL '1' SECOND) WITH (kind = 'file', path = 'i');
CREATE TABLE j (a BIGINT, u TIMESTAMP(3),
  WATERMARK FOR u AS u - INTERVAL '1' SECOND) WITH (kind = 'file', path = 'j');
CREATE TABLE o (x BIGINT, y BIGINT) WITH (kind = 'file', path = 'o');
SET on_error = 'dead_letter';
"""
TIME = "2026-01-01T00:00:00Z"
GOOD = {"a": 8, "b": 2, "t": TIME}
BAD = {"a": 8, "b": 0, "t": TIME}


def locations(statements, rows=(GOOD, BAD)):
    """Return line and column of each dead letter; lines count from the first statement."""
    text = TABLES + statements
    inputs = {"i": list(rows)} | ({"j": [{"a": 4, "u": TIME}]} if " j" in statements else {})
    with ran(text, inputs) as harness:
        found = [each["location"].split()[0] for each in harness.dead_letters]
    first = TABLES.count("\n")
    return [
        (int(line) - first, int(column))
        for file, line, column in (each.split(":") for each in found)
        if file == "v.sql"
    ]


def test_an_item_of_select():
    assert locations("INSERT INTO o\n  SELECT a,\n    10 / b FROM i") == [(3, 5)]


def test_a_condition():
    assert locations("INSERT INTO o SELECT a, b FROM i\n WHERE a > 0 AND a / b > 1") == [(2, 18)]


def test_an_expression_of_a_view_under_another_expression():
    view = "CREATE VIEW v AS SELECT a, b,\n  a / b AS q FROM i;\n"

    assert locations(f"{view}INSERT INTO o SELECT a, q * 2 + 1 FROM v") == [(2, 3)]


def test_the_argument_of_an_aggregate():
    text = """
INSERT INTO o SELECT count(*),
  sum(a / b) FROM TUMBLE(i, t, INTERVAL '1' SECOND) GROUP BY window_start, window_end"""

    assert locations(text) == [(3, 7)]


def test_the_key_of_a_join():
    text = """
INSERT INTO o SELECT i.a, j.a FROM i JOIN j
  ON i.a / i.b = j.a AND u BETWEEN t AND t + INTERVAL '1' SECOND"""

    assert locations(text) == [(3, 6)]


def test_a_python_function():
    text = """
CREATE FUNCTION share AS 'tests.unit.tables.user_functions:reciprocal';
INSERT INTO o SELECT a, CAST(share(b) AS BIGINT) FROM i"""

    assert locations(text) == [(3, 30)]


def test_columns_of_a_table():
    rows = [{**GOOD, "a": "x"}, {**GOOD, "a": None}, {**GOOD, "b": 1.5}]

    assert locations("INSERT INTO o SELECT a, b FROM i", rows) == [(-5, 17), (-5, 17), (-5, 36)]


def test_a_value_that_the_target_excludes():
    text = "CREATE TABLE p (x BIGINT NOT NULL) WITH (kind = 'file', path = 'p');\n"

    assert locations(f"{text}INSERT INTO p\n  SELECT b FROM i", [{**GOOD, "b": None}]) == [(3, 3)]


def test_each_operator_has_the_location_of_its_text():
    env = built(TABLES + "INSERT INTO o SELECT a, 1 / b FROM i\n  WHERE a > 0")
    found = {vertex.id: vertex.location for vertex in env.execute("v").vertices}

    assert found == {
        "i-source": "v.sql:1:14", "i-rows": "v.sql:1:14", "i-time": "v.sql:1:14",
        "o-where": "v.sql:8:9", "o-select": "v.sql:7:25", "o": "v.sql:5:14",
    }  # fmt: skip


@dataclass
class Order:
    id: int
    pieces: int


def test_a_text_of_a_program():
    env = StreamEnvironment()
    env.sql("SET on_error = 'dead_letter'")
    env.table(env.from_collection([Order(1, 0), Order(2, 1)]), name="orders")
    text = textwrap.dedent(
        """
        SELECT id,
          10 / pieces AS share FROM orders"""
    )
    table = env.sql(text)
    line = table_line()
    table.where("share > 0").to_stream().collect("found")

    with Harness(env) as harness:
        harness.run()

        assert harness.results("found") == [{"id": 2, "share": 10}]
        [letter] = harness.dead_letters
        assert (
            letter["location"]
            .removesuffix(" (harness)")
            .endswith(f"test_locations.py:{line} (line 3, column 3 of the text)")
        )


def table_line():
    """Return the line before the call of this function."""
    frame = inspect.currentframe()
    return frame.f_back.f_lineno - 1


def test_a_call_of_a_table():
    env = StreamEnvironment()
    env.sql("SET on_error = 'dead_letter'")
    orders = env.table(env.from_collection([Order(1, 0), Order(2, 1)]), name="orders")
    shared = orders.select("id", share="10 / pieces")
    line = table_line()
    shared.to_stream().collect("found")

    with Harness(env) as harness:
        harness.run()

        [letter] = harness.dead_letters
        assert letter["location"].removesuffix(" (harness)").endswith(f"test_locations.py:{line}")
