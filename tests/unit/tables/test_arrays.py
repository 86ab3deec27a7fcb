"""Arrays of values that JSON and CSV have as texts: times, decimals and JSON."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from tests.unit.tables.sql_runs import problems, run

TABLES = """\
SET on_error = 'dead_letter';
CREATE TABLE t (id BIGINT, v {0}) WITH (kind = 'file', path = 'in', format = '{1}');
CREATE TABLE out (id BIGINT, v {0}) WITH (kind = 'file', path = 'out');
CREATE VIEW known AS SELECT id, v FROM t WHERE id > 0;
INSERT INTO out SELECT id, v FROM known
"""
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
ARRAYS = [
    ("TIMESTAMP(3)[]", ["2026-01-01T00:00:00Z", None, 1_767_225_600_000],
     [NEW_YEAR, None, NEW_YEAR]),
    ("TIMESTAMP(3)[][]", [["2026-01-01T01:00:00+01:00"], None], [[NEW_YEAR], None]),
    ("DATE[]", ["2026-01-01"], [date(2026, 1, 1)]),
    ("TIME[]", ["10:00:00"], [time(10)]),
    ("DECIMAL(8, 2)[]", ["1.50", 2, 1.25], [Decimal("1.50"), Decimal("2.00"), Decimal("1.25")]),
    ("JSON[]", [{"a": 1}, "x", None, [1]], [{"a": 1}, "x", None, [1]]),
    ("JSON[][]", [[{"a": 1}], []], [[{"a": 1}], []]),
    ("BIGINT[]", [1, None], [1, None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "expected"), ARRAYS)
def test_json_and_csv_have_arrays_of_texts(kind, given, expected):
    rows = [{"id": 1, "v": given}, {"id": 2, "v": None}, {"id": 3, "v": 7}]
    texts = [{"id": str(row["id"]), "v": json.dumps(row["v"])} for row in rows[:1]]
    texts += [{"id": "2", "v": ""}, {"id": "3", "v": "7"}]

    for found in ("jsonl", rows), ("csv", texts):
        results = run(TABLES.format(kind, found[0]), {"t": found[1]}, "out")
        assert results == [{"id": 1, "v": expected}, {"id": 2, "v": None}]


def test_unnest_reads_parts_of_json_items():
    text = """\
        CREATE TABLE t (id BIGINT, lines JSON[]) WITH (kind = 'file', path = 'in');
        CREATE TABLE out (id BIGINT, sku VARCHAR) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT id, line ->> 'sku' FROM t CROSS JOIN UNNEST(lines) AS l (line)
        """

    assert run(text, {"t": [{"id": 1, "lines": [{"sku": "a"}, {"sku": 5}]}]}, "out") == [
        {"id": 1, "sku": "a"}, {"id": 1, "sku": "5"},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["INTERVAL[]", "BLOB[]", "INTERVAL[][]"])
def test_arrays_of_types_without_columns_are_refused(kind):
    found = problems(f"CREATE TABLE t (v {kind}) WITH (kind = 'file', path = 'in')")

    assert found == [(1, 19, f"columns of type {kind} are not supported")]
