"""Lookup joins against the list of questions that a reader would ask by hand."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import LookupCache
from bicycle_sdk.joins.lookups import Answers
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.join_jobs import (
    STRATEGY,
    key_of,
)
from tests.property.mishaps import FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

MANY = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow]
)
FAILING, UNKNOWN = "f", "u"
KEYS = st.sampled_from(["a", "b", "c", "d", FAILING, UNKNOWN])
# The last question of a part is answered long after its last row has come.
LONG = 60


class Desk:
    """Answers with the key and the number of the question; one key fails, one nobody knows.

    An answer takes some turns of the event loop, ``turns`` and some that depend on the key.
    """

    def __init__(self, turns):
        self.turns = turns

    def open(self, ctx):
        self.asked = 0

    async def __call__(self, key):
        self.asked = number = self.asked + 1
        for _ in range(self.turns + ord(key) % 3):
            await asyncio.sleep(0)
        if key == FAILING:
            raise LookupError(key)
        return None if key == UNKNOWN else (key, number)


def pair(row, answer):
    return (row, answer)


def looked_up(desk, **settings):
    """Return a job that completes its rows at a desk; rows whose question fails are left out."""

    def job(env):
        rows = env.add_source(script_source()).uid("rows").assign_timestamps(STRATEGY)
        joined = rows.lookup_join(key_of, desk, pair, **settings).on_error("skip").uid("join")
        joined.process_fn(Stamps()).collect("out")

    return job


@st.composite
def parts_of_rows(draw, events):
    """Parts of rows ``(key, time, number)``, each with what happens to the job."""
    number, parts = 0, []
    for _ in range(draw(st.integers(1, 4))):
        rows = []
        for key in draw(st.lists(KEYS, max_size=10)):
            rows.append((key, draw(st.integers(-200, 200)), number))
            number += 1
        parts.append((rows, draw(events)))
    return parts


def run(job, parts, **options):
    """Run a job over the parts; return what came out of each."""
    found, before = [], 0
    with Harness(job, **options) as harness:
        for rows, event in parts:
            fail_in_next_epoch(harness, event)
            harness.push(rows)
            harness.run()
            happen(harness, event)
            results = harness.results("out")
            found.append(results[before:])
            before = len(results)
        harness.end()
        harness.run()
        assert len(harness.results("out")) == before
    return found


@pytest.mark.parametrize("how", ["inner", "left"])
@MANY
@given(
    parts=parts_of_rows(st.one_of(st.none(), FAULTS, RESCALES, LOSSES)),
    parallelism=st.integers(1, 3),
    capacity=st.integers(1, 5),
    cache=st.builds(LookupCache, size=st.integers(0, 3)),
    turns=st.integers(0, 4),
)
def test_each_row_comes_out_once_with_the_answer_to_its_question(
    how, parts, parallelism, capacity, cache, turns
):
    job = looked_up(Desk(turns), how=how, capacity=capacity, cache=cache)
    parallelisms = {parallelism} | {
        event[1] for _, event in parts if event and event[0].startswith("rescale")
    }

    for (rows, _), results in zip(parts, run(job, parts, parallelism=parallelism), strict=True):
        found = [(row, answer and answer[0], time) for (row, answer), time in results]
        expected = [
            (row, None if row[0] == UNKNOWN else row[0], row[1])
            for row in rows
            if row[0] != FAILING and (row[0] != UNKNOWN or how == "left")
        ]
        if parallelisms == {1}:
            assert found == expected
        else:
            assert sorted(found, key=repr) == sorted(expected, key=repr)


def numbers_of(keys, size):
    """Return which question answers each of the keys that come one after another.

    An answer is there while fewer than ``size`` other keys were asked for since it was last used.
    """
    numbers, count = [], 0
    for place, key in enumerate(keys):
        earlier = [index for index in range(place) if keys[index] == key and key != FAILING]
        others = set(keys[earlier[-1] + 1 : place]) - {FAILING} if earlier else set()
        if earlier and len(others) < size:
            numbers.append(numbers[earlier[-1]])
        else:
            count += 1
            numbers.append(count)
    return numbers


@MANY
@given(
    parts=parts_of_rows(
        st.sampled_from([None, None, None, "crash", "lose workers", ("rescale", 1)])
    ),
    size=st.integers(0, 4),
    turns=st.integers(0, 3),
)
def test_one_row_after_another_asks_what_the_cache_has_not_kept(parts, size, turns):
    job = looked_up(Desk(turns), how="left", capacity=1, cache=LookupCache(size=size))

    found = run(job, parts, parallelism=1)

    # What ends a worker ends its answers; the desk that is opened then counts from one.
    sessions, is_new = [], True
    for (rows, event), results in zip(parts, found, strict=True):
        if is_new:
            sessions.append(([], {}))
        sessions[-1][0].extend(rows)
        sessions[-1][1].update({row[2]: answer for (row, answer), _ in results})
        is_new = event is not None
    for rows, answers in sessions:
        numbers = numbers_of([row[0] for row in rows], size)
        for row, number in zip(rows, numbers, strict=True):
            if row[0] not in (FAILING, UNKNOWN):
                assert answers[row[2]] == (row[0], number)


@MANY
@given(parts=parts_of_rows(st.none()), size=st.integers(1, 4))
def test_rows_that_ask_for_the_same_at_one_time_ask_once(parts, size):
    job = looked_up(Desk(LONG), capacity=20, cache=LookupCache(size=size))

    for results in run(job, parts, parallelism=1):
        answers = {answer for (_, answer), _ in results}
        assert len(answers) == len({key for key, _ in answers})


def test_an_answer_ages_by_the_time_of_epochs_so_that_a_test_can_move_it():
    job = looked_up(Desk(0), capacity=1, cache=LookupCache(size=3, ttl=1_000))
    numbers = []
    with Harness(job) as harness:
        for pause_ms in (0, 999, 1):
            harness.advance_time(pause_ms)
            harness.push([("a", 1, len(numbers))])
            harness.run()
            (_, (_, number)), _time = harness.results("out")[-1]
            numbers.append(number)

    assert numbers == [1, 1, 2]


@settings(deadline=None)
@given(
    questions=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6)), max_size=30),
    size=st.integers(0, 4),
    ttl=st.integers(1, 20),
)
def test_an_answer_is_good_for_its_time_and_while_it_is_among_the_last_used(questions, size, ttl):
    now = 0
    answers = Answers(size, ttl, clock=lambda: now)
    asked = {}  # When each key was really asked for.
    for place, (key, pause) in enumerate(questions):
        now += pause
        earlier = [index for index in range(place) if questions[index][0] == key]
        others = {other for other, _ in questions[earlier[-1] + 1 : place]} if earlier else set()
        is_kept = bool(earlier) and len(others) < size and now < asked[key] + ttl

        assert answers.find(key) == ((True, asked[key]) if is_kept else (False, None))
        if not is_kept:
            answers.keep(key, now)
            asked[key] = now
        assert len(answers) <= size
