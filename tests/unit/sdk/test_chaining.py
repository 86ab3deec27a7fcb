import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk.chaining import OptimizedGraph, optimize
from bicycle_sdk.graph import Edge, JobGraph, Partitioning
from tests.unit.sdk.graphs import KIND, graph, pipeline, vertex


def chains(optimized: OptimizedGraph) -> list[tuple[str, ...]]:
    return [chain.operator_ids for chain in optimized.chains]


def test_a_forward_pipeline_is_one_chain():
    found = optimize(pipeline(vertex("a", name="split"), vertex("b", uid="b")))
    (chain,) = found.chains

    assert (chain.id, chain.name) == ("in", "in -> split -> b -> out")
    assert chain.operator_ids == ("in", "a", "b", "out")
    assert chain.operator_uids == (None, None, "b", None)
    assert (chain.is_source, chain.is_sink, chain.task_count) == (True, True, 1)
    assert found.edges == ()
    assert (found.stats.tasks_before, found.stats.tasks_after) == (4, 1)
    assert found.stats.task_reduction_percent == 75.0


def test_another_parallelism_starts_a_chain():
    vertices = [
        vertex("in", KIND.SOURCE),
        vertex("m", parallelism=2),
        vertex("out", KIND.SINK, parallelism=2),
    ]
    rebalance = Edge(source_id="in", target_id="m", partitioning=Partitioning.REBALANCE)
    found = optimize(graph(vertices, rebalance, ("m", "out")))

    assert chains(found) == [("in",), ("m", "out")]
    assert [(e.source_chain_id, e.target_chain_id) for e in found.edges] == [("in", "m")]
    assert [chain.parallelism for chain in found.chains] == [1, 2]


@pytest.mark.parametrize("partitioning", [p for p in Partitioning if p is not Partitioning.FORWARD])
def test_only_forward_edges_are_chained(partitioning):
    edge = Edge(source_id="in", target_id="out", partitioning=partitioning)
    found = optimize(graph([vertex("in", KIND.SOURCE), vertex("out", KIND.SINK)], edge))

    assert chains(found) == [("in",), ("out",)]


@pytest.mark.parametrize(
    "middle",
    [
        vertex("m", chaining_enabled=False),
        vertex("m", slot_sharing_group="heavy"),
    ],
)
def test_a_vertex_that_refuses_chaining_or_slots_stands_alone(middle):
    assert chains(optimize(pipeline(middle))) == [("in",), ("m",), ("out",)]


def test_a_vertex_that_starts_a_chain_goes_on_with_it():
    assert chains(optimize(pipeline(vertex("m", starts_new_chain=True)))) == [
        ("in",),
        ("m", "out"),
    ]


def test_a_fork_ends_a_chain_and_each_branch_starts_one():
    vertices = [
        vertex("in", KIND.SOURCE),
        vertex("fork"),
        vertex("left"),
        vertex("right"),
        vertex("out", KIND.SINK),
        vertex("also", KIND.SINK),
    ]
    found = optimize(
        graph(
            vertices,
            ("in", "fork"),
            ("fork", "left"),
            ("fork", "right"),
            ("left", "out"),
            ("right", "also"),
        )
    )

    assert chains(found) == [("in", "fork"), ("left", "out"), ("right", "also")]
    assert [(e.source_chain_id, e.target_chain_id) for e in found.edges] == [
        ("in", "left"),
        ("in", "right"),
    ]


def test_a_vertex_with_two_inputs_starts_a_chain():
    vertices = [vertex(i, KIND.SOURCE) for i in "ab"] + [vertex("u", KIND.UNION)]
    found = optimize(
        graph([*vertices, vertex("out", KIND.SINK)], ("a", "u"), ("b", "u"), ("u", "out"))
    )

    assert chains(found) == [("a",), ("b",), ("u", "out")]


def test_edges_between_two_chains_are_one_chain_edge():
    vertices = [vertex("in", KIND.SOURCE), vertex("u", KIND.UNION), vertex("out", KIND.SINK)]
    found = optimize(graph(vertices, ("in", "u"), ("in", "u"), ("u", "out")))

    assert [len(edge.edges) for edge in found.edges] == [2]


def test_side_outputs_and_feedback_are_never_chained():
    vertices = [
        vertex("in", KIND.SOURCE),
        vertex("head", KIND.UNION),
        vertex("p", KIND.PROCESS),
        vertex("side", KIND.SIDE_OUTPUT),
        vertex("out", KIND.SINK),
    ]
    tagged = Edge(source_id="p", target_id="side", output_tag="late")
    back = Edge(source_id="side", target_id="head", feedback=True)
    found = optimize(graph(vertices, ("in", "head"), ("head", "p"), tagged, back, ("side", "out")))

    assert chains(found) == [("in",), ("head", "p"), ("side",), ("out",)]


def test_a_loop_into_its_own_chain_stays_an_edge():
    vertices = [vertex("in", KIND.SOURCE), vertex("head", KIND.UNION), vertex("m")]
    back = Edge(source_id="m", target_id="head", feedback=True)
    found = optimize(
        graph(
            [*vertices, vertex("out", KIND.SINK)],
            ("in", "head"),
            ("head", "m"),
            ("m", "out"),
            back,
        )
    )

    assert chains(found) == [("in",), ("head", "m"), ("out",)]
    assert ("head", "head") in {(e.source_chain_id, e.target_chain_id) for e in found.edges}


def test_the_smallest_maximum_of_a_chain_counts():
    found = optimize(
        pipeline(vertex("a", max_parallelism=64), vertex("b", max_parallelism=32), vertex("c"))
    )

    assert found.chains[0].max_parallelism == 32
    assert optimize(pipeline(vertex("a"))).chains[0].max_parallelism is None


def test_slots_are_shared_within_a_group():
    vertices = [
        vertex("in", KIND.SOURCE, parallelism=2),
        vertex("m", parallelism=3),
        vertex("out", KIND.SINK, parallelism=4, slot_sharing_group="heavy"),
    ]
    edges = [
        Edge(source_id=s, target_id=t, partitioning=Partitioning.REBALANCE)
        for s, t in (("in", "m"), ("m", "out"))
    ]
    stats = optimize(graph(vertices, *edges)).stats

    assert (stats.slot_sharing_groups, stats.min_slots_needed) == (2, 7)
    assert stats.min_slots_without_sharing == 9


def test_an_empty_graph_saves_nothing():
    assert optimize(graph([])).stats.task_reduction_percent == 0


def test_the_summary_names_job_numbers_and_chains():
    summary = optimize(pipeline(vertex("m", name="split"))).summary()

    for words in (
        "job",
        "3 -> 1 chains",
        "3 -> 1 (66.7% reduction)",
        "[1] in -> split -> out (p=1)",
    ):
        assert words in summary


def test_a_chain_is_found_by_any_of_its_operators():
    found = optimize(pipeline(vertex("m")))

    assert found.chain_of("m") is found.chain_of("out")
    with pytest.raises(KeyError):
        found.chain_of("gone")


@st.composite
def forward_graphs(draw: st.DrawFn) -> JobGraph:
    """Any graph without cycles, with random settings."""
    count = draw(st.integers(2, 8))
    vertices = [
        vertex(
            f"v{n}",
            parallelism=draw(st.integers(1, 2)),
            chaining_enabled=draw(st.booleans()),
            starts_new_chain=draw(st.booleans()),
        )
        for n in range(count)
    ]
    pairs = st.tuples(st.integers(0, count - 2), st.integers(1, count - 1))
    edges = [
        Edge(
            source_id=f"v{low}",
            target_id=f"v{high}",
            partitioning=draw(st.sampled_from(Partitioning)),
        )
        for low, high in draw(st.lists(pairs, max_size=12))
        if low < high
    ]
    return graph(vertices, *edges)


@given(forward_graphs())
def test_every_operator_is_in_exactly_one_chain_and_every_edge_is_kept(any_graph):
    found = optimize(any_graph)
    operators = [operator for chain in found.chains for operator in chain.operator_ids]
    inside = {
        pair
        for chain in found.chains
        for pair in zip(chain.operator_ids, chain.operator_ids[1:], strict=False)
    }
    between = [edge for chain_edge in found.edges for edge in chain_edge.edges]

    assert sorted(operators) == sorted(v.id for v in any_graph.vertices)
    assert len(inside) + len(between) == len(any_graph.edges)
