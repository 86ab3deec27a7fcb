"""Names of types of other systems, in CREATE TABLE and in CAST."""

import pytest

from tests.unit.tables.sql_runs import run

TABLES = """\
CREATE TABLE t (v {0}) WITH (kind = 'file', path = 'in');
CREATE TABLE out (v VARCHAR, w VARCHAR) WITH (kind = 'file', path = 'out');
INSERT INTO out SELECT CAST(v AS VARCHAR), CAST(CAST('{1}' AS {0}) AS VARCHAR) FROM t
"""
MOMENT, CLOCK = "2026-01-01T00:00:00Z", "10:00:00"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMESTAMP WITH LOCAL TIME ZONE", MOMENT),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", MOMENT),
        ("TIMESTAMP_LTZ(3)", MOMENT),
        ("TIMESTAMP_NTZ", MOMENT),
        ("TIMESTAMP WITHOUT TIME ZONE", MOMENT),
        ("TIMESTAMP(3) WITH TIME ZONE", MOMENT),
        ("TIME WITHOUT TIME ZONE", CLOCK),
    ],
)
def test_names_of_other_systems_are_types(name, value):
    found = run(TABLES.format(name, value), {"t": [{"v": value}]}, "out")

    assert found == [{"v": value, "w": value}]
