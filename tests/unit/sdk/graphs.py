"""Small graphs for tests, and any graph for hypothesis."""

from itertools import pairwise

from hypothesis import strategies as st

from bicycle_sdk.graph import (
    Edge,
    ErrorAction,
    ErrorPolicy,
    JobConfig,
    JobGraph,
    OperatorKind,
    Partitioning,
    RestartKind,
    RestartStrategy,
    RuntimeMode,
    Vertex,
)

KIND = OperatorKind


def connector(word: str = "collection") -> dict:
    return {"connector": {"connector_type": word, "properties": {}}}


DETAILS = {
    KIND.SOURCE: connector(),
    KIND.SINK: connector("collect"),
    KIND.KEY_BY: {"key_selector": "f"},
    KIND.PARTITION_CUSTOM: {"partitioner": "f"},
    KIND.RATE_LIMIT: {"per_second": 1.5, "burst": 1},
    KIND.PROCESS: {"is_rich": False},
    KIND.CO_PROCESS: {"is_rich": True},
    KIND.SIDE_OUTPUT: {"tag": "late"},
    KIND.ASYNC_IO: {"ordered": True, "timeout_ms": 1, "capacity": 1},
    KIND.ASSIGN_TIMESTAMPS: {"watermarks": "bounded", "delay_ms": 0},
    KIND.WINDOW: {"window_type": {}},
    KIND.WINDOW_COMBINE: {"window_type": {}},
}


def vertex(vertex_id: str, kind: OperatorKind = KIND.MAP, **fields) -> Vertex:
    return Vertex(id=vertex_id, kind=kind, **{"details": DETAILS.get(kind, {}), **fields})


def graph(vertices: list[Vertex], *edges: Edge | tuple[str, str], **config) -> JobGraph:
    """Return a graph; a pair of ids is a forward edge."""
    made = [e if isinstance(e, Edge) else Edge(source_id=e[0], target_id=e[1]) for e in edges]
    return JobGraph(
        name="job", vertices=tuple(vertices), edges=tuple(made), config=JobConfig(**config)
    )


def pipeline(*middle: Vertex, **config) -> JobGraph:
    """Return source -> middle … -> sink, joined by forward edges."""
    vertices = [vertex("in", KIND.SOURCE), *middle, vertex("out", KIND.SINK)]
    ids = [v.id for v in vertices]
    return graph(vertices, *pairwise(ids), **config)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=3)
words = st.text(min_size=1, max_size=5)
numbers = st.integers(min_value=-10, max_value=10**6)

_DETAILS_OF = {
    KIND.SOURCE: st.fixed_dictionaries(
        {"connector": st.fixed_dictionaries({"connector_type": words, "properties": json_objects})}
    ),
    KIND.KEY_BY: st.fixed_dictionaries({"key_selector": words}),
    KIND.PARTITION_CUSTOM: st.fixed_dictionaries({"partitioner": words}),
    KIND.RATE_LIMIT: st.fixed_dictionaries(
        {"per_second": st.floats(0.001, 1e9), "burst": st.integers(1, 10**9)}
    ),
    KIND.REDUCE: st.fixed_dictionaries(
        {}, optional={"aggregation": words, "emits_key": st.booleans()}
    ),
    KIND.SIDE_OUTPUT: st.fixed_dictionaries({"tag": words}),
    KIND.PROCESS: st.fixed_dictionaries(
        {"is_rich": st.booleans()},
        optional={"function_kind": words, "is_keyed": st.booleans()},
    ),
    KIND.CO_PROCESS: st.fixed_dictionaries(
        {"is_rich": st.booleans()},
        optional={
            "function_kind": words,
            "is_keyed": st.booleans(),
            "has_broadcast": st.booleans(),
            "settings": json_objects,
        },
    ),
    KIND.ASSIGN_TIMESTAMPS: st.fixed_dictionaries(
        {"watermarks": words, "delay_ms": numbers},
        optional={"idle_timeout_ms": numbers, "alignment_group": words, "max_drift_ms": numbers},
    ),
    KIND.WINDOW: st.fixed_dictionaries(
        {"window_type": json_objects},
        optional={"is_keyed": st.booleans(), "late_tag": words, "allowed_lateness_ms": numbers},
    ),
    KIND.WINDOW_COMBINE: st.fixed_dictionaries({"window_type": json_objects}),
    KIND.ASYNC_IO: st.fixed_dictionaries(
        {"ordered": st.booleans(), "timeout_ms": numbers, "capacity": numbers},
        optional={"retries": numbers, "backoff_ms": numbers},
    ),
}
_DETAILS_OF[KIND.SINK] = _DETAILS_OF[KIND.SOURCE]


@st.composite
def vertices(draw: st.DrawFn) -> Vertex:
    kind = draw(st.sampled_from(OperatorKind))
    return Vertex(
        id=draw(words),
        kind=kind,
        uid=draw(st.none() | words),
        name=draw(st.text(max_size=5)),
        details=draw(_DETAILS_OF.get(kind, st.just({}))),
        parallelism=draw(numbers),
        max_parallelism=draw(st.none() | numbers),
        slot_sharing_group=draw(words),
        chaining_enabled=draw(st.booleans()),
        starts_new_chain=draw(st.booleans()),
        plugin_function=draw(st.none() | words),
        config=draw(json_objects),
        output_type=draw(st.none() | words),
        on_error=draw(
            st.builds(
                ErrorPolicy,
                action=st.sampled_from(ErrorAction),
                retries=numbers,
                backoff_ms=numbers,
                max_error_rate=st.none() | st.floats(0, 1),
            )
        ),
        payloads=tuple(draw(st.lists(words, max_size=3))),
    )


edges = st.builds(
    Edge,
    source_id=words,
    target_id=words,
    partitioning=st.sampled_from(Partitioning),
    input_ordinal=numbers,
    output_tag=st.none() | words,
    feedback=st.booleans(),
)
configs = st.builds(
    JobConfig,
    parallelism=numbers,
    max_parallelism=numbers,
    checkpoint_interval_ms=numbers,
    restart_strategy=st.builds(
        RestartStrategy,
        kind=st.sampled_from(RestartKind),
        max_attempts=numbers,
        delay_ms=numbers,
    ),
    properties=st.dictionaries(st.text(), st.text(), max_size=3),
    mode=st.sampled_from(RuntimeMode),
)
graphs = st.builds(
    JobGraph,
    name=st.text(),
    vertices=st.lists(vertices(), max_size=4).map(tuple),
    edges=st.lists(edges, max_size=4).map(tuple),
    config=configs,
)
