"""Folding by field gives what folding record by record gives, whatever stands in the files."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    ["", "{", '{"sensor":1,"at":2,"value":3}', '{"sensor":"a","at":2}', '{"sensor":"a","at":1.5}']
)
LINES = st.lists(st.one_of(READINGS, READINGS, READINGS, BAD_LINES), min_size=1, max_size=20)
EVENTS = st.one_of(st.just("on"), FAULTS, RESCALES, LOSSES)
KINDS = st.sampled_from([(40, 40, 0), (40, 40, -7), (60, 20, 5), (50, 20, 0), (10, 30, 0)])
LAST = Reading("z", 100_000, 0)


def value_of(reading):
    return reading.value


def share_of(reading):
    return reading.share


def same(value):
    return value


BY_FIELD = (lambda reading: reading.sensor, lambda reading: reading.at, value_of, share_of)
BY_CALL = (
    lambda reading: str(reading.sensor),
    lambda reading: int(reading.at),
    lambda reading: same(reading.value),
    lambda reading: same(reading.share),
)


def job_of(folder, functions, kind, *, lateness):
    sensor_of, time_of, number_of, float_of = functions
    size, slide, offset = kind

    def build(env):
        readings = env.read_jsonl(folder, type=Reading, follow=True).uid("readings")
        readings.on_error("skip")
        strategy = WatermarkStrategy.bounded_out_of_orderness(15).with_idle_timeout(None)
        timed = readings.assign_timestamps(strategy.with_timestamps(time_of)).uid("times")
        windows = timed.key_by(sensor_of).sliding_window(size, slide, offset=offset)
        results = windows.allowed_lateness(lateness).late_to("late").aggregate(
            Count(), Sum(number_of), Average(number_of), Minimum(number_of), Maximum(number_of),
            Sum(float_of), Average(float_of), Minimum(float_of), Maximum(float_of),
        )  # fmt: skip
        results.uid("windows").collect("out")
        results.side_output("late").collect("late")

    return build


def text_of(line):
    return line if isinstance(line, str) else json.dumps(asdict(line), ensure_ascii=False)


def outcome(functions, history, *, kind, lateness, parallelism, engine):
    """Append lines to two files in turn, an epoch after each part; return all that was given."""
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / name for name in ("1.jsonl", "2.jsonl")]
        for file in files:
            file.touch()
        job = job_of(place, functions, kind, lateness=lateness)
        with Harness(job, parallelism=parallelism, engine=engine) as harness:
            for number, (lines, event) in enumerate([*history, ([LAST], "on"), ([LAST], "on")]):
                with files[number % 2].open("a") as out:
                    out.writelines(f"{text_of(line)}\n" for line in lines)
                fail_in_next_epoch(harness, event)
                harness.run()
                happen(harness, event)
            harness.run()
            late = sorted(harness.results("late"), key=repr)
            return sorted(map(tuple, harness.results("out"))), late


@PATIENT
@given(
    history=st.lists(st.tuples(LINES, EVENTS), min_size=1, max_size=6),
    kind=KINDS,
    lateness=st.sampled_from([0, 30]),
    parallelism=st.integers(1, 3),
    engine=ENGINES,
)
def test_fields_and_functions_give_the_same(history, kind, lateness, parallelism, engine):
    run = {"kind": kind, "lateness": lateness, "parallelism": parallelism, "engine": engine}

    by_field, by_call = (outcome(way, history, **run) for way in (BY_FIELD, BY_CALL))

    assert repr(by_field) == repr(by_call)  # To the type, and to the sign of a zero.
