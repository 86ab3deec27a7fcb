"""Statements that are rejected, with the exact position and text of each problem."""

from pathlib import Path

import pytest

from bicycle_runtime.tables.errors import SQL_INVALID
from tests.raising import raises
from tests.unit.tables.sql_runs import graph, problems

TABLES = """\
CREATE TABLE bids (auction BIGINT NOT NULL, price BIGINT, bidder VARCHAR, at TIMESTAMP(3), \
tags JSON, list BIGINT[], d DOUBLE, WATERMARK FOR at AS at - INTERVAL '4' SECOND) \
WITH (kind = 'file', path = 'in');
CREATE TABLE asks (auction BIGINT, price DECIMAL(10, 2), at TIMESTAMP(3)) \
WITH (kind = 'file', path = 'in2');
CREATE TABLE hot (auction BIGINT, price DOUBLE) WITH (kind = 'file', path = 'out');
"""
LINES_BEFORE = TABLES.count("\n")


def cases():
    """Return statements with their problems, from the file beside this one."""
    text = (Path(__file__).parent / "rejections.txt").read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.split("\n\n")[1:]]
    return [(block[0], [line.strip() for line in block[1:]]) for block in blocks]


@pytest.mark.parametrize(("statement", "expected"), cases())
def test_a_wrong_statement_is_rejected_at_its_position(statement, expected):
    found = problems(TABLES + statement)

    assert [f"{line - LINES_BEFORE}:{column} {text}" for line, column, text in found] == expected


def test_there_are_many_rejections():
    assert len(cases()) >= 60


def test_all_problems_of_a_file_are_reported_at_once_in_order():
    text = f"""{TABLES}
        INSERT INTO hot SELECT auctoin, price FROM bids;
        CREATE TABLE t (a BIGNIT) WITH (kind = 'file', path = 'x');
        INSERT INTO hot SELECT auction, price FROM bidz;
    """

    with raises(SQL_INVALID) as caught:
        graph(text)

    assert caught.value.facts["count_text"] == "3 problems"
    assert [each["line"] for each in caught.value.facts["problems"]] == [5, 6, 7]
    assert "v.sql:5:32: there is no column 'auctoin'" in caught.value.facts["listing"]


def test_positions_count_lines_and_characters_of_the_file():
    text = f"{TABLES}\n-- ä comment; with a semicolon\nINSERT INTO hot\n  SELECT 'ä', ß FROM bids"

    [(line, column, _)] = problems(text)

    assert (line, column) == (LINES_BEFORE + 4, 15)


def test_a_file_without_an_insert_has_nothing_to_run():
    assert [text for _, _, text in problems(TABLES)] == [
        "the file has no INSERT INTO … SELECT, so nothing to run"
    ]


def test_a_long_chain_of_conditions_is_no_error():
    condition = " OR ".join(f"auction = {at}" for at in range(1_500))

    assert problems(f"{TABLES}INSERT INTO hot SELECT auction, d FROM bids WHERE {condition}") == []


def test_a_long_chain_of_queries_is_no_error():
    query = " UNION ALL ".join(["SELECT auction, d FROM bids"] * 1_100)

    assert problems(f"{TABLES}INSERT INTO hot {query}") == []
