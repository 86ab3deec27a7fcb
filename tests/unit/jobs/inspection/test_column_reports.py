"""What plan tells of columns: which operators work on them, and why the others do not."""

import json
from dataclasses import asdict, dataclass
from operator import attrgetter, itemgetter
from typing import TypedDict

import pytest

from bicycle_runtime.cli.plan import report_lines
from bicycle_runtime.operators.columnar import NO_COLUMNS
from bicycle_runtime.testing import Harness
from bicycle_sdk import WatermarkStrategy, file_sink
from bicycle_sdk.connectors import collect_sink
from bicycle_sdk.windows import ApproximateDistinct, Average, Count, Distinct, Maximum, Minimum, Sum
from tests.unit.jobs.inspection.test_reports import report

WHOLE = ["readings", "times", "by", "w-combine", "w", "out"]


@dataclass
class Reading:
    sensor: str
    at: int
    value: int
    share: float = 0.5
    code: int = 1


@dataclass
class Computed(Reading):
    def __post_init__(self) -> None:
        self.code += 1


class Own(Sum):
    """Not the sum that comes with windows."""


def value_of(reading):
    return reading.value


def share_of(reading):
    return reading.share


def job(
    *aggregates, time=attrgetter("at"), key=attrgetter("sensor"), record_type=Reading,
    size=10, slide=10, offset=0, lateness=0, cut=None, between=None, suffix="jsonl", behind=None,
):  # fmt: skip
    def build(env):
        readings = env.read_jsonl("/nowhere", type=record_type).uid("readings")
        if between is not None:
            readings = between(readings)
        if time is not None:
            readings = readings.assign_timestamps(time).uid("times")
        keyed = readings.key_by(key).uid("by")
        windows = keyed.sliding_window(size, slide, offset=offset) if cut is None else cut(keyed)
        if lateness:
            windows = windows.allowed_lateness(lateness)
        results = windows.aggregate(*(aggregates or (Count(),))).uid("w")
        if behind is not None:
            results = behind(results)
        results.sink_to(file_sink("/nowhere-else", format=suffix)).uid("out")

    return build


def found(*aggregates, **settings):
    return {one.operator: one.because for one in report(job(*aggregates, **settings)).columns}


@pytest.mark.parametrize(
    "aggregates",
    [
        [Count()],
        [Count(), Sum(value_of), Average(value_of)],
        [Minimum(value_of), Maximum(lambda reading: reading.code)],
        [Sum(share_of), Average(share_of), Minimum(share_of), Maximum(share_of)],
        [Minimum(attrgetter("sensor")), Distinct(attrgetter("sensor")), Distinct(value_of)],
    ],
)
@pytest.mark.parametrize("settings", [{}, {"offset": 3}, {"key": attrgetter("code")}])
def test_tumbling_windows_over_fields_work_on_columns_from_source_to_sink(aggregates, settings):
    assert found(*aggregates, **settings) == dict.fromkeys(WHOLE)


class Document(TypedDict):
    sensor: str
    at: int
    value: int


def large(stream):
    return stream.filter(lambda reading: reading["value"] > 3 and reading["sensor"] != "x").uid("f")


def doubled(stream):
    made = stream.map(lambda r: {"sensor": r["sensor"], "at": r["at"], "value": r["value"] * 2})
    return made.uid("m")


def replaced(stream):
    return stream.map(lambda r: Reading(r.sensor.lower(), r.at, r.value, code=r.value % 7)).uid("m")


@pytest.mark.parametrize(
    ("aggregate", "settings"),
    [
        (Sum(lambda reading: round(reading.share * 2, 1) + reading.value), {}),
        (Sum(value_of), {"key": lambda reading: (reading.sensor, reading.code // 10)}),
        (Sum(value_of), {"key": lambda reading: f"{reading.sensor}-{reading.code:03d}"}),
        (Sum(value_of), {"key": lambda reading: reading.sensor.lower()}),
        (Sum(value_of), {"time": lambda reading: reading.at * 1000}),
        (Sum(value_of), {"between": replaced}),
        (Sum(itemgetter("value")), {"record_type": None, "key": itemgetter("sensor"),
            "time": lambda reading: reading["at"], "between": large}),
        (Sum(itemgetter("value")), {"record_type": Document, "key": itemgetter("sensor"),
            "time": lambda reading: reading["at"], "between": doubled}),
    ],
)  # fmt: skip
def test_what_computes_filters_and_maps_works_on_columns_too(aggregate, settings):
    because = found(aggregate, **settings)

    assert because == dict.fromkeys(because)
    assert set(because) >= set(WHOLE)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("overlap", {"size": 20}),
        ("overlap", {"size": 25}),
        ("overlap", {"slide": 30}),
        ("merged per key", {"cut": lambda keyed: keyed.session_window(5)}),
    ],
)
def test_other_windows_are_folded_in_columns_and_kept_key_by_key(reason, settings):
    because = found(**settings)

    assert because | {"w": None, "out": None} == dict.fromkeys(WHOLE)
    assert reason in because["w"]


def test_windows_that_wait_for_late_records_are_kept_key_by_key():
    assert "late records" in found(lateness=5)["w"]


@pytest.mark.parametrize(
    ("blocker", "reason", "settings"),
    [
        ("by", "does more than select", {"key": lambda reading: reading.code ** 2}),
        ("by", "fields that its records do not have", {"key": lambda reading: reading["sensor"]}),
        ("by", "'share' is not declared as int or str", {"key": attrgetter("share")}),
        ("times", "does more than select", {"time": lambda reading: reading.at ** 2}),
        ("times", "'sensor' is not declared as int", {"time": attrgetter("sensor")}),
        ("w-combine", "its session gap", {
            "cut": lambda keyed: keyed.session_window(lambda reading: reading.code),
        }),
        ("readings", "no type with plain fields", {"record_type": Computed}),
        ("w-combine", "through an exchange", {
            "between": lambda readings: readings.rebalance(),
        }),
        ("m", "does more than select", {
            "between": lambda readings: readings.flat_map(lambda reading: iter([reading])).uid("m"),
        }),
        ("m", "its record is part of a value", {
            "between": lambda readings: readings.flat_map(lambda reading: [reading]).uid("m"),
        }),
        ("m", "does more than select", {
            "between": lambda readings: readings.filter(bool).uid("m"),
        }),
        ("times", "depend on each record", {
            "time": WatermarkStrategy.punctuated(lambda reading, at: reading.code == at)
            .with_timestamps(attrgetter("at")),
        }),
    ],
)  # fmt: skip
def test_what_needs_records_says_why_and_the_others_name_it(blocker, reason, settings):
    because = found(**settings)

    folding = [uid for uid in because if uid not in ("w", "out")]
    blocked = {uid: because[uid] for uid in folding}
    assert reason in blocked[blocker]
    assert all(text is not None for text in blocked.values())
    assert because["w"] is not None


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        (Sum(attrgetter("sensor")), "'sensor' is not declared as int or float"),
        (Distinct(share_of), "'share' is not declared as int or str"),
        (ApproximateDistinct(value_of, precision=10), "other than count"),
        (Own(value_of), "other than count"),
    ],
)
def test_an_aggregate_that_is_no_sum_or_extreme_of_a_number_needs_records(aggregate, reason):
    because = found(Count(), aggregate)

    assert reason in because["w-combine"]
    assert because["by"] == "'w-combine' works on records"


def test_an_aggregate_whose_function_cannot_be_read_needs_no_other_records():
    because = found(Count(), Sum(lambda reading: reading.value**2))

    assert (because["w-combine"], because["by"]) == (None, None)


@pytest.mark.parametrize("suffix", ["csv", "text"])
def test_a_sink_writes_files_of_every_format_from_columns(suffix):
    assert found(suffix=suffix)["out"] is None


def sensor_of(window):
    return window.key


def named(window):
    return {"sensor": window.key, "share": window.value[0] / window.value[1]}


def test_what_stands_behind_a_window_works_on_columns_as_far_as_it_can():
    def kept(results):
        return results.filter(lambda window: window.end - window.start > 3).uid("f")

    whole = found(Count(), Count(), behind=lambda results: kept(results).map(named).uid("m"))
    part = found(behind=lambda results: kept(results).map(str).uid("text").map(len).uid("length"))
    keyed = found(
        behind=lambda results: kept(results).key_by(lambda each: each.key).uid("k").count()
    )

    assert (whole["f"], whole["m"], whole["out"]) == (None, None, None)
    assert (part["f"], part["length"]) == (None, "'text' works on records")
    assert "more than select" in part["text"]
    assert (keyed["f"], keyed["k"]) == (None, None)


@pytest.mark.parametrize("word", ["jsonl", "csv", "objects"])
def test_maps_between_a_source_and_a_sink_work_on_columns(word):
    sink = collect_sink("out") if word == "objects" else file_sink("/nowhere-else", format=word)

    def build(env):
        readings = env.read_jsonl("/nowhere", type=Reading).uid("readings")
        made = readings.filter(lambda reading: reading.value > 3).uid("f")
        made = made.map(lambda reading: {"twice": reading.value * 2}).uid("m")
        made.sink_to(sink).uid("out")

    because = {one.operator: one.because for one in report(build).columns}

    written = "its writer reads records" if word == "objects" else None
    assert because == {"readings": None, "f": None, "m": None, "out": written}


def test_records_that_no_map_makes_again_go_on_as_they_are():
    def build(env):
        readings = env.read_jsonl("/nowhere", type=Reading).uid("readings")
        readings.filter(lambda reading: reading.value > 3).uid("f").print().uid("out")

    assert {one.because for one in report(build).columns} == {NO_COLUMNS}


def unread(reading):
    return next(iter([reading]))


def reasons(build):
    return {one.operator: one.because for one in report(build).columns}


def test_dicts_that_are_only_chosen_or_written_stay_columns():
    def build(env):
        readings = env.read_jsonl("/nowhere").uid("readings")
        readings.filter(lambda reading: reading["value"] > 3).uid("f").print().uid("out")
        env.read_csv("/nowhere").uid("rows").sink_to(file_sink("/elsewhere")).uid("copy")

    assert reasons(build) == dict.fromkeys(["readings", "f", "out", "rows", "copy"])


def test_branches_take_the_columns_of_what_stands_before_a_fork():
    def build(env):
        readings = env.read_jsonl("/nowhere", type=Reading).uid("readings")
        timed = readings.assign_timestamps(attrgetter("at")).uid("times")
        for name in ("sensor", "code"):
            keyed = timed.key_by(attrgetter(name)).uid(f"by-{name}")
            keyed.tumbling_window(10).aggregate(Count()).uid(f"w-{name}").print()
        timed.map(lambda r: {"at": r.at, "twice": r.value * 2}).uid("m").print().uid("out")
        timed.map(unread).uid("shown").collect("seen")

    because = reasons(build)

    whole = ["readings", "times", "by-code", "w-code-combine", "w-code", "m", "out"]
    assert {uid: because[uid] for uid in whole} == dict.fromkeys(whole)
    assert "more than select" in because["shown"]


def test_a_union_takes_columns_where_all_that_comes_has_the_same_fields():
    def build(env):
        first, second = (env.read_jsonl("/nowhere").uid(name) for name in ("first", "second"))
        first.union(second).uid("both").print().uid("out")
        typed = env.read_jsonl("/nowhere", type=Reading).uid("typed")
        first.union(typed).uid("mixed").print().uid("mixed-out")

    because = reasons(build)

    assert (because["both"], because["out"]) == (None, None)
    assert because["mixed"] == NO_COLUMNS


def test_what_stands_behind_a_branch_on_records_works_on_records():
    def build(env):
        readings = env.read_jsonl("/nowhere", type=Reading).uid("readings")
        loud = readings.map(unread).uid("shown")
        loud.collect("seen")
        timed = loud.assign_timestamps(attrgetter("at")).uid("times")
        windows = timed.key_by(attrgetter("code")).uid("by").tumbling_window(10)
        windows.aggregate(Count()).uid("w").print()

    assert reasons(build)["w-combine"] == "'shown' works on records"


def test_windows_that_are_not_folded_before_the_shuffle_say_so():
    because = found(cut=lambda keyed: keyed.tumbling_window(10).pre_combine(False))

    assert because["w"] == "records are not pre-aggregated before the shuffle"
    assert because["by"] == NO_COLUMNS


def test_the_report_says_it_in_words_and_in_json():
    made = report(job(Sum(attrgetter("sensor"))))

    lines = report_lines(made)

    assert "  w-combine: records, because field 'sensor' is not declared as int or float" in lines
    assert {"operator": "out", "because": None} in asdict(made)["columns"]


def test_people_are_told_of_windows_and_what_they_fold_and_programs_of_all():
    def build(env):
        words = env.from_collection(["a"]).uid("in").map(str.upper).uid("upper")
        words.key_by(str).uid("by").count().uid("counts").print().uid("out")

    made, mixed = report(build), report(job(cut=lambda k: k.tumbling_window(10).pre_combine(False)))

    assert not any("works on" in line or NO_COLUMNS in line for line in report_lines(made))
    assert {each["because"] for each in asdict(made)["columns"]} == {NO_COLUMNS}
    assert (
        "  w: records, because records are not pre-aggregated before the shuffle"
        in report_lines(mixed)
    )
    assert "  out: columns" in report_lines(mixed)
    assert f"  by: records, because {NO_COLUMNS}" in report_lines(mixed)


@pytest.mark.parametrize("key", [attrgetter("sensor"), lambda reading: "".join(reading.sensor)])
def test_workers_do_what_plan_says(tmp_path, key):
    path = tmp_path / "readings.jsonl"
    lines = [json.dumps({"sensor": "a", "at": at, "value": at}) for at in range(9)]
    path.write_text("\n".join(lines))

    def build(env):
        readings = env.read_jsonl(path, type=Reading).uid("readings")
        keyed = readings.assign_timestamps(attrgetter("at")).uid("times").key_by(key).uid("by")
        keyed.tumbling_window(4).aggregate(Count()).uid("w").collect("out")

    said = {one.operator: one.because is None for one in report(build).columns}
    with Harness(build, parallelism=1) as harness:
        counts = harness.run_epoch().counts

    taken = {uid: counts[uid].on_columns for uid in ("times", "by", "w-combine")}
    assert taken == {uid: 9 * said[uid] for uid in taken}
    assert [counts[uid].records_in for uid in taken] == [9, 9, 9]


def test_workers_count_what_a_filter_on_columns_lets_through(tmp_path):
    path = tmp_path / "readings.jsonl"
    path.write_text("".join(f'{{"sensor":"a","at":{at},"value":{at}}}\n' for at in range(9)))

    def build(env):
        readings = large(env.read_jsonl(path).uid("readings"))
        timed = readings.assign_timestamps(itemgetter("at")).uid("times")
        windows = timed.key_by(itemgetter("sensor")).uid("by").tumbling_window(4)
        windows.sum(itemgetter("value")).uid("w").collect("out")

    with Harness(build, parallelism=1) as harness:
        counts = harness.run_epoch().counts
        harness.run()
        results = list(map(tuple, harness.results("out")))

    assert results == [("a", 4, 8, 22), ("a", 8, 12, 8)]
    assert [counts[uid].on_columns for uid in ("f", "times", "by", "w-combine")] == [9, 5, 5, 5]
    assert [counts[uid].records_out for uid in ("f", "times", "by")] == [5, 5, 5]
