"""Files of both forms, in both notations: each key means something, and both make one graph."""

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk.graph import ErrorAction, OperatorKind, RestartKind, RuntimeMode
from tests.unit.pipelines.pipeline_runs import built, graph, lines, run

CONNECTOR = "connector"

SHORT = """
    name = "words"
    description = "Words per minute"
    on_error = "skip"

    [config]
    parallelism = 2
    max_parallelism = 64
    checkpoint_interval_ms = 1000
    max_restarts = 7
    restart_delay_ms = 10
    mode = "batch"
    properties = { team = "a" }

    [source]
    kind = "file"
    path = "in.jsonl"
    format = "jsonl"
    time_field = "at"
    follow = false
    fields = { at = "timestamp", word = "string", n = "int" }

    [time]
    allowed_lateness = "10s"
    idle_timeout = "5s"

    [[steps]]
    operator = "filter"
    field = "word"
    predicate = "starts_with"
    value = "b"

    [window]
    type = "sliding"
    size = "60s"
    slide = "15s"
    offset = "5s"
    keep = "1m"

    [ops]
    count_by = "word"
    agg = "sum"
    agg_field = "n"

    [sink]
    kind = "file"
    out_dir = "out"
    format = "csv"
    roll_bytes = 1000
    roll_after = "5m"
    time_field = "ended"
"""

JOB = """
    name: words
    description: Counts words
    config:
      parallelism: 1
      max_parallelism: 8
      checkpoint_interval_ms: 60000
      max_restarts: 3
      restart_delay_ms: 5000
    vertices:
      - id: source
        name: "Socket Source"
        operator: source
        parallelism: 1
        connector:
          type: socket
          properties: {host: "0.0.0.0", port: "9999"}
      - id: flatmap
        name: "Split Words"
        operator: flatmap
        parallelism: 1
        config: {function: split_words}
      - id: count
        name: "Word Count"
        operator: count
        parallelism: 1
      - id: sink
        name: "Socket Sink"
        operator: sink
        parallelism: 1
        connector:
          type: socket
          properties: {host: "0.0.0.0", port: "9998"}
    edges:
      - {from: source, to: flatmap, partition: forward}
      - {from: flatmap, to: count, partition: hash}
      - {from: count, to: sink}
"""


def connector(found, uid):
    return found.vertex(uid).details[CONNECTOR]


def test_every_key_of_the_short_form_reaches_the_graph():
    found = graph(SHORT)

    assert [vertex.id for vertex in found.vertices] == [
        "source", "source-fields", "time", "filter-1", "key", "window", "window-combine",
        "window-rows", "sink",
    ]  # fmt: skip
    config = found.config
    assert (config.parallelism, config.max_parallelism, config.checkpoint_interval_ms) == (
        2, 64, 1_000,
    )  # fmt: skip
    assert (config.restart_strategy.max_attempts, config.restart_strategy.delay_ms) == (7, 10)
    assert config.mode is RuntimeMode.BATCH
    assert config.properties == {"team": "a"}
    assert connector(found, "source") == {
        "connector_type": "jsonl",
        "properties": {"path": "in.jsonl", "follow": False},
    }
    assert "function" in found.vertex("time").payloads
    assert connector(found, "sink") == {
        "connector_type": "csv_file",
        "properties": {
            "path": "out", "roll_bytes": 1_000, "roll_ms": 300_000, "timestamp_field": "ended",
        },
    }  # fmt: skip
    time = found.vertex("time").details
    assert (time["delay_ms"], time["idle_timeout_ms"]) == (10_000, 5_000)
    window = found.vertex("window").details["window_type"]["Sliding"]
    assert (window["size_ms"], window["slide_ms"], window["offset_ms"]) == (60_000, 15_000, 5_000)
    assert found.vertex("source").on_error.action is ErrorAction.SKIP
    assert found.vertex("filter-1").on_error.action is ErrorAction.SKIP


def test_every_key_of_a_job_file_reaches_the_graph():
    found = graph(JOB, "yaml")

    assert [vertex.id for vertex in found.vertices] == [
        "source", "flatmap", "count-key", "count", "count-rows", "sink",
    ]  # fmt: skip
    assert found.vertex("flatmap").name == "Split Words"
    assert found.vertex("count").parallelism == 1
    assert found.config.max_parallelism == 8
    strategy = found.config.restart_strategy
    assert (strategy.kind, strategy.max_attempts) == (RestartKind.FIXED_DELAY, 3)
    assert connector(found, "source")["properties"] == {"host": "0.0.0.0", "port": 9_999}
    assert connector(found, "sink")["properties"] == {"host": "0.0.0.0", "port": 9_998}
    assert found.vertex("count-key").kind is OperatorKind.KEY_BY


def test_a_vertex_is_told_by_its_line_in_the_file():
    assert graph(JOB, "yaml").vertex("count").location == "p.yaml:23"


def test_no_restarts_is_no_strategy():
    found = graph(SHORT.replace("max_restarts = 7", "max_restarts = 0"))

    assert found.config.restart_strategy.kind is RestartKind.NONE


def test_job_files_of_the_other_system_run_unchanged():
    echo = JOB.replace("flatmap", "map").replace("split_words", "uppercase")
    echo = echo.replace("operator: count", "operator: map")

    for text, expected in (
        (JOB, ["to:1", "be:1", "or:1", "not:1", "to:2", "be:2"]),
        (echo, ["TO BE OR", "NOT TO BE"]),
    ):
        with Harness(built(text, "yaml"), scripted=["source"]) as harness:
            harness.push(["To be or", "not to be"])
            harness.end()
            harness.run()
            assert harness.results("sink") == expected


KAFKA_SHORT = """
    [source]
    kind = "kafka"
    path = "unused"
    time_field = "event_time"
    bootstrap_servers = "localhost:9092"
    topic = "t"
    group_id = "g"
    auto_offset_reset = "latest"
    commit_interval_ms = 1000
    bounded = true
    properties = { "client.id" = "me", "sasl.password" = "env:SECRET" }

    [time]
    allowed_lateness = "5s"

    [window]
    type = "session"
    size = "60s"
    gap = "30s"

    [ops]
    count_by = "word"

    [sink]
    kind = "kafka"
    out_dir = "./out"
    bootstrap_servers = "localhost:9092"
    topic = "t2"
    acks = "all"
    key_field = "key"
    guarantee = "exactly-once"
    transactional_id_prefix = "mine"
    format = "json"
"""


def test_every_key_of_kafka_reaches_the_graph():
    found = graph(KAFKA_SHORT)

    source = connector(found, "source")["properties"]
    assert source["brokers"] == "localhost:9092"
    assert source["topics"] == ["t"]
    assert source["group_id"] == "g"
    assert source["starting_offsets"] == "latest"
    assert source["bounded"] is True
    assert source["properties"]["client.id"] == "me"
    assert source["properties"]["sasl.password"] == {"secret": {"env": "SECRET"}}
    assert found.vertex("source-message").kind is OperatorKind.PROCESS
    sink = connector(found, "sink")["properties"]
    assert (sink["topic"], sink["guarantee"]) == ("t2", "exactly-once")
    assert sink["transactional_id_prefix"] == "mine"
    assert sink["value_format"] == "json"
    assert "properties" not in sink
    assert "key" in found.vertex("sink").payloads
    assert found.vertex("window").details["window_type"]["Session"]["gap_ms"] == 30_000


def test_kafka_keys_may_have_the_names_of_its_clients():
    text = """
        vertices:
          - id: a
            operator: source
            connector:
              type: kafka
              properties:
                bootstrap.servers: b:9092
                topic: t
                group.id: g
                auto.offset.reset: latest
                value.deserializer: json
                client.id: me
          - id: z
            operator: sink
            connector:
              type: kafka
              properties: {brokers: "b:9092", topic: u, delivery.guarantee: exactly-once, acks: -1}
        edges: [{from: a, to: z, partition: rebalance}]
    """

    source = connector(graph(text, "yaml"), "a")["properties"]
    sink = connector(graph(text, "yaml"), "z")["properties"]

    assert (source["brokers"], source["group_id"], source["starting_offsets"]) == (
        "b:9092", "g", "latest",
    )  # fmt: skip
    assert source["value_format"] == "json"
    assert source["properties"] == {"client.id": "me"}
    assert sink["guarantee"] == "exactly-once"
    assert "properties" not in sink


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("forward", "FORWARD"),
        ("rebalance", "REBALANCE"),
        ("broadcast", "BROADCAST"),
        ("shuffle", "SHUFFLE"),
        ("global", "GLOBAL"),
        ("hash", "HASH"),
    ],
)
def test_an_edge_says_which_subtask_gets_a_record(word, kind):
    text = f"""
        vertices:
          - {{id: a, operator: source, connector: {{type: generator, properties: {{count: 3}}}}}}
          - {{id: m, operator: map, config: {{function: reverse}}}}
          - {{id: z, operator: sink, connector: {{type: console}}}}
        edges: [{{from: a, to: m, partition: {word}}}, {{from: m, to: z}}]
    """

    found = graph(text, "yaml")

    assert found.inputs_of("m")[0].partitioning.name == kind


def test_names_of_the_same_operators_may_be_written_together():
    text = """
        vertices:
          - id: a
            operator: source
            connector: {type: generator, properties: {rate_ms: 0, count: 9}}
          - {id: k, operator: keyby}
          - {id: c, operator: count}
          - {id: z, operator: sink, connector: {type: console}}
        edges: [{from: a, to: k, partition: hash}, {from: k, to: c}, {from: c, to: z}]
    """

    counted = run(text, "yaml", sink="z")

    assert {"key": "hello", "count": 2} in counted
    assert len(counted) == 9


def test_the_words_of_the_other_system_do_what_they_say(tmp_path):
    items = ["b a", "", "x,y "]

    def mapped(operator, config):
        text = f"""
            vertices:
              - id: a
                operator: source
                connector: {{type: collection, properties: {{items: {items}}}}}
              - {{id: m, operator: {operator}, config: {config}}}
              - {{id: z, operator: sink, connector: {{type: console}}}}
            edges: [{{from: a, to: m}}, {{from: m, to: z}}]
        """
        return run(text, "yaml", sink="z")

    assert mapped("map", "{function: uppercase}") == ["B A", "", "X,Y "]
    assert mapped("map", "{function: lowercase}") == ["b a", "", "x,y "]
    assert mapped("map", "{function: word_count}")[0] == "b a -> 2 words"
    assert mapped("map", "{function: reverse}")[0] == "a b"
    assert mapped("map", "{}") == ["b a", "", "x,y "]
    assert mapped("flat_map", "{}") == ["b", "a", "x,y"]
    assert mapped("flat_map", "{function: split_lines}") == ["b a", "x,y "]
    assert mapped("flat_map", "{function: split_csv}") == ["b a", "", "x", "y"]
    assert mapped("filter", "{}") == ["b a", "x,y "]
    assert mapped("filter", "{predicate: contains, value: ','}") == ["x,y "]
    assert mapped("filter", "{predicate: starts_with, value: b}") == ["b a"]
    assert mapped("filter", "{predicate: ends_with, value: a}") == ["b a"]
    assert mapped("filter", "{predicate: min_length, value: '4'}") == ["x,y "]
    assert mapped("filter", "{predicate: equals, value: b a}") == ["b a"]
    assert mapped("count", "{}")[0] == "b a:1"


def test_a_window_without_event_time_closes_by_the_clock():
    text = """
        vertices:
          - {id: a, operator: source, connector: {type: collection, properties: {items: [x, y, z]}}}
          - {id: w, operator: window, config: {window_ms: 5000}}
          - {id: z, operator: sink, connector: {type: console}}
        edges: [{from: a, to: w}, {from: w, to: z}]
    """

    assert [row["count"] for row in run(text, "yaml", sink="z")] == [3]


def test_the_same_pipeline_in_yaml_makes_the_same_graph(tmp_path):
    path = lines(tmp_path, {"at": 0, "word": "b"})
    toml = f"""
        [source]
        kind = "file"
        path = "{path}"
        time_field = "at"
        [window]
        size = 60
        [ops]
        count_by = "word"
        [sink]
        kind = "console"
    """
    yaml = f"""
        source: {{kind: file, path: "{path}", time_field: at}}
        window: {{size: 60s}}
        ops: {{count_by: word}}
        sink: {{kind: console}}
    """

    assert graph(toml).to_json() == graph(yaml, "yaml").to_json()
    assert run(toml) == run(yaml, "yaml")
