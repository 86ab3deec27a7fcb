"""Rows with values that their columns, or Python's times, do not have: only they are bad rows."""

from datetime import UTC, date, datetime

import pytest

from tests.unit.tables.sql_runs import ran

TABLE = """\
SET on_error = 'dead_letter';
CREATE TABLE t (id BIGINT NOT NULL, at TIMESTAMP(3), ms BIGINT, day DATE, x DOUBLE, l DOUBLE[])
  WITH (kind = 'file', path = 'in');
CREATE TABLE out (id BIGINT, found {}) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT id, {} FROM t
"""
AT = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"at": AT, "ms": 0, "day": AT.date(), "x": 1.5, "l": [1, 0.5]}
NO_TIME = "the time is not in the years 1 to 9999"


@pytest.mark.parametrize(
    ("kind", "text", "bad", "reason"),
    [
        (
            "TIMESTAMP(3)",
            "at + INTERVAL '1' DAY",
            {"at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)},
            NO_TIME,
        ),
        (
            "TIMESTAMP(3)",
            "at - INTERVAL '1' MONTH",
            {"at": datetime(1, 1, 31, tzinfo=UTC)},
            NO_TIME,
        ),
        ("TIMESTAMP(3)", "epoch_ms(ms)", {"ms": 1_767_225_600_000_000}, NO_TIME),
        ("TIMESTAMP(3)", "to_timestamp(ms)", {"ms": -(10**12)}, NO_TIME),
        ("DATE", "day + ms", {"ms": 10_000_000}, NO_TIME),
        ("DATE", "day - ms", {"ms": 10_000_000}, NO_TIME),
        ("TIMESTAMP(3)", "day + INTERVAL '1' DAY", {"day": date(9999, 12, 31)}, NO_TIME),
        ("DOUBLE", "x", {"x": True}, "the value of the field is not a DOUBLE"),
        ("DOUBLE[]", "l", {"l": [1.5, True]}, "the value of the field is not a DOUBLE[]"),
    ],
)
def test_only_the_bad_row_is_a_dead_letter(kind, text, bad, reason):
    rows = [GOOD | {"id": 1}, GOOD | {"id": 2} | bad, GOOD | {"id": 3}]

    with ran(TABLE.format(kind, text), {"t": rows}) as harness:
        assert [row["id"] for row in harness.results("out")] == [1, 3]
        [letter] = harness.dead_letters

    assert reason in letter["message"]
