"""Joins that are rejected, with the exact column and text of each problem."""

from pathlib import Path

import pytest

from tests.unit.tables.sql_runs import problems

HEAD = """\
CREATE TABLE o (id BIGINT, c VARCHAR, f DOUBLE, at TIMESTAMP(3), due TIMESTAMP(3), \
WATERMARK FOR at AS at) WITH (kind = 'file', path = 'o');
CREATE TABLE s (id BIGINT, c VARCHAR, f DOUBLE, at TIMESTAMP(3), WATERMARK FOR at AS at) \
WITH (kind = 'file', path = 's');
CREATE TABLE plain (id BIGINT) WITH (kind = 'file', path = 'plain');
CREATE TABLE keyed (id BIGINT, k BIGINT, PRIMARY KEY (id)) WITH (kind = 'file', path = 'keyed');
CREATE TABLE pair (a BIGINT, b BIGINT, at TIMESTAMP(3), PRIMARY KEY (a, b), \
WATERMARK FOR at AS at) WITH (kind = 'file', path = 'pair');
CREATE TABLE dim (id BIGINT, name VARCHAR, PRIMARY KEY (id)) WITH (kind = 'postgres', \
url = 'postgresql://a@h/d', table = 'dim');
CREATE TABLE out (id BIGINT) WITH (kind = 'file', path = 'out');
"""
VIEW = (
    "CREATE VIEW j AS SELECT o.id, o.at FROM o JOIN s ON o.id = s.id AND s.at >= o.at "
    "AND s.at < o.at + INTERVAL '1' HOUR;\n"
)


def cases():
    """Return queries with their problem, from the file beside this one."""
    text = (Path(__file__).parent / "join_rejections.txt").read_text(encoding="utf-8")
    return [tuple(block.strip().split("\n  ")) for block in text.split("\n\n")[1:]]


@pytest.mark.parametrize(("query", "expected"), cases())
def test_a_join_without_a_bound_or_a_key_is_rejected_at_its_position(query, expected):
    head = HEAD + VIEW + "INSERT INTO out\n"

    [(line, column, text)] = problems(head + query)

    assert line == head.count("\n") + 1
    assert f"{column} {text}" == expected
