import sys
from datetime import timedelta

import pytest

from bicycle_sdk import (
    RestartStrategy,
    StreamEnvironment,
    dead_letter,
    file_sink,
    retry,
)
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.errors import GraphError, PreviewError, StreamDefinitionError
from bicycle_sdk.graph import ErrorAction, JobGraph, RuntimeMode
from bicycle_sdk.plugin import BuiltJob
from tests.unit.sdk.jobs import finished

SECOND = timedelta(seconds=1)


def test_ids_count_the_calls_and_uids_replace_them(env, words):
    graph = finished(env, words.uid("in").map(len))

    assert [v.id for v in graph.vertices] == ["in", "vertex_2", "vertex_3"]
    assert [(e.source_id, e.target_id) for e in graph.edges] == [
        ("in", "vertex_2"),
        ("vertex_2", "vertex_3"),
    ]
    assert env.payloads["in/items"] == ["a", "b"]


def test_a_uid_that_is_used_twice_names_both_vertices(env, words):
    with pytest.raises(GraphError) as caught:
        finished(env, words.uid("x").map(len).uid("x"))

    (problem,) = caught.value.facts["problems"]
    assert "vertex_1" in problem
    assert "vertex_2" in problem
    assert "'x'" in problem


def test_a_uid_that_is_another_vertex_id_is_refused(env, words):
    with pytest.raises(GraphError):
        finished(env, words.map(len).uid("vertex_1"))


def test_settings_come_from_builder_or_setters():
    strategy = RestartStrategy.none()
    built = StreamEnvironment.builder().parallelism(2).max_parallelism(8)
    env = built.checkpoint_interval(30_000).restart_strategy(strategy).build()
    other = StreamEnvironment().set_parallelism(2).set_max_parallelism(8)
    other.set_checkpoint_interval(30_000).set_restart_strategy(strategy)

    assert env.config == other.config
    assert (env.config.parallelism, env.config.checkpoint_interval_ms) == (2, 30_000)
    assert env.set_runtime_mode("batch").config.mode is RuntimeMode.BATCH
    assert built.runtime_mode("batch").build().config == env.config
    assert env.set_property("team", "ada").config.properties == {"team": "ada"}


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.set_runtime_mode("fast"),
        lambda env: env.set_parallelism("4"),
        lambda env: env.set_checkpoint_interval(1.5),
        lambda env: env.set_checkpoint_interval(86_400_001),
        lambda env: env.set_property("team", 5),
        lambda env: env.set_property("", "ada"),
        lambda env: env.add_source("in.txt"),
    ],
)
def test_an_impossible_setting_is_refused_where_it_stands(env, call):
    with pytest.raises(StreamDefinitionError):
        call(env)


def test_the_default_parallelism_holds_where_none_is_set(env, words):
    words.map(len).set_parallelism(1).print()
    env.set_parallelism(4)

    assert [v.parallelism for v in env.execute("job").vertices] == [4, 1, 4]


def test_parallelism_over_the_maximum_is_refused(env, words):
    env.set_max_parallelism(2)

    with pytest.raises(GraphError) as caught:
        finished(env, words.map(len).set_parallelism(3))

    assert "'vertex_2'" in caught.value.facts["problem_text"]


def test_execute_names_the_job_and_submits_nothing(env, words):
    words.print()

    assert env.execute("letters").name == "letters"
    assert env.job_name == "letters"
    assert JobGraph.from_json(env.execute_and_serialize("letters")) == env.build_graph("letters")


def test_execute_optimized_returns_the_chains(env, words):
    words.map(len).print()
    graph, optimized = env.execute_optimized("job")

    assert optimized.graph == graph
    assert [chain.operator_ids for chain in optimized.chains] == [
        ("vertex_1", "vertex_2", "vertex_3")
    ]


def test_settings_of_a_vertex_are_in_the_graph(env, words):
    stream = words.map(len).name("lengths").set_parallelism(2).set_max_parallelism(16)
    stream.slot_sharing_group("heavy").disable_chaining().start_new_chain()
    stream.on_error(retry(3, backoff=SECOND).then(dead_letter()), max_error_rate=0.25)
    vertex = finished(env, stream).vertex("vertex_2")

    assert (vertex.name, vertex.parallelism, vertex.max_parallelism) == ("lengths", 2, 16)
    assert (vertex.slot_sharing_group, vertex.chaining_enabled) == ("heavy", False)
    assert vertex.starts_new_chain
    assert vertex.on_error.action is ErrorAction.DEAD_LETTER
    assert (vertex.on_error.retries, vertex.on_error.backoff_ms) == (3, 1_000)
    assert vertex.on_error.max_error_rate == 0.25


@pytest.mark.parametrize(
    ("add", "word", "properties", "output_type"),
    [
        (lambda e: e.from_collection([1]), "collection", {}, "int"),
        (lambda e: e.from_collection([1, "a"]), "collection", {}, None),
        (lambda e: e.from_collection([(1, "a")]), "collection", {}, None),
        (lambda e: e.generator_source(), "generator", {"rate_ms": 100}, "str"),
        (
            lambda e: e.generator_source(0, count=3),
            "generator",
            {"rate_ms": 0, "count": 3},
            "str",
        ),
        (lambda e: e.socket_source(), "socket", {"host": "127.0.0.1", "port": 9999}, "str"),
        (
            lambda e: e.read_text("a/*.txt", follow=True),
            "text",
            {"path": "a/*.txt", "follow": True},
            "str",
        ),
        (
            lambda e: e.read_jsonl("a"),
            "jsonl",
            {"path": "a", "follow": False},
            "dict[str, Any]",
        ),
        (
            lambda e: e.read_jsonl("a", type=BuiltJob),
            "jsonl",
            {"path": "a", "follow": False},
            "bicycle_sdk.plugin.BuiltJob",
        ),
        (lambda e: e.read_csv("a"), "csv", {"path": "a", "follow": False}, "dict[str, str]"),
        (
            lambda e: e.add_source(SourceDescriptor(connector_type="mine", properties={"x": 1})),
            "mine",
            {"x": 1},
            None,
        ),
    ],
)
def test_sources(env, add, word, properties, output_type):
    vertex = finished(env, add(env)).vertices[0]

    assert vertex.details == {"connector": {"connector_type": word, "properties": properties}}
    assert vertex.output_type == output_type


@pytest.mark.parametrize(
    ("add", "word", "properties"),
    [
        (lambda s: s.print(), "console", {}),
        (lambda s: s.socket_sink(), "socket", {"host": "127.0.0.1", "port": 9998}),
        (lambda s: s.collect("x"), "collect", {"name": "x"}),
        (lambda s: s.sink_to(file_sink("d")), "jsonl_file", {"path": "d"}),
        (
            lambda s: s.sink_to(file_sink("d", format="csv", roll_bytes=5, roll_ms=6)),
            "csv_file",
            {"path": "d", "roll_bytes": 5, "roll_ms": 6},
        ),
        (lambda s: s.sink_to(file_sink("d", format="text")), "text_file", {"path": "d"}),
        (lambda s: s.sink_to(SinkDescriptor(connector_type="mine")), "mine", {}),
    ],
)
def test_sinks(env, words, add, word, properties):
    add(words).uid("end")

    assert env.execute("job").vertex("end").details == {
        "connector": {"connector_type": word, "properties": properties}
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda: file_sink("d", format="xml"),
        lambda: file_sink("d", roll_bytes=0),
        lambda: StreamEnvironment().socket_source(port=70_000),
        lambda: StreamEnvironment().generator_source(-1),
        lambda: StreamEnvironment().set_checkpoint_interval(0),
    ],
)
def test_connector_settings_out_of_bounds_fail_where_they_stand(call):
    with pytest.raises(StreamDefinitionError):
        call()


def test_a_preview_is_run_by_what_an_entry_point_names(words, tmp_path, monkeypatch):
    info = tmp_path / "another_runtime-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another_runtime\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bicycle.previews]\nanother = another_runtime:run\n")
    code = "def run(draft, vertex_id, n):\n    return [len(draft.vertices), vertex_id, n]\n"
    (tmp_path / "another_runtime.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert words.preview(3) == [1, "vertex_1", 3]


@pytest.mark.parametrize("count", ["3", -1, 2.0, None])
def test_a_preview_of_a_wrong_number_of_records_is_an_error(words, count):
    with pytest.raises(StreamDefinitionError) as caught:
        words.preview(count)

    assert caught.value.facts["call"] == "preview"


def test_a_preview_without_the_runtime_says_what_to_install(words, monkeypatch):
    monkeypatch.setattr(sys, "path", [])  # As if nothing were installed.

    with pytest.raises(PreviewError) as caught:
        words.preview(3)

    assert caught.value.facts == {"vertex": "vertex_1"}
