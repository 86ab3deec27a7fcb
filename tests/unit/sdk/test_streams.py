import sys
from datetime import timedelta

import pytest

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOFunction,
    DataStream,
    FilterFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RestartStrategy,
    RichAsyncFunction,
    StreamEnvironment,
    dead_letter,
    file_sink,
    retry,
    skip,
)
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.errors import GraphError, PreviewError, StreamDefinitionError
from bicycle_sdk.functions import as_callable
from bicycle_sdk.graph import ErrorAction, JobGraph, OperatorKind, Partitioning, Vertex
from bicycle_sdk.plugin import BuiltJob

SECOND = timedelta(seconds=1)


class Split(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return value.split()


class Count(RichAsyncFunction[str, int]):
    def process(self, value, ctx):
        return [1]


class Route(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        return [value]


class PerKey(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]


class Lookup(AsyncIOFunction[str, str]):
    async def async_invoke(self, value):
        return [value]


class Double(MapFunction[int, int]):
    def map(self, value):
        return value * 2


class Even(FilterFunction[int]):
    def filter(self, value):
        return value % 2 == 0


class Parity(KeySelector[int, int]):
    def get_key(self, value):
        return value % 2


class Add(ReduceFunction[int]):
    def reduce(self, a, b):
        return a + b


@pytest.fixture
def env():
    return StreamEnvironment()


@pytest.fixture
def words(env):
    return env.from_collection(["a", "b"])


def finished(env: StreamEnvironment, *streams: DataStream) -> JobGraph:
    """Return the valid graph after each stream got a sink."""
    for number, stream in enumerate(streams):
        stream.collect(str(number))
    return env.execute("job")


def edge_into(graph: JobGraph, vertex_id: str):
    (edge,) = graph.inputs_of(vertex_id)
    return edge


def only(graph: JobGraph, kind: OperatorKind) -> Vertex:
    (vertex,) = (v for v in graph.vertices if v.kind is kind)
    return vertex


# --- functions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "details"),
    [
        (lambda s: s.map(len), "Map", {}),
        (lambda s: s.flat_map(str.split), "FlatMap", {}),
        (lambda s: s.filter(bool), "Filter", {}),
        (lambda s: s.map_batches(list), "MapBatches", {}),
        (
            lambda s: s.process(Split()),
            "Process",
            {"is_rich": False, "function_kind": "async", "is_keyed": False},
        ),
        (
            lambda s: s.process(Count()),
            "Process",
            {"is_rich": True, "function_kind": "rich", "is_keyed": False},
        ),
        (
            lambda s: s.process_rich(Count()),
            "Process",
            {"is_rich": True, "function_kind": "rich", "is_keyed": False},
        ),
        (
            lambda s: s.process_fn(Route()),
            "Process",
            {"is_rich": False, "function_kind": "process", "is_keyed": False},
        ),
        (
            lambda s: s.async_io_ordered(Lookup(), timeout=SECOND, capacity=7),
            "AsyncIO",
            {
                "ordered": True,
                "timeout_ms": 1_000,
                "capacity": 7,
                "retries": 0,
                "backoff_ms": 0,
            },
        ),
        (
            lambda s: s.async_io_unordered(
                Lookup(), timeout=SECOND, retry=retry(2, backoff=SECOND)
            ),
            "AsyncIO",
            {
                "ordered": False,
                "timeout_ms": 1_000,
                "capacity": 100,
                "retries": 2,
                "backoff_ms": 1_000,
            },
        ),
    ],
)
def test_a_call_adds_one_vertex_with_a_forward_edge(env, words, call, kind, details):
    graph = finished(env, call(words))

    assert [v.kind.value for v in graph.vertices] == ["Source", kind, "Sink"]
    assert graph.vertices[1].details == details
    assert edge_into(graph, "vertex_2").partitioning is Partitioning.FORWARD
    assert "vertex_2/function" in env.payloads


def test_the_function_itself_is_the_payload(env, words):
    function, splitter = (lambda word: word), Split()
    finished(env, words.map(function).uid("mapped").process(splitter))

    assert env.payloads["mapped/function"] is function
    assert env.payloads["vertex_3/function"] is splitter


def test_names_are_those_of_the_functions(env, words):
    graph = finished(env, words.process(Split()).map(len).map(lambda n: n).map(Double()))

    assert [v.name for v in graph.vertices[1:5]] == ["Split", "len", "Map", "Double"]
    assert graph.vertices[1].plugin_function == f"{__name__}.Split"


def test_one_method_classes_stand_wherever_callables_do(env):
    numbers = env.from_collection([1, 2]).map(Double()).filter(Even()).key_by(Parity())
    graph = finished(env, numbers.reduce(Add()))

    found = [env.payloads[f"vertex_{n}/function"] for n in (2, 3, 4, 5)]
    methods = ["map", "filter", "get_key", "reduce"]
    calls = [as_callable(f, m) for f, m in zip(found, methods, strict=True)]
    assert [call(3) for call in calls[:3]] + [calls[3](3, 4)] == [6, False, 1, 7]
    assert [v.kind.value for v in graph.vertices[1:5]] == ["Map", "Filter", "KeyBy", "Reduce"]


def test_calls_in_flight_are_settings_of_the_vertex(env, words):
    graph = finished(
        env,
        words.process_ordered(Split(), timeout=SECOND, capacity=5),
        words.process_unordered(Split(), timeout=SECOND),
        words.process(Split()),
    )

    assert [v.config for v in graph.vertices if v.kind is OperatorKind.PROCESS] == [
        {"ordered": True, "timeout_ms": 1_000, "capacity": 5},
        {"ordered": False, "timeout_ms": 1_000, "capacity": 100},
        {},
    ]


@pytest.mark.parametrize(
    ("timeout", "capacity"), [(timedelta(0), 1), (timedelta(days=8), 1), (SECOND, 0)]
)
def test_bounds_of_calls_in_flight_are_checked(words, timeout, capacity):
    with pytest.raises(StreamDefinitionError):
        words.process_ordered(Split(), timeout=timeout, capacity=capacity)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.map(3),
        lambda s: s.map(None),
        lambda s: s.process(len),
        lambda s: s.process(Split),
        lambda s: s.process_fn(PerKey()),
        lambda s: s.async_io_ordered(Split(), timeout=SECOND),
        lambda s: s.uid(""),
        lambda s: s.uid("a/b"),
        lambda s: s.set_parallelism(0),
        lambda s: s.set_max_parallelism(40_000),
        lambda s: s.union(StreamEnvironment().from_collection(["x"])),
        lambda s: s.on_error("explode"),
        lambda s: s.on_error(skip(), max_error_rate=2),
        lambda s: s.on_error("fail", max_error_rate=0.5),
    ],
)
def test_an_impossible_call_fails_where_it_stands(words, call):
    with pytest.raises(StreamDefinitionError):
        call(words)


# --- keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda k: k.process(Count()),
        lambda k: k.process(Split()),
        lambda k: k.process_ordered(Count(), timeout=SECOND),
        lambda k: k.process_fn(PerKey()),
        lambda k: k.process_fn(Route()),
        lambda k: k.reduce(lambda a, b: a),
        lambda k: k.count(),
        lambda k: k.map(len),
        lambda k: k.filter(bool),
        lambda k: k.union(),
    ],
)
def test_whatever_follows_a_key_gets_a_hash_edge(env, words, call):
    graph = finished(env, call(words.key_by(lambda w: w)))

    assert edge_into(graph, "vertex_2").partitioning is Partitioning.FORWARD
    assert edge_into(graph, "vertex_3").partitioning is Partitioning.HASH


def test_a_sink_after_a_key_gets_a_hash_edge(env, words):
    graph = finished(env, words.key_by(lambda w: w))

    assert edge_into(graph, "vertex_3").partitioning is Partitioning.HASH


@pytest.mark.parametrize(
    ("call", "is_keyed"),
    [
        (lambda k: k.process(Count()), True),
        (lambda k: k.process_fn(PerKey()), True),
        (lambda k: k.process_fn(Route()), True),
        (lambda k: k.process(Split()), False),
    ],
)
def test_only_functions_with_state_work_per_key(env, words, call, is_keyed):
    graph = finished(env, call(words.key_by(lambda w: w)))

    assert only(graph, OperatorKind.PROCESS).details["is_keyed"] is is_keyed


def test_a_second_key_replaces_the_first(env, words):
    graph = finished(env, words.key_by(len).key_by(lambda w: w).count())

    assert [e.partitioning.value for e in graph.edges[:3]] == ["Forward", "Forward", "Hash"]


def test_dropping_the_key_or_choosing_a_strategy_ends_the_hash_edge(env, words):
    keyed = words.key_by(len)
    graph = finished(env, keyed.into_stream(), keyed.rebalance())

    assert edge_into(graph, "vertex_3").partitioning is Partitioning.FORWARD
    assert edge_into(graph, "vertex_4").partitioning is Partitioning.REBALANCE


def test_a_key_has_the_parallelism_of_its_input_unless_set(env, words):
    words.set_parallelism(3)
    graph = finished(env, words.key_by(len).count(), words.key_by(len).set_parallelism(2).count())

    assert [v.parallelism for v in graph.vertices if v.kind is OperatorKind.KEY_BY] == [3, 2]


def run_reduce(env: StreamEnvironment, graph: JobGraph, values: list, key) -> list:
    """Do what a Reduce means, for one vertex of the graph."""
    vertex = only(graph, OperatorKind.REDUCE)
    function = as_callable(env.payloads[f"{vertex.id}/function"], "reduce")
    initial = env.payloads.get(f"{vertex.id}/initial", lambda value: value)
    kept, out = {}, []
    for value in values:
        k = key(value)
        kept[k] = function(kept[k], value) if k in kept else initial(value)
        out.append((k, kept[k]) if vertex.details.get("emits_key") else kept[k])
    return out


def first(pair):
    return pair[0]


def second(pair):
    return pair[1]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda k: k.sum(second), [("a", 3), ("a", 5), ("b", 1), ("a", 9)]),
        (lambda k: k.min(second), [("a", 3), ("a", 2), ("b", 1), ("a", 2)]),
        (lambda k: k.max(second), [("a", 3), ("a", 3), ("b", 1), ("a", 4)]),
        (lambda k: k.count(), [("a", 1), ("a", 2), ("b", 1), ("a", 3)]),
        (lambda k: k.min_by(second), [("a", 3), ("a", 2), ("b", 1), ("a", 2)]),
        (lambda k: k.max_by(second), [("a", 3), ("a", 3), ("b", 1), ("a", 4)]),
        (
            lambda k: k.reduce(lambda a, b: (a[0], a[1] * b[1])),
            [("a", 3), ("a", 6), ("b", 1), ("a", 24)],
        ),
    ],
)
def test_running_aggregations(env, call, expected):
    values = [("a", 3), ("a", 2), ("b", 1), ("a", 4)]
    graph = finished(env, call(env.from_collection(values).key_by(first)))

    assert run_reduce(env, graph, values, first) == expected


def test_min_by_and_max_by_keep_the_earliest_of_equals(env):
    values = [(1, "first"), (1, "second")]
    keyed = env.from_collection(values).key_by(lambda v: 0)
    lowest = finished(env, keyed.min_by(first))

    assert run_reduce(env, lowest, values, lambda v: 0) == [values[0]] * 2


def test_count_of_a_stream_is_one_running_total(env, words):
    graph = finished(env, words.count())
    key = env.payloads[f"{only(graph, OperatorKind.KEY_BY).id}/function"]

    assert run_reduce(env, graph, ["x", "y", "x"], key) == [1, 2, 3]
    assert only(graph, OperatorKind.REDUCE).parallelism == 1


# --- shapes ----------------------------------------------------------------------------------


def test_union_numbers_its_inputs(env, words):
    graph = finished(env, words.union(words.map(str.upper), words))
    union = only(graph, OperatorKind.UNION)

    assert [(e.source_id, e.input_ordinal) for e in graph.inputs_of(union.id)] == [
        ("vertex_1", 0),
        ("vertex_2", 1),
        ("vertex_1", 2),
    ]


def test_a_side_output_is_a_tagged_edge(env, words):
    routed = words.process_fn(Route())
    graph = finished(env, routed.side_output("late"), routed)
    side = only(graph, OperatorKind.SIDE_OUTPUT)

    assert side.details == {"tag": "late"}
    assert edge_into(graph, side.id).output_tag == "late"
    assert edge_into(graph, side.id).source_id == "vertex_2"


def test_only_process_functions_have_side_outputs(env, words):
    with pytest.raises(GraphError) as caught:
        finished(env, words.map(len).side_output("late"))

    assert "'vertex_2' -> 'vertex_3'" in caught.value.facts["problem_text"]


def test_split_sends_records_to_the_named_outputs(env, words):
    split = words.split(lambda word: [word, "all"])
    graph = finished(env, split.select("a"), split.select("all"))

    assert [e.output_tag for e in graph.outputs_of("vertex_2")] == ["a", "all"]
    assert [v.details["tag"] for v in graph.vertices[2:4]] == ["a", "all"]
    assert graph.vertices[2].output_type == "str"


def test_a_loop_is_a_union_with_a_feedback_edge(env):
    loop = env.from_collection([3]).iterate()
    smaller = loop.map(lambda n: n - 1)
    loop.feedback(smaller.filter(lambda n: n > 0))
    graph = finished(env, smaller)
    forward, back = graph.inputs_of("vertex_2")

    assert (forward.source_id, forward.feedback) == ("vertex_1", False)
    assert (back.source_id, back.feedback, back.input_ordinal) == ("vertex_4", True, 1)


@pytest.mark.parametrize(
    ("call", "strategy"),
    [
        ("forward", "Forward"),
        ("rebalance", "Rebalance"),
        ("shuffle", "Shuffle"),
        ("broadcast", "Broadcast"),
        ("global_", "Global"),
    ],
)
def test_a_strategy_is_that_of_the_next_edge_only(env, words, call, strategy):
    graph = finished(env, getattr(words, call)().map(len).map(str))

    assert edge_into(graph, "vertex_2").partitioning.value == strategy
    assert edge_into(graph, "vertex_3").partitioning is Partitioning.FORWARD


def test_an_unset_strategy_rebalances_between_different_parallelisms(env, words):
    graph = finished(env, words.map(len).set_parallelism(2))

    assert edge_into(graph, "vertex_2").partitioning is Partitioning.REBALANCE


def test_an_explicit_forward_between_different_parallelisms_is_refused(env, words):
    with pytest.raises(GraphError) as caught:
        finished(env, words.forward().map(len).set_parallelism(2))

    assert "'vertex_1' -> 'vertex_2'" in caught.value.facts["problem_text"]


# --- environment -----------------------------------------------------------------------------


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
    assert env.set_property("team", "ada").config.properties == {"team": "ada"}


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
        (lambda e: e.socket_source(), "socket", {"host": "0.0.0.0", "port": 9999}, "str"),
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
        (lambda s: s.socket_sink(), "socket", {"host": "0.0.0.0", "port": 9998}),
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


def test_a_preview_without_the_runtime_says_what_to_install(words, monkeypatch):
    monkeypatch.setitem(sys.modules, "bicycle_runtime", None)  # As if it were not installed.
    monkeypatch.delitem(sys.modules, "bicycle_runtime.testing", raising=False)

    with pytest.raises(PreviewError) as caught:
        words.preview(3)

    assert caught.value.facts == {"vertex": "vertex_1"}
