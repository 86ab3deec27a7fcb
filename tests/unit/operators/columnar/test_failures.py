"""Records that fail on columns meet the same policy as record by record, in the same place."""

import json
from dataclasses import dataclass
from datetime import timedelta

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter, retry
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.windows import Count, Sum

BAD = [13]  # The readings that fail, of 40.
AGAIN = retry(2, backoff=timedelta(0)).then(dead_letter())


@dataclass
class Reading:
    sensor: str
    at: int
    value: int


class Called:
    """A function that nobody can read."""

    def __init__(self, function):
        self.function = function

    def __call__(self, record):
        return self.function(record)


def same(function):
    return function


def mapped(readings, called):
    made = readings.map(called(lambda reading: {"at": reading.at, "share": 60 // reading.value}))
    return made, made.filter(called(lambda made: made["at"] % 2 == 0))


def filtered(readings, called):
    kept = readings.filter(called(lambda reading: 60 // reading.value > 2))
    timed = kept.assign_timestamps(called(lambda reading: reading.at))
    keyed = timed.key_by(called(lambda reading: reading.sensor))
    return kept, keyed.tumbling_window(10).aggregate(Count())


def keyed(readings, called):
    timed = readings.assign_timestamps(called(lambda reading: reading.at))
    by = timed.key_by(called(lambda reading: f"{reading.sensor}{60 // reading.value}"))
    return by, by.tumbling_window(10).aggregate(Count())


def behind(readings, called):
    timed = readings.assign_timestamps(called(lambda reading: reading.at))
    windows = timed.key_by(called(lambda reading: reading.sensor)).tumbling_window(2)
    summed = windows.aggregate(Sum(called(lambda reading: reading.value)))
    made = summed.map(called(lambda window: (window.start, 60 // window.value)))
    return made, made


def is_kept(reading):
    share = 60 // reading.value
    return share < 99 if reading.at < 4 else True


def unused(readings, called):
    """What fails is not looked at for the records where it fails."""
    kept = readings.filter(called(is_kept))
    timed = kept.assign_timestamps(called(lambda reading: reading.at))
    keyed = timed.key_by(called(lambda reading: reading.sensor))
    return kept, keyed.tumbling_window(10).aggregate(Count())


def run(tmp_path, form, called, policy, **options):
    """Return results, and what is said of records that failed."""
    path = tmp_path / "readings.jsonl"
    lines = [
        json.dumps({"sensor": "a", "at": 2 * n, "value": 0 if n in BAD else n + 1})
        for n in range(40)
    ]
    path.write_text("\n".join(lines) + "\n")

    def job(env):
        failing, results = form(env.read_jsonl(path, type=Reading).uid("in"), called)
        failing.uid("failing").on_error(policy, **options)
        results.collect("out")

    with Harness(job, parallelism=1) as harness:
        harness.run()
        said = "operator", "offset", "exception", "message", "attempt"
        letters = [[letter[word] for word in said] for letter in harness.dead_letters]
        on_columns = sum(
            stats.counts["failing"].on_columns for stats in harness.epochs if stats.counts
        )
        return harness.results("out"), letters, on_columns


FORMS = [mapped, filtered, keyed, behind, unused]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["skip", "dead_letter", AGAIN])
def test_what_fails_is_left_out_both_ways_and_told_alike(tmp_path, form, policy):
    found, called = (run(tmp_path, form, way, policy) for way in (same, Called))

    assert found[:2] == called[:2]
    assert len(found[0]) >= 4
    assert len(found[1]) == (policy != "skip")
    assert [letter[-1] for letter in found[1]] == ([3] if policy is AGAIN else [1])[: len(found[1])]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rate", "fails"), [(0.5, False), (0.03, True)])
def test_a_rate_of_errors_counts_records_on_columns(tmp_path, form, rate, fails, monkeypatch):
    monkeypatch.setitem(globals(), "BAD", [13, 14])
    outcomes = []
    for way in (same, Called):
        try:
            run(tmp_path, form, way, "skip", max_error_rate=rate)
            outcomes.append(None)
        except BicycleError as error:
            outcomes.append(error.code)

    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] is not None) == fails


@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_fails_the_job_is_named_both_ways(tmp_path, form):
    facts = []
    for way in (same, Called):
        with pytest.raises(BicycleError) as caught:
            run(tmp_path, form, way, "fail")
        facts.append({word: caught.value.facts.get(word) for word in ("operator", "offset")})

    assert facts[0] == facts[1]
    assert facts[0]["operator"] == "failing"


@pytest.mark.parametrize("form", FORMS)
def test_batches_without_a_failure_stay_on_columns(tmp_path, form, monkeypatch):
    monkeypatch.setitem(globals(), "BAD", [])

    assert run(tmp_path, form, same, "fail")[2] in (39, 40)
    assert run(tmp_path, form, Called, "fail")[2] == 0


MANY = 3_000


def run_many(tmp_path, called, bad):
    """Return the results, letters and counts of a job in which some of many records fail."""
    path = tmp_path / "many.jsonl"
    path.write_text(
        "".join(f'{{"sensor":"a","at":{n},"value":{int(n not in bad)}}}\n' for n in range(MANY))
    )

    def job(env):
        readings = env.read_jsonl(path, type=Reading).uid("in")
        made = readings.map(called(lambda reading: {"at": reading.at, "one": 1 // reading.value}))
        kept = made.uid("made").on_error("dead_letter").filter(called(lambda m: m["at"] % 2 == 0))
        kept.uid("kept").collect("out")

    with Harness(job, parallelism=1) as harness:
        harness.run()
        letters = [(letter["operator"], letter["offset"]) for letter in harness.dead_letters]
        counts = [stats.counts for stats in harness.epochs if stats.counts]
        taken = {uid: sum(part[uid].on_columns for part in counts) for uid in ("made", "kept")}
        read = sum(part["made"].records_in for part in counts)
        return harness.results("out"), letters, taken, read


@pytest.mark.parametrize("bad", [{0}, {1_234}, {MANY - 1}, {5, 2_000}])
def test_a_record_that_fails_takes_few_others_from_columns(tmp_path, bad):
    results, letters, taken, read = run_many(tmp_path, same, bad)

    assert (results, letters) == run_many(tmp_path, Called, bad)[:2]
    assert (read, len(letters)) == (MANY, len(bad))
    assert MANY - 100 * len(bad) < taken["made"] < MANY
    assert taken["kept"] == taken["made"]


def test_records_that_all_fail_are_processed_one_by_one(tmp_path):
    bad = set(range(MANY))

    results, letters, taken, read = run_many(tmp_path, same, bad)

    assert (results, len(letters), read) == ([], MANY, MANY)
    assert taken["made"] == 0


def test_each_batch_of_a_union_goes_its_own_way(tmp_path):
    path = tmp_path / "readings.jsonl"
    path.write_text('{"sensor":"a","at":3,"value":1}\n')

    def job(env):
        typed = env.read_jsonl(path, type=Reading).map(lambda r: {"at": r.at, "of": "typed"})
        listed = env.from_collection([{"at": 4, "of": "listed"}])
        both = typed.union(listed).uid("both").map(lambda r: {"at": r["at"] * 2, "of": r["of"]})
        both.uid("made").collect("out")

    with Harness(job, parallelism=1) as harness:
        harness.run()
        counts = [stats.counts["made"] for stats in harness.epochs if stats.counts]

        assert sorted(harness.results("out"), key=str) == [
            {"at": 6, "of": "typed"}, {"at": 8, "of": "listed"}
        ]  # fmt: skip
    assert (sum(one.records_in for one in counts), sum(one.on_columns for one in counts)) == (2, 1)
