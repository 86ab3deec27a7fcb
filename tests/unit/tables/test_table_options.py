"""Options that are tables of names and values, such as headers and properties of a client."""

import pytest

from tests.unit.tables.sql_runs import graph, problems

FILE = """\
CREATE TABLE t (id BIGINT, v VARCHAR) WITH (kind = 'file', path = 'in');
CREATE TABLE out (id BIGINT, v VARCHAR) WITH ({}, {});
INSERT INTO out SELECT id, v FROM t
"""
KAFKA = "kind = 'kafka', topic = 'bids', brokers = 'host:9092'"
HTTP = "kind = 'http', url = 'https://host/hook'"


def options_of_sink(connector, more):
    vertices = graph(FILE.format(connector, more)).vertices
    [found] = [
        each.details["connector"]["properties"]
        for each in vertices
        if each.details.get("connector", {}).get("connector_type") in ("kafka", "http")
    ]
    return found


@pytest.mark.parametrize(
    ("connector", "more", "option", "expected"),
    [
        (KAFKA, "'linger.ms' = '5'", "properties", {"linger.ms": "5"}),
        (KAFKA, "properties.linger.ms = 5", "properties", {"linger.ms": "5"}),
        (
            KAFKA,
            "'client.id' = 'me', 'properties.sasl.password' = 'env:KAFKA'",
            "properties",
            {"client.id": "me", "sasl.password": {"secret": {"env": "KAFKA"}}},
        ),
        (
            HTTP,
            "headers.Accept = 'text/plain', 'secret_headers.Authorization' = 'env:TOKEN'",
            "headers",
            {"Accept": "text/plain", "Authorization": {"secret": {"env": "TOKEN"}}},
        ),
    ],
)
def test_items_of_tables_are_options(connector, more, option, expected):
    assert options_of_sink(connector, more)[option] == expected


@pytest.mark.parametrize(
    ("connector", "more", "column", "text"),
    [
        (
            KAFKA,
            "linger.ms = 5, properties.linger.ms = 6",
            117,
            "properties.linger.ms is set twice",
        ),
        (KAFKA, "sink.paralelism = 5", 102, "unknown key out.sink.paralelism"),
        (KAFKA, "properties.group.id = 'g'", 102, "write group_id = '…'"),
        (KAFKA, "sasl.password = 'x'", 118, "set its location: env:NAME or file:PATH"),
        (HTTP, "header.Accept = 'x'", 89, "unknown key out.header.Accept; did you mean 'headers'?"),
        (HTTP, "secret_headers.Authorization = 'x'", 120, "env:NAME"),
    ],
)
def test_other_names_are_errors_at_their_position(connector, more, column, text):
    [(line, at, found)] = problems(FILE.format(connector, more))

    assert (line, at) == (2, column)
    assert text in found
