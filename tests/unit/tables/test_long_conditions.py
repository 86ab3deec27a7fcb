"""Conditions with more parts than Python's recursion limit."""

from datetime import UTC, datetime

import pytest

from tests.unit.tables.sql_runs import run

PARTS = 1_200
COLUMNS = "(id BIGINT, k BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)"
TABLES = f"""\
CREATE TABLE a {COLUMNS} WITH (kind = 'file', path = 'a');
CREATE TABLE b {COLUMNS} WITH (kind = 'file', path = 'b');
CREATE TABLE out (id BIGINT, n BIGINT) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT {{}}
"""
JOIN = "{0} JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR {1} {2}"
AT = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [{"id": 1, "k": 1, "at": AT}, {"id": 5_000, "k": 1, "at": AT}]


def chain(text, word="AND"):
    return f" {word} ".join(text.format(number) for number in range(PARTS))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("a.id, b.id FROM a" + JOIN.format("", "WHERE", chain("a.id <> {}")),
         [(5_000, 1), (5_000, 5_000)]),
        ("a.id, b.id FROM a" + JOIN.format("", "AND", chain("a.id <> b.id + {}")),
         [(1, 5_000), (5_000, 1)]),
        ("a.id, b.id FROM a" + JOIN.format(" LEFT", "AND", chain("a.id <> {}")),
         [(1, None), (5_000, 1), (5_000, 5_000)]),
        ("a.id, b.id FROM a" + JOIN.format("", "WHERE", chain("a.id = {}", "OR")),
         [(1, 1), (1, 5_000)]),
        ("id, count(*) FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY id, "
         "window_start, window_end HAVING " + chain("id <> {}"), [(5_000, 1)]),
        ("id, CASE " + chain("WHEN id = {0} THEN {0} + 1", "") + " ELSE 0 END FROM a",
         [(1, 2), (5_000, 0)]),
        ("id, k FROM a WHERE id IN (" + chain("{}", ",") + ")", [(1, 1)]),
    ],
)  # fmt: skip
def test_1200_conditions_are_computed(query, expected):
    text = TABLES.format(query)

    inputs = {"a": ROWS, **({"b": ROWS} if "JOIN" in query else {})}
    found = [(row["id"], row["n"]) for row in run(text, inputs, "out")]

    assert sorted(found, key=str) == sorted(expected, key=str)
