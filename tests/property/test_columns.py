"""Folding by field gives what folding record by record gives, whatever stands in the files."""

import base64
import csv
import io
import json
import pickle
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.columnar import fold
from bicycle_runtime.operators.functions import operator
from bicycle_runtime.testing import Harness
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import Average, Count, Distinct, Maximum, Minimum, Sum
from tests.examples import examples
from tests.property.mishaps import ENGINES, FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

PATIENT = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck)
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
    place: str = ""
    notes: list[str] | None = None


TEXTS = st.sampled_from(["a", "b", "ß", "", "a\0", "\uffff", "\U0001f600"])
READINGS = st.builds(Reading, TEXTS, st.integers(-120, 400), INTS, FLOATS, TEXTS, st.just(["x"]))
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
SESSION = "session"  # Windows of 30 ms of silence; the others are size, slide, offset.
KINDS = st.sampled_from(
    [(40, 40, 0), (40, 40, -7), (60, 20, 5), (50, 20, 0), (10, 30, 0), SESSION, SESSION]
)
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


@dataclass
class Row:
    sensor: str
    at: int
    value: int
    share: float = 0.5
    place: str = ""


class Typed:
    """Records are dataclasses, and functions look fields up."""

    record_type: type | None = Reading
    notation = "jsonl"
    time_field: str | None = None  # of the source's own time
    sensor = staticmethod(lambda reading: reading.sensor)
    at = staticmethod(lambda reading: reading.at)
    value = staticmethod(lambda reading: reading.value)
    share = staticmethod(lambda reading: reading.share)
    place = staticmethod(lambda reading: reading.place)
    steps = ()


class Computing(Typed):
    """Functions compute, and records are filtered and mapped before and behind their times."""

    sensor = staticmethod(lambda priced: (priced.sensor.upper(), priced.value % 3))
    value = staticmethod(lambda priced: priced.value * 2 - 1)
    share = staticmethod(lambda priced: round(priced.share, 1) + priced.value)
    place = staticmethod(lambda priced: priced.sensor.upper() + "!")
    steps = (
        ("filter", lambda reading: reading.at > -100 and reading.sensor != "\uffff"),
        ("map", lambda reading: Priced(reading.sensor, reading.at, reading.value, reading.share)),
        ("filter", lambda priced: 1000 // priced.value < 500),
    )


class OwnTime(Typed):
    """The source takes the times from the records."""

    time_field = "at"


class OfCsv(Typed):
    """Records are rows of CSV, converted to a dataclass."""

    record_type = Row
    notation = "csv"


class OwnTimeOfCsv(OfCsv):
    """Likewise, with the source's own time."""

    time_field = "at"


class Dicts(Typed):
    """Records are dicts without a type."""

    record_type = None
    sensor = staticmethod(lambda reading: reading["sensor"])
    at = staticmethod(lambda reading: reading["at"])
    value = staticmethod(lambda reading: reading["value"])
    share = staticmethod(lambda reading: reading["share"])
    place = staticmethod(lambda reading: reading["sensor"] + "-")


class TextsOfCsv(Dicts):
    """Records are rows of CSV without a type, and functions make numbers of texts."""

    notation = "csv"
    at = staticmethod(lambda reading: int(reading["at"]))
    value = staticmethod(lambda reading: int(reading["value"]))
    share = staticmethod(lambda reading: float(reading["share"]))


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


ALL_WAYS = [
    Typed, Computing, OwnTime, OfCsv, OwnTimeOfCsv, TextsOfCsv, Dicts, ComputingDicts
]  # fmt: skip
WAYS = st.sampled_from(ALL_WAYS)


def row_of(window):
    share = round(window.value[7], 2)
    return {"key": window[0], "from": f"{window.start}", "ratio": share / window.value[1]}


def job_of(folder, way, called, kind, *, lateness, selecting):
    def build(env):
        read = env.read_csv if way.notation == "csv" else env.read_jsonl
        readings = read(
            folder, type=way.record_type, follow=True, timestamp_field=way.time_field
        ).uid("readings")
        readings.on_error("dead_letter")
        stream = readings
        for number, (call, function) in enumerate(way.steps):
            stream = (
                getattr(stream, call)(called(function))
                .uid(f"step-{number}")
                .on_error("dead_letter")
            )
        strategy = WatermarkStrategy.bounded_out_of_orderness(15).with_idle_timeout(None)
        if way.time_field is None:
            strategy = strategy.with_timestamps(called(way.at))
        timed = stream.assign_timestamps(strategy).uid("times")
        keyed = (
            timed.on_error("dead_letter")
            .key_by(called(way.sensor))
            .uid("key")
            .on_error("dead_letter")
        )
        value, share, place = map(selecting, (way.value, way.share, way.place))
        if kind == SESSION:
            windows = keyed.session_window(30)
        else:
            windows = keyed.sliding_window(kind[0], kind[1], offset=kind[2])
        results = windows.allowed_lateness(lateness).late_to("late").aggregate(
            Count(), Sum(value), Average(value), Minimum(value), Maximum(value), Distinct(value),
            Sum(share), Average(share), Minimum(share), Maximum(share),
            Minimum(place), Maximum(place), Distinct(place),
        )  # fmt: skip
        results.uid("windows").on_error("dead_letter").collect("out")
        results.side_output("late").collect("late")
        kept = results.filter(called(lambda window: window.value[0] % 3 > 0)).uid("kept")
        rows = kept.map(called(row_of)).uid("rows").on_error("dead_letter")
        rows.collect("rows")

    return build


def text_of(line, notation):
    if isinstance(line, str):
        return line
    if notation == "jsonl":
        return json.dumps(asdict(line), ensure_ascii=False)
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([getattr(line, name) for name in NAMES])
    return text.getvalue()


NAMES = [field.name for field in fields(Row)]


@pytest.fixture(scope="module", params=["little", "columns"], autouse=True)
def travels_as(request):
    """Use the encodings of few and of many partial results, and halve small batches, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(operator, "_SPLIT_MIN", 2)
        patched.setattr(operator, "_ATTEMPTS_MAX", 100)
        if request.param == "columns":
            patched.setattr(fold, "_CONTENTS_MIN", 0)
        yield


def letters_of(harness):
    """Return what dead letters say of records: which failed where, and why."""
    said = "operator", "offset", "event_time_ms", "exception", "message"
    letters = [
        (*(letter[word] for word in said), value_of(letter)) for letter in harness.dead_letters
    ]
    return sorted(letters, key=repr)


def value_of(letter):
    value = base64.b64decode(letter["value"])
    return repr(value if letter["encoding"] == "raw" else pickle.loads(value))


def outcome(way, called, history, *, kind, lateness, parallelism, engine, selecting=None):
    """Append lines to two files in turn, an epoch after each part.

    Functions are given to the job as ``called`` gives them, those of aggregates as ``selecting``.

    Returns:
        All that was given, what was late, and how many records were folded in columns.
    """
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / name for name in ("1.jsonl", "2.jsonl")]
        for file in files:
            file.write_text(",".join(NAMES) + "\n" if way.notation == "csv" else "")
        job = job_of(place, way, called, kind, lateness=lateness, selecting=selecting or called)
        with Harness(job, parallelism=parallelism, engine=engine) as harness:
            for number, (lines, event) in enumerate([*history, ([LAST], "on"), ([LAST], "on")]):
                with files[number % 2].open("a") as out:
                    out.writelines(f"{text_of(line, way.notation)}\n" for line in lines)
                fail_in_next_epoch(harness, event)
                harness.advance_time(_LISTING_MS)  # Files are looked at again, and read.
                harness.run()
                happen(harness, event)
            harness.run()
            late = sorted(harness.results("late"), key=repr)
            folded = sum(stats.counts["windows-combine"].on_columns for stats in harness.epochs)
            results = sorted(map(tuple, harness.results("out")), key=repr)
            rows = sorted(harness.results("rows"), key=repr)
            return [*results, *rows, *letters_of(harness)], late, folded


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
    partly = outcome(way, same, history, selecting=Called, **run)

    assert repr(in_columns[:2]) == repr(one_by_one[:2])  # To the type, and the sign of a zero.
    assert repr(partly[:2]) == repr(one_by_one[:2])
    assert one_by_one[2] == 0


@pytest.mark.parametrize("way", ALL_WAYS)
def test_these_jobs_give_results_and_fold_in_columns_unless_they_are_called(way):
    history = [([Reading("a", 10 * n, 5), Reading("b", 10 * n + 3, 7)], "on") for n in range(9)]
    run = {"kind": (40, 40, 0), "lateness": 0, "parallelism": 1, "engine": EngineOptions()}

    in_columns, one_by_one = (outcome(way, each, history, **run) for each in (same, Called))
    partly = outcome(way, same, history, selecting=Called, **run)

    assert in_columns[:2] == partly[:2] == one_by_one[:2]
    assert len(in_columns[0]) >= 6
    # With the two that end the windows.
    assert (in_columns[2], partly[2], one_by_one[2]) == (20, 20, 0)


def mapped_job(folder, way, called, *, forks):
    """Return a job from a source to a sink; where it forks, to the subtasks of keys, too."""

    def build(env):
        read = env.read_csv if way.notation == "csv" else env.read_jsonl
        readings = read(folder, type=way.record_type, follow=True).uid("readings")
        stream = readings.on_error("dead_letter")
        for number, (call, function) in enumerate(way.steps):
            stream = getattr(stream, call)(called(function)).uid(f"step-{number}")
            stream = stream.on_error("dead_letter")
        value, share = called(way.value), called(way.share)
        rows = stream.map(called(lambda record: {"value": value(record), "share": share(record)}))
        rows = rows.uid("rows").on_error("dead_letter")
        rows.collect("out")
        if not forks:
            return
        kept = stream.map(called(lambda record: (value(record) % 5, share(record)))).uid("pairs")
        kept = kept.on_error("dead_letter").filter(called(lambda pair: pair[0] != 2)).uid("kept")
        kept.on_error("dead_letter").key_by(called(lambda pair: pair[0])).count().uid(
            "counts"
        ).collect("n")

    return build


def mapped_outcome(way, called, history, *, forks, parallelism, engine):
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "1.jsonl"
        file.write_text(",".join(NAMES) + "\n" if way.notation == "csv" else "")
        job = mapped_job(place, way, called, forks=forks)
        with Harness(job, parallelism=parallelism, engine=engine) as harness:
            for lines, event in history:
                with file.open("a") as out:
                    out.writelines(f"{text_of(line, way.notation)}\n" for line in lines)
                fail_in_next_epoch(harness, event)
                harness.advance_time(_LISTING_MS)
                harness.run()
                happen(harness, event)
            harness.run()
            letters = letters_of(harness)
            results = [harness.results(name) for name in ("out", "n")[: 1 + forks]]
            return [sorted(each, key=repr) for each in (*results, letters)]


@PATIENT
@given(
    way=WAYS,
    history=st.lists(st.tuples(LINES, EVENTS), min_size=1, max_size=4),
    forks=st.booleans(),
    parallelism=st.integers(1, 3),
    engine=ENGINES,
)
def test_maps_without_a_window_give_the_same_whether_they_are_read_or_called(way, history, **run):
    read, one_by_one = (mapped_outcome(way, each, history, **run) for each in (same, Called))

    assert repr(read) == repr(one_by_one)
