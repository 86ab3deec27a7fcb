"""Aggregates whose functions must be called, in chains on columns otherwise."""

import json
from dataclasses import dataclass
from decimal import Decimal

import pytest

from bicycle_runtime.operators.preaggregation.gathering import FoldedContents
from bicycle_runtime.testing import Harness
from bicycle_sdk.windows import Average, Count, Maximum, Sum

CALLS = []


@dataclass
class Reading:
    sensor: str
    at: int
    value: int


def summed(reading):
    CALLS.append(reading.at)
    total = 0
    for part in (reading.value, reading.value):
        total += part
    return total


def as_decimal(reading):
    CALLS.append(reading.at)
    for value in (reading.value,):
        return Decimal(value)


def refused_from_five_on(reading):
    CALLS.append(reading.at)
    for value in (reading.value,):
        if value >= 5:
            raise ValueError(f"{value} is too much")
    return reading.value


def changed(reading):
    for factor in (10,):
        reading.value *= factor
    return reading.value


async def awaited(reading):
    return reading.value


def value_of(reading):
    return reading.value


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


@pytest.fixture
def readings(tmp_path):
    path = tmp_path / "readings.jsonl"
    rows = [("b", 1, 5), ("a", 12, 7), ("a", 3, -2), ("b", 9, 1), ("a", 11, 3)]
    path.write_text(
        "".join(
            json.dumps(dict(zip(("sensor", "at", "value"), r, strict=True))) + "\n" for r in rows
        )
    )
    return path


def run(path, *aggregates, windows=lambda keyed: keyed.tumbling_window(10), on_records=False):
    """Return results, dead letters, and how many records went by columns."""

    def key_of(reading):
        return reading.sensor

    def job(env):
        timed = (
            env.read_jsonl(path, type=Reading)
            .uid("readings")
            .assign_timestamps(lambda reading: reading.at)
        )
        keyed = timed.key_by(
            (lambda reading: next(iter([reading.sensor]))) if on_records else key_of
        )
        windows(keyed).aggregate(*aggregates).uid("windows").on_error("dead_letter").collect("out")

    with Harness(job, parallelism=1) as harness:
        harness.run()
        letters = [(each["offset"], each["message"]) for each in harness.dead_letters]
        on_columns = sum(stats.counts["windows-combine"].on_columns for stats in harness.epochs)
        return sorted(map(tuple, harness.results("out"))), sorted(letters), on_columns


def test_they_are_called_once_for_each_record_and_folded_in_columns(readings, calls, monkeypatch):
    monkeypatch.setattr(FoldedContents, "add", None)

    found, _, on_columns = run(readings, Count(), Sum(summed), Average(summed))

    assert found == [
        ("a", 0, 10, (1, -4, -4.0)), ("a", 10, 20, (2, 20, 10.0)), ("b", 0, 10, (2, 12, 6.0))
    ]  # fmt: skip
    assert on_columns == 5
    assert sorted(calls) == [1, 3, 9, 11, 12]


@pytest.mark.parametrize(
    "aggregates",
    [
        [Count(), Sum(as_decimal)],
        [Sum(value_of), Sum(as_decimal), Maximum(value_of)],
        [Maximum(refused_from_five_on), Sum(value_of)],
        [Sum(value_of), Sum(changed), Maximum(value_of), Sum(lambda reading: reading.value)],
        [Sum(changed), Average(changed), Sum(value_of)],
    ],
)
def test_they_give_what_they_give_for_records(readings, calls, aggregates):
    in_columns = run(readings, *aggregates)
    calls_in_columns = sorted(calls)
    calls.clear()
    one_by_one = run(readings, *aggregates, on_records=True)

    assert in_columns[:2] == one_by_one[:2]
    assert calls_in_columns == sorted(calls)
    assert (in_columns[2], one_by_one[2]) == (5, 0)


def test_a_record_that_one_refuses_is_a_dead_letter_with_its_place(readings):
    _, letters, _ = run(readings, Maximum(refused_from_five_on))

    assert [message for _, message in letters] == ["5 is too much", "7 is too much"]
    assert [offset for offset, _ in letters] == [0, len('{"sensor": "b", "at": 1, "value": 5}\n')]


def test_they_are_not_called_for_records_outside_of_all_windows(readings, calls):
    run(readings, Sum(summed), windows=lambda keyed: keyed.sliding_window(5, 10))

    assert sorted(calls) == [1, 3, 11, 12]


def test_sessions_call_them_once(readings, calls):
    found, _, on_columns = run(readings, Sum(summed), windows=lambda keyed: keyed.session_window(5))

    assert [row[3] for row in found] == [-4, 20, 10, 2]
    assert on_columns == 5
    assert sorted(calls) == [1, 3, 9, 11, 12]


def test_what_is_awaited_goes_by_records(readings):
    found, _, on_columns = run(readings, Sum(awaited))

    assert ([row[3] for row in found], on_columns) == ([-2, 10, 6], 0)
