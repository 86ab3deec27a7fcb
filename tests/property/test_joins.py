"""Joins of event time against brute force: any order, epochs, crashes and parallelisms."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_sdk import ProcessFunction
from tests.property.join_jobs import ACTIONS, disordered, run, sides

MANY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
BUDGETS = st.sampled_from([1, 4, 10])


def pair(left, right):
    return (left, right)


def with_times(build):
    """Return a job that collects the results of a join with their event times."""

    def job(env):
        joined = build(*sides(env)).uid("join")
        joined.process_fn(Timed()).collect("out")

    return job


class Timed(ProcessFunction):
    def process_element(self, value, ctx):
        return [(value, ctx.timestamp)]


def outer(pairs, left, right, how):
    """Add the rows that have no pair, as the kind of join asks."""
    lone_left = [(row, None) for row in left if row not in {a for a, _ in pairs}]
    lone_right = [(None, row) for row in right if row not in {b for _, b in pairs}]
    return (
        pairs
        + (lone_left if how in ("left", "full") else [])
        + (lone_right if how in ("right", "full") else [])
    )


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@MANY
@given(
    disordered("l"), disordered("r"), ACTIONS, BUDGETS,
    st.tuples(st.integers(-80, 80), st.integers(0, 80)),
)  # fmt: skip
def test_an_interval_join_gives_the_pairs_of_brute_force(how, left, right, actions, budget, span):
    lower, upper = span[0], span[0] + span[1]
    pairs = [(a, b) for a in left for b in right if a[0] == b[0] and lower <= b[1] - a[1] <= upper]
    job = with_times(lambda a, b: a.interval_join(b, lower, upper, pair, how=how))

    results, states = run(job, {"left": left, "right": right}, actions, budget)

    found = [value for value, _ in results["out"]]
    assert sorted(found, key=repr) == sorted(outer(pairs, left, right, how), key=repr)
    for (a, b), time in results["out"]:
        if a and b:
            assert time == max(a[1], b[1])
        else:
            assert time == (max(a[1] + upper, a[1]) if a else max(b[1] - lower, b[1]))
    assert states == []
