"""Errors of the graph say which line of the user's code made what they name."""

import inspect
from datetime import timedelta

import pytest

from bicycle_sdk import (
    ProcessFunction,
    StreamEnvironment,
    bicycle_plugin,
)
from bicycle_sdk.errors import (
    FunctionResultError,
    GraphError,
    PluginDefinitionError,
    StreamDefinitionError,
)
from bicycle_sdk.graph import JobGraph
from bicycle_sdk.plugin import build


def here(offset=0):
    """Return the place of the caller's line, moved by some lines."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def length(line: str) -> int:
    return len(line)


def double(number: int) -> int:
    return number * 2


class Mute(ProcessFunction[str, str]):
    def process_element(self, value: str, ctx) -> None:
        pass


def told_of(make, error=GraphError):
    env = StreamEnvironment()
    with pytest.raises(error) as caught:
        make(env)
        env.execute("job")
    return str(caught.value)


def test_a_rule_that_is_broken_names_kind_uid_and_line_of_the_call():
    place = []

    def loose_end(env):
        lines = env.from_collection(["a"]).uid("lines")
        lines.print()
        place.append(here(1))
        lines.map(str.upper)

    text = told_of(loose_end)
    assert f"the output of 'vertex_3' (Map without uid, {place[0]})" in text


def test_a_call_in_the_middle_of_a_chain_has_its_own_line():
    lines = []

    def doubled(env):
        lines.append((here(2), here(4)))
        (
            env.from_collection(["a"])
            .uid("in")
            .map(double)
            .uid("doubled")
            .print()
        )  # fmt: skip

    text = told_of(doubled)
    assert f"'in' (collection source, {lines[0][0]}) outputs str" in text
    assert f"'doubled' (double, {lines[0][1]}) takes int" in text


def test_two_operators_of_one_uid_are_told_with_both_lines():
    lines = []

    def twice(env):
        lines.append((here(1), here(2)))
        words = env.from_collection(["a"]).uid("same")
        words.filter(bool).uid("same").print()

    text = told_of(twice)
    assert all(line in text for line in lines[0])


def test_a_call_that_is_refused_says_its_line_wherever_it_is_checked():
    lines = []

    def slash(env):
        lines.append(here(1))
        env.from_collection(["a"]).uid("a/b")

    def bound(env):
        lines.append(here(1))
        env.from_collection(["a"]).key_by(len).tumbling_window(timedelta(0))

    for make in (slash, bound):
        text = told_of(make, StreamDefinitionError)
        assert f"at {lines[-1]}" in text


def test_a_result_that_is_annotated_as_no_list_is_refused_where_the_call_stands():
    lines = StreamEnvironment().from_collection(["a"])
    with pytest.raises(FunctionResultError) as flat:
        lines.flat_map(length)
    assert f"at {here(-1)}" in str(flat.value)
    with pytest.raises(FunctionResultError) as mute:
        lines.process_fn(Mute())
    assert mute.value.facts["found"].startswith("NoneType")

    # What is not told is not refused.
    lines.flat_map(str.split).flat_map(lambda word: word).map(length).print()


def test_a_graph_keeps_its_places_beside_its_json_and_is_the_same_graph_when_lines_move():
    def first(env):
        env.from_collection(["a"]).print()

    def second(env):
        env.from_collection(["a"]).print()

    graphs = []
    for make in (first, second):
        env = StreamEnvironment()
        make(env)
        graphs.append(env.execute("job"))

    assert graphs[0].locations() != graphs[1].locations()
    assert graphs[0] == graphs[1]
    assert graphs[0].to_json() == graphs[1].to_json()
    read = JobGraph.from_json(graphs[0].to_json())
    assert read.locations() == {}
    assert read.with_locations(graphs[0].locations()).locations() == graphs[0].locations()


@pytest.mark.parametrize("call", ["read_text", "read_jsonl", "read_csv", "read_parquet"])
def test_a_uri_where_a_path_belongs_names_from_uri(call):
    with pytest.raises(StreamDefinitionError) as caught:
        getattr(StreamEnvironment(), call)("kafka://host:9092/topic")
    assert caught.value.facts["call"] == call
    assert "from_uri('kafka://host:9092/topic')" in caught.value.remedy


def test_a_parameter_without_annotation_is_told_how_to_be_annotated():
    @bicycle_plugin(name="untold")
    def untold(env, wishes):
        env.read_text(wishes.input).print()

    with pytest.raises(PluginDefinitionError) as caught:
        build(untold, {})
    assert "def untold(env: StreamEnvironment, wishes: Params)" in caught.value.remedy
