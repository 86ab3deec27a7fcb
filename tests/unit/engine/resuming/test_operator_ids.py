"""Operators without a uid keep the ids that they had, whatever is put in between them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.engine.resuming.operator_ids import operator_ids_of, with_operator_ids
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.testing import script_source
from bicycle_runtime.testing.bundling import bundle_of_graph
from bicycle_sdk import KeyedProcessFunction, StreamEnvironment, ValueStateDescriptor
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Run, sealed_by


class Totals(KeyedProcessFunction):
    total = ValueStateDescriptor("total", int, default=0)

    def process_element(self, pair, ctx):
        state = ctx.get_value_state(self.total)
        state.update(state.value() + pair[1])
        return [(pair[0], state.value())]


class Sums(Totals):
    """The same under another name."""


def key_of(pair):
    return pair[0]


def doubled(pair):
    return (pair[0], 2 * pair[1])


def itself(pair):
    return pair


def plain(env):
    pairs = env.add_source(script_source(tuple[str, int]))
    pairs.key_by(key_of).process_fn(Totals()).collect("out")


def with_more_between(env):
    env.from_collection([("x", 1)]).filter(lambda _: False).collect("other")
    pairs = env.add_source(script_source(tuple[str, int]))
    pairs = pairs.map(itself).filter(lambda _: True).map(doubled)
    pairs.key_by(key_of).process_fn(Totals()).map(itself).collect("out")


def with_another_name(env):
    pairs = env.add_source(script_source(tuple[str, int]))
    pairs.map(itself).key_by(key_of).process_fn(Sums()).collect("out")


def with_two(env):
    pairs = env.add_source(script_source(tuple[str, int]))
    pairs.key_by(key_of).process_fn(Totals()).collect("out")
    pairs.key_by(key_of).process_fn(Totals()).collect("again")


@pytest.mark.parametrize("later", [with_more_between, with_another_name])
def test_state_and_progress_of_operators_without_a_uid_go_on(later):
    sealed = sealed_by(plain, [("a", 1), ("b", 2)])

    with Run(later, sealed) as run:
        run.put(("a", 10))
        factor = 2 if later is with_more_between else 1

        assert run.harness.results("out")[-1] == ("a", 1 + 10 * factor)
        middle = run.sealed
    # The way back; the progress of a source that is gone is given up.
    with Run(plain, middle, allows_dropped_state=True) as run:
        run.put(("b", 1))
        assert run.harness.results("out")[-1] == ("b", 3)


def test_nothing_is_guessed_where_two_operators_are_alike():
    sealed = sealed_by(plain, [("a", 1)])

    with raises(STATE_LOST):
        Run(with_two, sealed)


def looping(env):
    numbers = env.add_source(script_source(int))
    loop = numbers.iterate()
    lower = loop.map(one_less)
    loop.feedback(lower.filter(is_positive))
    lower.collect("out")


def looping_with_more_before(env):
    numbers = env.add_source(script_source(int))
    loop = numbers.map(itself).rebalance().filter(lambda _: True).iterate()
    lower = loop.map(one_less)
    loop.feedback(lower.filter(is_positive))
    lower.collect("out")


def one_less(number):
    return number - 1


def is_positive(number):
    return number > 0


def test_records_in_flight_on_a_loop_are_read_by_the_same_loop():
    with Run(looping) as run:
        assert run.put(3) == [2]
        sealed = run.sealed
    with Run(looping_with_more_before, sealed) as run:
        run.harness.run()

        assert run.harness.published == [2, 1, 0]


def bundle(job):
    env = StreamEnvironment()
    job(env)
    return bundle_of_graph(env.build_graph("test"), env.payloads)


JOBS = [plain, with_more_between, with_another_name, with_two]


@pytest.mark.parametrize("job", JOBS)
def test_a_graph_is_not_changed_by_its_own_operator_ids(job):
    made = bundle(job)

    assert with_operator_ids(made, operator_ids_of(made.graph)) is made


@given(st.lists(st.sampled_from(JOBS), min_size=2, max_size=5))
def test_ids_are_never_given_twice_and_payloads_follow_their_vertices(jobs):
    former = operator_ids_of(bundle(jobs[0]).graph)
    for job in jobs[1:]:
        made = bundle(job)
        later = with_operator_ids(made, former)
        ids = [vertex.id for vertex in later.graph.vertices]

        assert len(set(ids)) == len(ids)
        later.graph.validate()
        names = {
            vertex.payload_id(role) for vertex in later.graph.vertices for role in vertex.payloads
        }
        assert names == later.payloads.keys() == later.shipping.keys()
        renamed = dict(zip(ids, (vertex.id for vertex in made.graph.vertices), strict=True))
        for name, data in later.payloads.items():
            vertex, _, role = name.rpartition("/")
            assert made.payloads[f"{renamed[vertex]}/{role}"] == data
        assert [dataclasses.replace(vertex, id="") for vertex in later.graph.vertices] == [
            dataclasses.replace(vertex, id="") for vertex in made.graph.vertices
        ]
        former = operator_ids_of(later.graph)
