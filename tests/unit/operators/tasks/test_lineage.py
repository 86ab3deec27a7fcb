"""From a failed record back to its place in the source, through any chain of operators."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.operators.batch import ExchangeLineage, Origin
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.operators.tasks.routing import (
    origin_text,
    parse_origin,
    parse_streaks,
    streaks_text,
)
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, KeyedProcessFunction, dead_letter
from tests.examples import examples

LONG = timedelta(seconds=30)


class Passing(AsyncFunction[int, int]):
    async def process(self, value, ctx):
        for _ in range(value % 3):
            await asyncio.sleep(0)
        return [value] * (value % 3)


def same(number):
    return number


def most(number):
    return number % 5 != 0


def twice(number):
    return [number] * (number % 3)


STEPS = {
    "map": lambda s: s.map(same),
    "filter": lambda s: s.filter(most),
    "flat_map": lambda s: s.flat_map(twice),
    "process": lambda s: s.process(Passing()),
    "ordered": lambda s: s.process_ordered(Passing(), timeout=LONG, capacity=4),
    "unordered": lambda s: s.process_unordered(Passing(), timeout=LONG, capacity=4),
    "skipping": lambda s: s.map(lambda n: n * (n % 7) // (n % 7)).on_error("skip"),
}


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.sampled_from(list(STEPS)), max_size=5),
    st.lists(st.integers(0, 40), unique=True, max_size=20),
    st.integers(0, 40),
)
def test_the_failing_record_is_found_through_any_chain(steps, numbers, poison):
    def fail(number):
        if number == poison:
            raise ValueError(number)
        return number

    def job(env):
        stream = env.add_source(script_source(int))
        for step in steps:
            stream = STEPS[step](stream)
        stream.map(fail).collect("out")

    with Harness(job) as harness:
        harness.push(numbers)
        try:
            harness.run_epoch()
        except FunctionFailedError as error:
            assert numbers[error.facts["offset"]] == poison
        else:
            assert poison not in harness.published


@pytest.mark.parametrize("before", STEPS)
def test_a_dead_letter_holds_the_record_and_its_place(before):
    def job(env):
        stream = STEPS[before](env.add_source(script_source(int)))
        stream.map(lambda n: 1 // (n - 8)).on_error("dead_letter").collect("out")

    with Harness(job) as harness:
        harness.push([1, 2, 4, 8, 11])
        harness.run_epoch()

        letters = harness.dead_letters
        assert letters
        assert {letter["offset"] for letter in letters} == {3}


def test_behind_an_exchange_a_span_names_one_shard_or_none():
    from bicycle_runtime.operators.tasks.routing import _join

    def origin(shard, start, end):
        return Origin(source="s", shard=shard, offset=start, end_offset=end)

    assert _join(origin("a", 0, 3), origin("a", 3, 9)) == origin("a", 0, 9)
    assert _join(origin("a", 0, 3), origin("b", 3, 9)) is None
    assert _join(None, origin("b", 3, 9)) is None


@given(st.text("ab/-.", min_size=1), st.integers(0, 2**60), st.none() | st.integers(0, 2**60))
def test_a_span_travels_as_text(shard, start, end):
    span = Origin(source="s", shard=shard, offset=start, end_offset=end)

    assert parse_origin(origin_text(span)) == span
    assert parse_origin(origin_text(None)) is None


def test_streaks_of_several_shards_travel_as_text_and_lead_each_record_back():
    first = Origin(source="in", shard="a", offset=0, end_offset=9)
    second = Origin(source="in", shard="b", offset=4, end_offset=7)
    streaks = [(2, first), (3, None), (5, second)]
    covered, found = parse_streaks(streaks_text(streaks))
    lineage = ExchangeLineage(covered, None, found, 1)

    assert (covered, found) == (None, streaks)
    assert [lineage.origin(index) for index in range(4)] == [first, None, second, second]
    assert parse_streaks(streaks_text(streaks[:1])) == (first, ())
    assert parse_streaks(streaks_text([])) == (None, ())


def test_positions_survive_key_by_when_records_of_several_files_meet(tmp_path):
    for number in range(3):
        lines = "".join(f"{number}-{line}\n" for line in range(20))
        (tmp_path / f"{number}.txt").write_text(f"{lines}bad{number}\n")

    def build(env):
        lines = env.read_text(str(tmp_path)).uid("in").map(str.strip).uid("strip")
        counted = lines.key_by(lambda line: line[-1:]).process(Refusing()).uid("refusing")
        counted.on_error(dead_letter()).collect("out")

    with Harness(build) as job:
        job.run()
        letters = {Path(each["shard"]).name: each for each in job.dead_letters}

    assert set(letters) == {"0.txt", "1.txt", "2.txt"}
    for name, letter in letters.items():
        assert letter["message"] == f"bad{name[0]}"
        assert letter["source"] == "in"
        assert letter["offset"] <= 20 * 4 < letter["end_offset"]


class Refusing(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        if value.startswith("bad"):
            raise ValueError(value)
        return [value]
