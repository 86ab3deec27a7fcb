"""Descriptors of operator kinds: complete, and what each reader takes from them."""

from datetime import timedelta

import pytest

from bicycle_sdk import RichAsyncFunction, StateTtl, StreamEnvironment, ValueStateDescriptor
from bicycle_sdk.graph import JobGraph, OperatorKind, StateShape, descriptor_of
from tests.unit.sdk.graphs import DETAILS, pipeline, vertex

KIND = OperatorKind


class Recent(RichAsyncFunction[str, str]):
    last = ValueStateDescriptor("last", str, ttl=StateTtl(timedelta(hours=1), time="event"))

    def process(self, value, ctx):
        return [value]


@pytest.mark.parametrize("kind", KIND)
def test_every_kind_has_a_descriptor_with_a_description(kind):
    known = descriptor_of(kind)

    assert known.description
    assert known.required.keys().isdisjoint(known.optional)
    assert known.required.keys() <= DETAILS.get(kind, {}).keys()


def test_descriptions_tell_kinds_apart():
    assert len({descriptor_of(kind).description for kind in KIND}) == len(KIND)


def test_kinds_that_hold_nothing_and_leave_times_as_they_are():
    found = {kind for kind in KIND if descriptor_of(kind).passes_on}

    assert found == {
        KIND.MAP, KIND.FLAT_MAP, KIND.FILTER, KIND.MAP_BATCHES, KIND.KEY_BY,
        KIND.PARTITION_CUSTOM, KIND.RATE_LIMIT, KIND.UNION, KIND.SIDE_OUTPUT,
        KIND.ASYNC_IO, KIND.WINDOW_COMBINE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "details", "state", "waits", "needs"),
    [
        (KIND.PROCESS, {"function_kind": "async"}, StateShape.NONE, False, False),
        (KIND.PROCESS, {"function_kind": "rich"}, StateShape.FUNCTION, False, False),
        (KIND.PROCESS, {"function_kind": "process"}, StateShape.FUNCTION, True, False),
        (KIND.PROCESS, {"is_rich": True}, StateShape.FUNCTION, False, False),
        (KIND.CO_PROCESS, {"function_kind": "co_map"}, StateShape.FUNCTION, False, False),
        (KIND.CO_PROCESS, {"function_kind": "interval_join"}, StateShape.FUNCTION, True, True),
        (KIND.CO_PROCESS, {"function_kind": "table_join"}, StateShape.FUNCTION, True, False),
        (KIND.WINDOW, {"window_type": {"Session": {"gap_ms": 1}}}, StateShape.WINDOWS, True, True),
        (KIND.WINDOW, {"window_type": {"Global": {}}}, StateShape.WINDOWS, True, False),
        (KIND.WINDOW_COMBINE, {"window_type": {"Session": {}}}, StateShape.NONE, False, False),
    ],
)
def test_functions_and_windows_of_one_kind_differ(kind, details, state, waits, needs):
    found = vertex("v", kind, details=details).descriptor

    assert (found.state, found.waits_for_time, found.needs_event_time) == (state, waits, needs)


def test_a_vertex_is_keyed_by_its_kind_or_by_its_details():
    assert vertex("v", KIND.REDUCE).is_keyed
    assert not vertex("v", KIND.MAP, details={"is_keyed": True}).is_keyed
    assert vertex("v", KIND.PROCESS, details={"is_rich": True, "is_keyed": True}).is_keyed
    assert not vertex("v", KIND.PROCESS).is_keyed


def test_a_kind_without_details_is_a_bare_word_in_json():
    for kind in KIND:
        text = pipeline(vertex("v", kind, details={})).to_json()
        assert (f'"operator_type":"{kind.value}"' in text) == descriptor_of(kind).is_bare


def test_the_graph_of_a_function_with_state_that_ends_by_event_time_can_be_read_again():
    env = StreamEnvironment()
    env.from_collection(["a"]).process_rich(Recent()).print()
    graph = env.build_graph("job")

    assert graph.vertices[1].details["reads_times"] is True
    assert JobGraph.from_json(graph.to_json()) == graph
