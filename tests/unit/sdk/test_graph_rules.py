import pytest

from bicycle_sdk.errors import GraphError
from bicycle_sdk.graph import (
    Edge,
    ErrorAction,
    ErrorPolicy,
    JobGraph,
    OperatorKind,
    Partitioning,
    RestartStrategy,
)
from tests.unit.sdk.graphs import KIND, graph, pipeline, vertex

SKIPPED = ErrorPolicy(action=ErrorAction.SKIP)
RETRIED = ErrorPolicy(action=ErrorAction.SKIP, retries=2)


def problems(any_graph: JobGraph) -> list[str]:
    with pytest.raises(GraphError) as caught:
        any_graph.validate()
    return caught.value.facts["problems"]


def hash_edge(source: str, target: str) -> Edge:
    return Edge(source_id=source, target_id=target, partitioning=Partitioning.HASH)


def keyed(kind: OperatorKind, *, edge: Edge, **fields) -> JobGraph:
    """Return in -> key -(edge)-> work -> out."""
    vertices = [
        vertex("in", KIND.SOURCE),
        vertex("key", KIND.KEY_BY),
        vertex("work", kind, **fields),
        vertex("out", KIND.SINK),
    ]
    return graph(vertices, ("in", "key"), edge, ("work", "out"))


def test_a_pipeline_is_valid():
    pipeline(vertex("m")).validate()


def test_several_pipelines_are_one_valid_job():
    vertices = [vertex(i, KIND.SOURCE) for i in "ab"] + [vertex(i, KIND.SINK) for i in "cd"]

    graph(vertices, ("a", "c"), ("b", "d")).validate()


def test_an_empty_graph_lacks_source_and_sink():
    assert [text[:9] for text in problems(graph([]))] == ["no source", "no sink a"]


def test_all_problems_are_told_at_once():
    assert len(problems(graph([vertex("m", parallelism=0)]))) == 5


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (pipeline(vertex("m"), vertex("m")), ["2 vertices", "'m'"]),
        (pipeline(vertex("m", uid="u"), vertex("n", uid="u")), ["'m', 'n'", "'u'"]),
        (
            graph(
                [vertex("in", KIND.SOURCE), vertex("out", KIND.SINK)],
                ("in", "out"),
                ("in", "gone"),
            ),
            ["'gone'", "'in'", "not found"],
        ),
        (
            graph(
                [vertex("in", KIND.SOURCE), vertex("out", KIND.SINK)],
                ("in", "out"),
                ("gone", "out"),
            ),
            ["'gone'", "'out'", "not found"],
        ),
        (graph([vertex("m"), vertex("out", KIND.SINK)], ("m", "out")), ["no source", "'m'"]),
        (graph([vertex("in", KIND.SOURCE), vertex("m")], ("in", "m")), ["no sink", "'m'"]),
        (pipeline(vertex("m", parallelism=-1)), ["'m'", "-1"]),
        (pipeline(vertex("m", parallelism=5), max_parallelism=4), ["'m'", "5", "4"]),
        (pipeline(vertex("m", parallelism=5, max_parallelism=4)), ["'m'", "5", "4"]),
        (pipeline(vertex("m", max_parallelism=40_000)), ["'m'", "40000", "32768"]),
        (pipeline(vertex("m"), max_parallelism=40_000), ["job", "40000", "32768"]),
        (pipeline(vertex("m", parallelism=2)), ["'in' -> 'm'", "1", "2"]),
        (pipeline(vertex("m"), restart_strategy=RestartStrategy(max_attempts=-1)), ["-1"]),
        (pipeline(vertex("m"), restart_strategy=RestartStrategy(delay_ms=-5)), ["-5"]),
        (pipeline(vertex("m", KIND.UNION, on_error=SKIPPED)), ["'m'", "Union", "on_error"]),
        (
            graph(
                [vertex("in", KIND.SOURCE, on_error=RETRIED), vertex("out", KIND.SINK)],
                ("in", "out"),
            ),
            ["'in'", "retry"],
        ),
        (
            keyed(KIND.REDUCE, edge=Edge(source_id="key", target_id="work")),
            ["'work'", "'key'", "Hash"],
        ),
        (
            keyed(
                KIND.PROCESS,
                edge=Edge(source_id="key", target_id="work"),
                details={"is_rich": True, "is_keyed": True},
            ),
            ["'work'", "'key'", "Hash"],
        ),
        (
            graph([vertex("in", KIND.SOURCE), vertex("out", KIND.SINK)], hash_edge("in", "out")),
            ["'in' -> 'out'", "Source"],
        ),
        (
            graph(
                [vertex("in", KIND.SOURCE), vertex("out", KIND.SINK)],
                ("in", "out"),
                Edge(source_id="in", target_id="out", output_tag="late"),
            ),
            ["'in' -> 'out'", "'late'"],
        ),
    ],
)
def test_a_broken_rule_names_the_vertices(broken, named):
    assert any(all(word in text for word in named) for text in problems(broken))


def test_an_operator_that_leads_nowhere_is_named():
    vertices = [vertex("in", KIND.SOURCE), vertex("m"), vertex("out", KIND.SINK)]

    assert problems(graph(vertices, ("in", "out"), ("in", "m"))) == [
        "the output of 'm' has no consumer"
    ]


def test_a_source_that_leads_nowhere_is_named():
    vertices = [vertex("a", KIND.SOURCE), vertex("b", KIND.SOURCE), vertex("out", KIND.SINK)]

    assert problems(graph(vertices, ("a", "out"))) == ["the output of 'b' has no consumer"]


def test_an_operator_that_no_source_reaches_is_named():
    vertices = [vertex("in", KIND.SOURCE), vertex("m"), vertex("out", KIND.SINK)]

    assert problems(graph(vertices, ("in", "out"), ("m", "out"))) == [
        "'m' is not reachable from any source"
    ]


def test_a_side_output_may_be_read_twice_and_the_main_output_not_at_all():
    vertices = [
        vertex("in", KIND.SOURCE),
        vertex("split", KIND.PROCESS),
        vertex("a", KIND.SIDE_OUTPUT),
        vertex("b", KIND.SIDE_OUTPUT),
        vertex("out", KIND.SINK),
    ]
    tagged = [Edge(source_id="split", target_id=t, output_tag="late") for t in ("a", "b")]

    graph(vertices, ("in", "split"), *tagged, ("a", "out"), ("b", "out")).validate()


def loop(*, feedback: bool) -> JobGraph:
    vertices = [vertex("in", KIND.SOURCE), vertex("head", KIND.UNION), vertex("m")]
    back = Edge(source_id="m", target_id="head", feedback=feedback)
    return graph(
        [*vertices, vertex("out", KIND.SINK)], ("in", "head"), ("head", "m"), ("m", "out"), back
    )


def test_a_cycle_needs_a_feedback_edge():
    loop(feedback=True).validate()

    assert problems(loop(feedback=False)) == [
        "vertices 'head', 'm' form a cycle without a feedback edge"
    ]


def test_a_loop_that_reaches_no_sink_is_named():
    vertices = [vertex("in", KIND.SOURCE), vertex("head", KIND.UNION), vertex("out", KIND.SINK)]
    back = Edge(source_id="head", target_id="head", feedback=True)

    assert problems(graph(vertices, ("in", "out"), ("in", "head"), back)) == [
        "the output of 'head' forms a loop and reaches no sink"
    ]
