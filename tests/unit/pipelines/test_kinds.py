"""Every connector of the installation is a kind of pipelines, with all its options as keys."""

import json

import jsonschema_rs
import pytest

from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.endpoints.catalog import find_connector
from bicycle_runtime.endpoints.sinks import SINKS
from bicycle_runtime.endpoints.sources import SOURCES
from bicycle_runtime.pipelines.json_schema import pipeline_schema
from bicycle_sdk.options import describe
from bicycle_sdk.secrets import Secret
from tests.unit.pipelines.pipeline_runs import finish, graph, lines, run
from tests.unit.pipelines.test_problems import problems

ENDS = [("source", word) for word in default_registry().sources] + [
    ("sink", word) for word in default_registry().sinks
]
GENERATOR = 'kind = "generator"\ncount = 1'
CONSOLE = 'kind = "console"'


def text(*, source=GENERATOR, sink=CONSOLE):
    return f"[source]\n{source}\n[sink]\n{sink}\n"


def connector(end, **ends):
    details = graph(text(**ends)).vertex(end).details["connector"]
    return details["connector_type"], details["properties"]


@pytest.mark.parametrize(("direction", "word"), ENDS)
def test_every_option_of_every_connector_is_a_key(direction, word):
    kinds = SOURCES if direction == "source" else SINKS
    options = {info.name for info in describe(find_connector(direction, word).options_class)}
    keys = set(kinds[word].__struct_encode_fields__)

    assert options - keys <= kinds[word].aliases.keys()
    assert word in list(kinds)


@pytest.mark.parametrize(
    ("keys", "properties"),
    [
        (
            'kind = "redis"\naddress = "redis://h/a,b"\nformat = "json"\npassword = "env:PW"\n'
            'group = "g"\nretry_timeout_ms = "5s"\ndb = 2',
            {"address": "redis://h/a,b", "value_format": "json", "group": "g", "db": 2,
             "password": Secret.env("PW").to_json(), "retry_timeout_ms": 5_000},
        ),
        (
            'kind = "pulsar"\naddress = "pulsar://h/a"\ngroup = "g"\ntoken = "file:/run/t"',
            {"address": "pulsar://h/a", "group": "g", "token": Secret.file("/run/t").to_json()},
        ),
        (
            'kind = "websocket"\naddress = "ws://h:1/a"\nlisten = true\njournal = "true"\n'
            'ping_interval_ms = 250\nsegment_bytes = "1MiB"',
            {"address": "ws://h:1/a", "listen": True, "journal": True, "ping_interval_ms": 250,
             "segment_bytes": 1 << 20},
        ),
        ('kind = "stdio"\naddress = "stdio:///a"', {"address": "stdio:///a"}),
        (
            'kind = "jsonl"\npath = "x"\nrecursive = true',
            {"path": "x", "follow": False, "recursive": True},
        ),
        (
            'kind = "kafka"\nbrokers = "b:1"\ntopics = ["a", "b"]\ngroup_id = "g"\n'
            'start = "latest"\nvalue_format = "string"\ndiscovery_interval_ms = "1m"',
            {"brokers": "b:1", "topics": ["a", "b"], "group_id": "g", "value_format": "string",
             "starting_offsets": "latest", "discovery_interval_ms": 60_000},
        ),
    ],
)  # fmt: skip
def test_options_of_sources_reach_the_graph(keys, properties):
    assert connector("source", source=keys) == (keys.split('"')[1], properties)


@pytest.mark.parametrize(
    ("keys", "word", "properties"),
    [
        (
            'kind = "redis"\naddress = "redis://h/a"\nmax_length = 9\npublish_timeout_ms = "2m"',
            "redis", {"address": "redis://h/a", "max_length": 9, "publish_timeout_ms": 120_000},
        ),
        ('kind = "socket_stream"\naddress = "socket://h:1/a"\nheads = true', "socket",
         {"host": "h", "port": 1, "stream": "a", "heads": True}),
        ('kind = "csv_file"\nout_dir = "o"\nroll_ms = 250', "csv_file",
         {"path": "o", "roll_ms": 250}),
        ('kind = "file"\nout_dir = "o"\nroll_after = 250', "jsonl_file",
         {"path": "o", "roll_ms": 250_000}),
        ('kind = "parquet"\npath = "o"\nmax_bytes = "64KiB"\nopen_bytes_max = 9', "parquet_file",
         {"path": "o", "roll_bytes": 65_536, "open_bytes_max": 9}),
        ('kind = "kafka"\nbrokers = "b:1"\ntopic = "t"\npublish_timeout_ms = "5m"\nacks = "all"',
         "kafka", {"brokers": "b:1", "topic": "t", "publish_timeout_ms": 300_000}),
        ('kind = "delta"\npath = "o"', "delta", {"path": "o"}),
        ('kind = "duckdb"\npath = "o"\ntable = "t"', "duckdb", {"path": "o", "table": "t"}),
    ],
)  # fmt: skip
def test_options_of_sinks_reach_the_graph(keys, word, properties):
    assert connector("sink", sink=keys) == (word, properties)


def test_a_file_sink_without_a_directory_is_the_console_whatever_its_other_keys():
    keys = 'kind = "file"\nmax_bytes = 1000\nroll_after = "5m"\ntime_field = "at"'

    assert connector("sink", sink=keys) == ("console", {})


def test_a_format_with_a_schema_is_named_on_any_stream(tmp_path):
    (tmp_path / "order.avsc").write_text('{"type": "long"}')
    avro = f'format = "avro"\nschema = "{tmp_path}/order.avsc"'
    kafka = 'kind = "kafka"\nbrokers = "b:1"\ntopic = "t"\ngroup_id = "g"\n'
    _, read = connector("source", source=kafka + avro)
    _, written = connector("sink", sink='kind = "redis"\naddress = "redis://h/a"\n' + avro)

    expected = {"value_format": "avro", "value_format_options": {"schema": {"type": "long"}}}
    assert read.items() >= expected.items()
    assert written.items() >= expected.items()


KAFKA = 'kind = "kafka"\nbrokers = "b:1"\ntopic = "t"\n'
REDIS = 'kind = "redis"\naddress = "redis://h/a"\n'


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (REDIS + 'pasword = "x"', "6:1: unknown key sink.pasword; did you mean 'password'?"),
        (REDIS + 'password = "x"', "6:12: sink.password is a secret; set its location"),
        (REDIS + 'format = "jsn"', "6:10: unsupported sink.format: jsn; did you mean 'json'?"),
        (REDIS + 'format = "avro"', "6:10: sink.format: the format 'avro' needs a schema"),
        (REDIS + 'format = "json"\nschema = "x"', "7:10: sink.schema: the format 'json' has no"),
        (REDIS + 'format = "json"\nvalue_format = "csv"', "format and value_format are the same"),
        (REDIS + 'publish_timeout_ms = "1ms"', "6:22: sink.publish_timeout_ms is 1ms; expected "),
        (REDIS + 'publish_timeout_ms = "1 week"', "expected a time such as 250ms"),
        (REDIS.replace("//h", "//:pw@h"), "5:11: sink.address contains a password"),
        ('kind = "file"\nout_dir = "o"\nformat = "text"\ntime_field = "t"', "lines of text have"),
        (KAFKA + "acks = 1", "7:8: sink.acks is 1; acks=all is always used"),
        (KAFKA + "acks = 0", "7:8: sink.acks is 0; acks=all is always used"),
        (
            KAFKA + 'properties = { acks = "1" }',
            "7:23: sink.properties.acks cannot be set; remove it: acks=all is always used",
        ),
        (
            KAFKA + '"enable.idempotence" = false',
            "7:24: sink.properties.enable.idempotence cannot be set; remove it: producers are",
        ),
        ('kind = "duckdb"\npath = "o"\ntable = "t"\ncolumns = {}', "7:11: sink.columns is empty"),
        (
            'kind = "duckdb"\npath = "o"\ntable = "t"\ncolumns = {a = "int"}\nkeys = ["b"]',
            "8:9: sink.keys[0] is b, which is not a column",
        ),
        ('kind = "redis"', "sink.address must be set for redis sink"),
        ('kind = "reids"', "unsupported sink kind: reids; did you mean 'redis'?"),
    ],
)
def test_problems_of_derived_keys_have_their_location(keys, problem):
    [found] = problems(f'[source]\nkind = "generator"\n[sink]\n{keys}\n')

    assert problem in found
    assert "pw@" not in found


def test_the_schema_accepts_aliases_and_refuses_unknown_keys():
    schema = jsonschema_rs.validator_for(pipeline_schema())
    source = {"kind": "generator"}
    sink = {"kind": "kafka", "bootstrap.servers": "b", "topic": "t", "client.id": "me"}

    assert schema.is_valid({"source": source, "sink": sink})
    assert not schema.is_valid({"source": source, "sink": {**sink, "topik": "t"}})
    assert not schema.is_valid({"source": source, "sink": {"kind": "kafka", "topic": "t"}})


@pytest.mark.parametrize(
    ("word", "is_valid"),
    [("decimal(12,2)", True), ("decimal", True), ("string", True), ("decimal(12,2)?", False),
     ("decimal()", False), ("strin", False)],
)  # fmt: skip
def test_the_schema_accepts_the_types_of_columns(word, is_valid):
    schema = jsonschema_rs.validator_for(pipeline_schema())
    sink = {"kind": "parquet", "path": "o", "columns": {"cents": word}}

    assert schema.is_valid({"source": {"kind": "generator"}, "sink": sink}) is is_valid


def test_a_stream_file_is_written_and_read(tmp_path):
    address = f'address = "file://{tmp_path}/out.ss/clicks"\nformat = "json"'
    path = lines(tmp_path, {"page": "/", "n": 1}, {"page": "/cart", "n": 2})
    finish(text(source=f'kind = "file"\npath = "{path}"', sink=f'kind = "stream_file"\n{address}'))

    found = run(text(source=f'kind = "stream_file"\nbounded = true\n{address}'))
    assert sorted(map(json.dumps, found)) == [
        '{"page": "/", "n": 1}', '{"page": "/cart", "n": 2}',
    ]  # fmt: skip


@pytest.mark.parametrize(("stream", "has_times"), [("", False), ('stream = "a"\n', True)])
def test_lines_of_a_socket_have_event_times_if_they_are_a_stream(stream, has_times):
    window = '[window]\ntype = "session"\ngap = "5m"\n[ops]\ncount_by = "k"\n[time]\n'

    found = problems(window + text(source=f'kind = "socket"\nport = 1\n{stream}'))

    assert any("'source' has no event time" in each for each in found) is not has_times
