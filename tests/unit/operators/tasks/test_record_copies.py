"""Who gets copies of records, and what is never copied."""

import dataclasses
import threading

import pytest

from bicycle_runtime.engine.planning.stages import plan_stages
from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.tasks.record_copies import (
    copied_edges,
    copied_inputs,
    copier,
    is_separating,
    may_change_by,
)
from bicycle_runtime.testing import script_source
from bicycle_sdk import RichAsyncFunction, StreamEnvironment, col


class Kept(RichAsyncFunction[dict, dict]):
    def process(self, value, ctx):
        return [value]


@dataclasses.dataclass(frozen=True)
class Fixed:
    key: str
    sizes: tuple[int, ...] = ()


def copies(build):
    """Return the operators that get copies: as ``chain: place`` or by the end of their edge."""
    env = StreamEnvironment()
    build(env.add_source(script_source(dict)).uid("source"))
    graph = env.build_graph("job")
    plan, changes = plan_stages(graph), may_change_by(env.payloads.__getitem__)
    inner = {spec.operators[at].uid for spec in plan.chains for at in copied_inputs(spec, changes)}
    edges = {edge for spec in plan.chains for edge in copied_edges(plan, spec, changes)}
    return inner | {graph.edges[edge].target_id for edge in edges}


CASES = {
    "one branch": (lambda s: s.map(dict).uid("a").map(dict).uid("b").collect("x"), set()),
    "sinks": (lambda s: (s.collect("x"), s.collect("y"), s.print()), set()),
    "a map and a sink": (lambda s: (s.map(dict).uid("a").collect("x"), s.collect("y")), {"a"}),
    "a filter and a sink": (lambda s: (s.filter(bool).uid("a").collect("x"), s.print()), set()),
    "two maps": (
        lambda s: (s.map(dict).uid("a").collect("x"), s.map(dict).uid("b").collect("y")),
        {"a"},
    ),
    "a map and an exchange": (
        lambda s: (s.rebalance().map(dict).uid("far").print(), s.map(dict).uid("a").print()),
        {"a"},
    ),
    "two exchanges": (
        lambda s: (s.key_by(len).count().print(), s.rebalance().map(dict).print()),
        set(),
    ),
    "state, then a map": (lambda s: s.process(Kept()).map(dict).uid("a").print(), {"a"}),
    "state, then expressions": (
        lambda s: s.process(Kept()).map(col("a")).map(col("a") + 1).print(),
        set(),
    ),
    "state, then an expression and a map": (
        lambda s: s.process(Kept()).map(col("a")).uid("a").map(dict).uid("b").print(),
        {"a"},
    ),
    "two maps, one an expression": (
        lambda s: (s.map(dict).uid("a").collect("x"), s.map(col("b")).uid("b").collect("y")),
        {"a"},
    ),
    "state, then a sink": (lambda s: s.process(Kept()).filter(bool).print(), set()),
    "state, then two maps": (
        lambda s: [
            kept.map(dict).uid(name).print() for kept in [s.process(Kept())] for name in ("a", "b")
        ],
        {"a", "b"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_those_get_copies_that_could_change_records_of_others(name):
    build, expected = CASES[name]

    assert copies(build) == expected


def test_what_cannot_be_changed_is_never_copied():
    for declared in (str, int, tuple[str, int], Fixed, tuple[Fixed, ...], int | None):
        assert copier(declared, sender="a function") is None
    copy = copier(None, sender="a function")
    for values in (["a", 1, None], [("a", 1), (1.5,)]):
        batch = Batch(values, ExchangeLineage(None))
        assert copy(batch) is batch


def test_copies_are_equal_and_other_objects():
    for declared in (dict, dict[str, list[int]], None):
        batch = Batch([{"a": [1]}], ExchangeLineage(None, [5]), bytes(1), 1, ["k"])
        made = copier(declared, sender="a function")(batch)

        assert made == batch
        assert made.values[0] is not batch.values[0]
        assert made.values[0]["a"] is not batch.values[0]["a"]


def test_what_cannot_be_copied_is_shared():
    batch = Batch([{"lock": threading.Lock()}, {"list": []}], ExchangeLineage(None))

    with_lock, beside = copier(None, sender="a function")(batch).values
    assert with_lock is batch.values[0]
    assert beside == batch.values[1]
    assert beside is not batch.values[1]


def test_copies_have_no_part_in_common():
    row = ["a"]
    for declared in (None, tuple[int, list[str]], tuple):
        batch = Batch([(1, row), (2, row)], ExchangeLineage(None))
        first, second = copier(declared, sender="a function")(batch).values

        assert (first, second) == ((1, ["a"]), (2, ["a"]))
        assert first[1] is not second[1]


PATHS = {
    "join": (lambda s: s.key_by(len).process(Kept()).rebalance().map(dict).print(), {True}),
    "no state": (lambda s: s.map(dict).rebalance().map(dict).print(), {False}),
    "no change": (
        lambda s: s.key_by(len).process(Kept()).rebalance().filter(bool).print(),
        {False},
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_what_comes_from_state_is_sent_without_parts_in_common_to_those_who_may_change_it(name):
    build, expected = PATHS[name]
    env = StreamEnvironment()
    build(env.add_source(script_source(dict)).uid("source"))
    plan = plan_stages(env.build_graph("job"))
    last = [r.edge for c in plan.chains for r in c.routes if r.partitioning.value == "Rebalance"]

    assert {is_separating(plan, edge) for edge in last} == expected
