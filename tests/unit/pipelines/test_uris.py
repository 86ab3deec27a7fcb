"""A source or sink by its URI has the keys that its kind has, with the same errors."""

import jsonschema_rs
import pytest

from bicycle_runtime.pipelines.conversion import pipeline_data
from bicycle_runtime.pipelines.json_schema import pipeline_schema
from tests.unit.pipelines.pipeline_runs import checked, finish, graph
from tests.unit.pipelines.test_problems import problems


def text(source="generator:?count=1", sink="console:", *, more="", below=""):
    return f"""\
[source]
uri = '{source}'
{more}
[sink]
uri = '{sink}'
{below}
"""


def vertices(source, sink, more="{}"):
    return f"""
vertices:
  - {{id: in, operator: source, connector: {{uri: "{source}", properties: {more}}}}}
  - {{id: out, operator: sink, connector: {{uri: "{sink}"}}}}
edges: [{{from: in, to: out}}]
"""


def connector(found, end):
    details = found.vertex(end).details["connector"]
    return details["connector_type"], details["properties"]


@pytest.mark.parametrize(
    ("uri", "word", "properties"),
    [
        (
            "kafka://b:1/x,y?group=g&start=latest&format=json&discovery_ms=1m",
            "kafka",
            {"brokers": "b:1", "topics": ["x", "y"], "group_id": "g",
             "discovery_interval_ms": 60_000, "starting_offsets": "latest", "value_format": "json"},
        ),
        (
            'kafka://b:1/x?group=g&format=json&start={"timestamp_ms": 5}', "kafka",
            {"brokers": "b:1", "topics": ["x"], "group_id": "g", "value_format": "json",
             "starting_offsets": {"timestamp_ms": 5}},
        ),
        (
            "redis://h/a?format=json&password_env=PW", "redis",
            {"address": "redis://h/a", "value_format": "json",
             "password": {"secret": {"env": "PW"}}},
        ),
        ("file:in.csv?follow=true", "csv", {"path": "in.csv", "follow": True}),
        ("file:in.gz?format=text", "text", {"path": "in.gz", "follow": False}),
        ("jsonl:in", "jsonl", {"path": "in", "follow": False}),
    ],
)  # fmt: skip
def test_a_uri_gives_the_options_of_a_source(uri, word, properties):
    assert connector(graph(text(uri)), "source") == (word, properties)


@pytest.mark.parametrize(
    ("uri", "word", "properties"),
    [
        ("csv:out?roll_ms=250", "csv_file", {"path": "out", "roll_ms": 250}),
        ("parquet:out?partition_by=date", "parquet_file",
         {"path": "out", "partition_by": "date", "partition_format": "%Y-%m-%d",
          "partition_field": ""}),
        ("delta:lake?keys=id&mode=upsert", "delta",
         {"path": "lake", "keys": ["id"], "mode": "upsert"}),
        ("https://h/hook?method=PUT", "http", {"url": "https://h/hook", "method": "PUT"}),
        ("console:", "console", {}),
    ],
)  # fmt: skip
def test_a_uri_gives_the_options_of_a_sink(uri, word, properties):
    assert connector(graph(text(sink=uri)), "sink") == (word, properties)


def test_further_keys_are_beside_the_uri():
    further = 'columns = { id = "int" }\nroll_rows = 9'
    found = graph(text("jsonl:in?timestamp_field=at", "duckdb:f?table=t", below=further))

    assert connector(found, "sink")[1] == {
        "path": "f", "table": "t", "columns": [["id", "int"]], "roll_rows": 9,
    }  # fmt: skip
    assert [vertex.id for vertex in found.vertices] == ["source", "time", "sink"]


def test_a_vertex_has_a_uri_too():
    found = graph(vertices("redis://h/a?format=json", "csv:out", "{db: 2}"), "yaml")

    assert connector(found, "in")[1] == {"address": "redis://h/a", "value_format": "json", "db": 2}
    assert connector(found, "out") == ("csv_file", {"path": "out"})


def test_a_pipeline_with_uris_runs(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    finish(text(f"file:{tmp_path}/in.jsonl", f"text:{tmp_path}/out"))

    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert written.count("\n") == 2


def test_a_converted_pipeline_has_kinds_and_keys():
    data = pipeline_data(checked(text("redis://h/a?format=json", "csv:out")), "short")

    assert data["source"] == {"kind": "redis", "address": "redis://h/a", "value_format": "json"}
    assert data["sink"] == {"kind": "file", "path": "out", "format": "csv"}


@pytest.mark.parametrize(
    ("source", "more", "problem"),
    [
        ("redis://h/a?formt=json", "", "unknown key source.formt; did you mean 'format'?"),
        ("redis://h/a?format=jsn", "", "unsupported source.format: jsn; did you mean 'json'?"),
        ("redis://h/a?db=two", "", "source.db is two; expected a whole number"),
        ("redis://h/a?db=1&db=2", "", "source.uri: duplicate option 'db'; set it once"),
        ("kafka://b:1/x", "", "source.group_id must be set for kafka source"),
        ("kafka://b:1", "", "source.uri: brokers or topic are missing"),
        ("kafak://b:1/x", "", "known schemes: csv, file, generator"),
        ("in.csv", "", "source.uri: 'in.csv' has no scheme"),
        ("redis://:pw@h/a", "", "source.uri contains a password"),
        ("jsonl:in?follow=yes", "", "source.follow is yes; expected true or false"),
        ("generator:?count=0.5", "", "source.count is 0.5; expected a whole number"),
        ("redis://[h/a", "", "Invalid IPv6 URL"),
    ],
)
def test_problems_in_a_uri_have_its_location(source, more, problem):
    [found] = problems(text(source, more=more))

    assert problem in found
    assert found.startswith("1:" if "group_id" in problem else "2:")
    assert "pw@" not in found


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('kind = "redis"', "2:7: source.uri and kind are set; use only one"),
        ('address = "redis://h/b"', "source.address is also in the URI; set it once"),
        ('value_format = "csv"', "format and value_format are the same key; use only one"),
        ("pasword = 5", "3:1: unknown key source.pasword; did you mean 'password'?"),
    ],
)
def test_a_key_beside_a_uri_must_not_repeat_it(more, problem):
    [found] = problems(text("redis://h/a?format=json", more=more))

    assert problem in found


def test_a_uri_is_a_text():
    [found] = problems("[source]\nuri = 5\n[sink]\nkind = 'console'\n")

    assert found == "2:7: source.uri is 5; expected a text such as kafka://host:9092/topic"


def test_a_wrong_uri_of_a_vertex_has_its_location():
    found = problems(vertices("redis://h/a?formt=json", "kafka://b:1"), "yaml")

    assert found[0].startswith("3:44: unknown key vertices[0].connector.properties.formt")
    assert found[1].startswith("4:48: vertices[1].connector.uri: the address contains 'b:1'")


def test_the_schema_accepts_a_uri():
    schema = jsonschema_rs.validator_for(pipeline_schema())
    sink = {"kind": "console"}

    assert schema.is_valid({"source": {"uri": "jsonl:in", "time_field": "at"}, "sink": sink})
    assert not schema.is_valid({"source": {"uri": 5}, "sink": sink})
    assert not schema.is_valid({"source": {"uri": "jsonl:in", "kind": "jsonl"}, "sink": sink})
