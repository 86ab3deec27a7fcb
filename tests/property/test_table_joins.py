"""Joins with what has arrived, against a search through all that came: tables and broadcasts."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.join_jobs import (
    STRATEGY,
    key_of,
    sides,
)
from tests.property.mishaps import FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

MANY = settings(
    deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow]
)
KEYS = "xyz"
TIMES = st.integers(-200, 200)  # In no order at all: nothing is late where no time counts.
EVENTS = st.one_of(st.none(), st.none(), FAULTS, RESCALES, LOSSES)
# Which side of a part comes in epochs of its own before the other; None: both in one epoch.
ALONE = st.sampled_from([None, "left", "right"])


def pair(left, right):
    return (left, right)


async def pair_later(left, right):
    await asyncio.sleep(0)
    return (left, right)


def is_gone(row):
    return row[2].endswith("gone")


@st.composite
def histories(draw):
    """Parts of what arrives: left rows, right rows, which come first, what happens to the job."""
    number, parts = 0, []
    for _ in range(draw(st.integers(1, 6))):
        rows = {"left": [], "right": []}
        for side in draw(st.lists(st.sampled_from(["left", "right"]), max_size=7)):
            checkpoint_id = f"{side[0]}{number}"
            if side == "right" and draw(st.sampled_from([False, False, True])):
                checkpoint_id += " gone"
            rows[side].append((draw(st.sampled_from(KEYS)), draw(TIMES), checkpoint_id))
            number += 1
        parts.append((rows, draw(ALONE), draw(EVENTS)))
    return parts


def known(rights, key):
    """Return the last row that has come for a key, None when there is none or it deletes."""
    for row in reversed(rights):
        if row[0] == key:
            return None if is_gone(row) else row
    return None


def expectations(parts, *, is_right_first):
    """Return for each left row which matches are right.

    Args:
        parts: What arrives.
        is_right_first: Whether right rows of an epoch count for all left rows of it. Otherwise
            the two sides of an epoch may meet in any order.
    """
    before, expected = [], {}
    for rows, alone, _ in parts:
        fresh = rows["right"]
        counts = {"left": [0], "right": [len(fresh)]}.get(alone, range(len(fresh) + 1))
        if alone is None and is_right_first:
            counts = [len(fresh)]
        for row in rows["left"]:
            expected[row] = [known(before + fresh[:count], row[0]) for count in counts]
        before = before + fresh
    return expected


def run(job, parts, *, parallelism, budget):
    """Run a job over the parts; return what came out and the tables by key."""
    # What comes together is meant to be in one epoch.
    budget = 1_000 if any(alone is None for _, alone, _ in parts) else budget
    engine = EngineOptions(max_records_per_epoch=budget)
    with Harness(job, engine=engine, parallelism=parallelism) as harness:
        for rows, alone, event in parts:
            fail_in_next_epoch(harness, event)
            for side in ("left", "right") if alone == "left" else ("right", "left"):
                harness.push(rows[side], source=side)
                if alone:
                    harness.run()
            harness.run()
            happen(harness, event)
        tables = {key: harness.value("join", key=key, name="table") for key in KEYS}
        harness.end()
        harness.run()
        return harness.results("out"), tables


def check(results, expected, how):
    """Compare results ``((left, match), time)`` with the matches that are right."""
    found = {left: match for (left, match), _ in results}
    assert len(found) == len(results)
    assert all(time == left[1] for (left, _), time in results)
    for left, matches in expected.items():
        if left in found:
            assert found[left] in matches
            assert how == "left" or found[left] is not None
        else:
            assert how == "inner"
            assert None in matches
    assert found.keys() <= expected.keys()


JOBS = {
    "parts": histories(),
    "parallelism": st.integers(1, 3),
    "budget": st.sampled_from([1, 4, 1_000]),
    "function": st.sampled_from([pair, pair_later]),
}


@pytest.mark.parametrize("how", ["inner", "left"])
@MANY
@given(**JOBS)
def test_a_table_join_finds_the_row_that_arrived_last(how, parts, parallelism, budget, function):
    def job(env):
        left, right = sides(env)
        joined = left.table_join(right, function, how=how, deleted_when=is_gone).uid("join")
        joined.process_fn(Stamps()).collect("out")

    results, tables = run(job, parts, parallelism=parallelism, budget=budget)

    check(results, expectations(parts, is_right_first=False), how)
    rights = [row for rows, _, _ in parts for row in rows["right"]]
    for key, found in tables.items():
        assert (found and found[0]) == known(rights, key)


SPREADS = {
    "as it is": lambda stream: stream,
    "rebalanced": lambda stream: stream.rebalance(),
    "keyed": lambda stream: stream.key_by(lambda row: row[2]),
}


@pytest.mark.parametrize("how", ["inner", "left"])
@MANY
@given(**JOBS, spread=st.sampled_from(sorted(SPREADS)))
def test_a_broadcast_join_finds_the_last_row_in_every_subtask(
    how, parts, parallelism, budget, function, spread
):
    def job(env):
        left, right = (
            env.add_source(script_source()).uid(uid).assign_timestamps(STRATEGY)
            for uid in ("left", "right")
        )
        joined = SPREADS[spread](left).broadcast_join(
            right, key_of, key_of, function, how=how, deleted_when=is_gone
        )
        joined.uid("join").process_fn(Stamps()).collect("out")

    results, _ = run(job, parts, parallelism=parallelism, budget=budget)

    check(results, expectations(parts, is_right_first=True), how)
