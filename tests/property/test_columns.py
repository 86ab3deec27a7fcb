"""Folding by field gives what folding record by record gives, whatever stands in the files."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import Average, Count, Maximum, Minimum, Sum
from tests.examples import examples
from tests.property.mishaps import ENGINES, FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

PATIENT = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)
# What a sum of 64 bits has no room for is folded by Python's ints.
FLOATS = st.one_of(
    st.integers(-10_000, 10_000).map(lambda cents: cents / 100),
    st.floats(-1e6, 1e6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308, 1e16, 1.0, 2.0**-120]),
)
INTS = st.one_of(
    st.integers(-50, 50), st.integers(-(2**66), 2**66), st.sampled_from([2**61, 2**63, -(2**63)])
)


@dataclass
class Reading:
    sensor: str
    at: int
    value: int
    share: float = 0.5
    notes: list[str] | None = None


READINGS = st.builds(
    Reading,
    st.sampled_from(["a", "b", "ß", "", "a\0", "\uffff", "\U0001f600"]),
    st.integers(-120, 400),
    INTS,
    FLOATS,
    st.just(["x"]),
)
BAD_LINES = st.sampled_from(
    [
        "",
        "{",
        "[1]",
        '{"sensor":"a","at":7,"value":null,"share":1.5}',
        '{"sensor":"a","at":8,"value":1,"share":2,"more":"x"}',
        '{"sensor":5,"at":9,"value":0,"share":1.5}',
        '{"sensor":1,"at":2,"value":3}',
        '{"sensor":"a","at":2}',
        '{"sensor":"a","at":1.5}',
    ]
)
LINES = st.lists(st.one_of(READINGS, READINGS, READINGS, BAD_LINES), min_size=1, max_size=20)
EVENTS = st.one_of(st.just("on"), FAULTS, RESCALES, LOSSES)
KINDS = st.sampled_from([(40, 40, 0), (40, 40, -7), (60, 20, 5), (50, 20, 0), (10, 30, 0)])
LAST = Reading("z", 100_000, 7)
_LISTING_MS = 60_000


def same(function):
    return function


class Called:
    """A function that nobody can read, so that it is called record by record."""

    def __init__(self, function):
        self.function = function

    def __call__(self, record):
        return self.function(record)


@dataclass
class Priced:
    sensor: str
    at: int
    value: int
    share: float


class Typed:
    """Records are dataclasses, and functions look fields up."""

    record_type = Reading
    sensor = staticmethod(lambda reading: reading.sensor)
    at = staticmethod(lambda reading: reading.at)
    value = staticmethod(lambda reading: reading.value)
    share = staticmethod(lambda reading: reading.share)
    steps = ()


class Computing(Typed):
    """Functions compute, and records are filtered and mapped before and behind their times."""

    sensor = staticmethod(lambda priced: (priced.sensor.upper(), priced.value % 3))
    value = staticmethod(lambda priced: priced.value * 2 - 1)
    share = staticmethod(lambda priced: round(priced.share, 1) + priced.value)
    steps = (
        ("filter", lambda reading: reading.at > -100 and reading.sensor != "\uffff"),
        ("map", lambda reading: Priced(reading.sensor, reading.at, reading.value, reading.share)),
        ("filter", lambda priced: 1000 // priced.value < 500),
    )


class Dicts:
    """Records are dicts without a type."""

    record_type = None
    sensor = staticmethod(lambda reading: reading["sensor"])
    at = staticmethod(lambda reading: reading["at"])
    value = staticmethod(lambda reading: reading["value"])
    share = staticmethod(lambda reading: reading["share"])
    steps = ()


class ComputingDicts(Dicts):
    """The same, with more to do."""

    sensor = staticmethod(lambda reading: f"{reading['sensor']}-{reading['day']}")
    steps = (
        ("filter", lambda reading: reading.get("share", 0.0) is not None),
        ("map", lambda reading: {
            "sensor": reading["sensor"].lower(), "at": reading["at"] + 1, "value": reading["value"],
            "day": reading["at"] // 50, "share": reading["share"] * 2.5,
        }),
    )  # fmt: skip


WAYS = st.sampled_from([Typed, Computing, Dicts, ComputingDicts])


def job_of(folder, way, called, kind, *, lateness):
    size, slide, offset = kind

    def build(env):
        readings = env.read_jsonl(folder, type=way.record_type, follow=True).uid("readings")
        readings.on_error("skip")
        stream = readings
        for number, (call, function) in enumerate(way.steps):
            stream = getattr(stream, call)(called(function)).uid(f"step-{number}").on_error("skip")
        strategy = WatermarkStrategy.bounded_out_of_orderness(15).with_idle_timeout(None)
        timed = stream.assign_timestamps(strategy.with_timestamps(called(way.at))).uid("times")
        keyed = timed.on_error("skip").key_by(called(way.sensor)).uid("key").on_error("skip")
        value, share = called(way.value), called(way.share)
        results = keyed.sliding_window(size, slide, offset=offset).allowed_lateness(lateness)
        results = results.late_to("late").aggregate(
            Count(), Sum(value), Average(value), Minimum(value), Maximum(value),
            Sum(share), Average(share), Minimum(share), Maximum(share),
        )  # fmt: skip
        results.uid("windows").on_error("skip").collect("out")
        results.side_output("late").collect("late")

    return build


def text_of(line):
    return line if isinstance(line, str) else json.dumps(asdict(line), ensure_ascii=False)


def outcome(way, called, history, *, kind, lateness, parallelism, engine):
    """Append lines to two files in turn, an epoch after each part.

    Returns:
        All that was given, what was late, and how many records were folded in columns.
    """
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / name for name in ("1.jsonl", "2.jsonl")]
        for file in files:
            file.touch()
        job = job_of(place, way, called, kind, lateness=lateness)
        with Harness(job, parallelism=parallelism, engine=engine) as harness:
            for number, (lines, event) in enumerate([*history, ([LAST], "on"), ([LAST], "on")]):
                with files[number % 2].open("a") as out:
                    out.writelines(f"{text_of(line)}\n" for line in lines)
                fail_in_next_epoch(harness, event)
                harness.advance_time(_LISTING_MS)  # Files are looked at again, and read.
                harness.run()
                happen(harness, event)
            harness.run()
            late = sorted(harness.results("late"), key=repr)
            folded = sum(stats.counts["windows-combine"].on_columns for stats in harness.epochs)
            return sorted(map(tuple, harness.results("out")), key=repr), late, folded


@PATIENT
@given(
    way=WAYS,
    history=st.lists(st.tuples(LINES, EVENTS), min_size=1, max_size=6),
    kind=KINDS,
    lateness=st.sampled_from([0, 30]),
    parallelism=st.integers(1, 3),
    engine=ENGINES,
)
def test_functions_give_the_same_whether_they_are_read_or_called(way, history, **run):
    in_columns, one_by_one = (outcome(way, each, history, **run) for each in (same, Called))

    assert repr(in_columns[:2]) == repr(one_by_one[:2])  # To the type, and the sign of a zero.
    assert one_by_one[2] == 0


@pytest.mark.parametrize("way", [Typed, Computing, Dicts, ComputingDicts])
def test_these_jobs_give_results_and_fold_in_columns_unless_they_are_called(way):
    history = [([Reading("a", 10 * n, 5), Reading("b", 10 * n + 3, 7)], "on") for n in range(9)]
    run = {"kind": (40, 40, 0), "lateness": 0, "parallelism": 1, "engine": EngineOptions()}

    in_columns, one_by_one = (outcome(way, each, history, **run) for each in (same, Called))

    assert in_columns[:2] == one_by_one[:2]
    assert len(in_columns[0]) >= 6
    assert (in_columns[2], one_by_one[2]) == (20, 0)  # With the two that end the windows.
