"""Windows on columns: it shows in nothing but the work that is done."""

import json
from dataclasses import dataclass

import pytest

from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.keys import key_column
from bicycle_runtime.operators.columnar import fold
from bicycle_runtime.operators.columnar.field_columns import field_columns
from bicycle_runtime.operators.columnar.merge import ColumnMerge, result_columns
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.windows import kept_slices
from bicycle_runtime.operators.windows.blocks import open_block, seal_block
from bicycle_runtime.testing import Harness
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.windows import Average, Count, Sum, WindowPlan, tumbling_windows


@dataclass
class Reading:
    sensor: str
    at: int
    value: int
    share: float = 0.5
    code: int = 1


def sensor_of(reading):
    return reading.sensor


def time_of(reading):
    return reading.at


def value_of(reading):
    return reading.value


def written(tmp_path, readings):
    path = tmp_path / "readings.jsonl"
    lines = [
        json.dumps({"sensor": sensor, "at": at, "value": value}) for sensor, at, value in readings
    ]
    path.write_text("\n".join(lines))
    return path


def results(path, *, key=sensor_of, parallelism=2):
    def job(env):
        readings = env.read_jsonl(path, type=Reading)
        strategy = WatermarkStrategy.bounded_out_of_orderness(5).with_timestamps(time_of)
        keyed = readings.assign_timestamps(strategy).key_by(key)
        windows = keyed.tumbling_window(10)
        windows.aggregate(Count(), Sum(value_of), Average(value_of)).collect("out")

    with Harness(job, parallelism=parallelism) as harness:
        harness.run()
        return list(map(tuple, harness.results("out")))


@pytest.fixture
def no_records(monkeypatch):
    """Let a source's records be made nowhere."""
    monkeypatch.setattr(FieldRows, "create", None)


READINGS = [("b", 1, 5), ("a", 12, 7), ("a", 3, -2), ("b", 9, 1), ("a", 11, 3)]


@pytest.mark.usefixtures("no_records")
def test_no_record_is_made(tmp_path):
    assert sorted(results(written(tmp_path, READINGS))) == [
        ("a", 0, 10, (1, -2, -2.0)),
        ("a", 10, 20, (2, 10, 5.0)),
        ("b", 0, 10, (2, 6, 3.0)),
    ]


@pytest.mark.usefixtures("no_records")
def test_ints_are_keys_too(tmp_path):
    found = results(written(tmp_path, READINGS), key=lambda reading: reading.code)

    assert found == [(1, 0, 10, (3, 4, 4 / 3)), (1, 10, 20, (2, 10, 5.0))]


@pytest.mark.parametrize("key", [lambda reading: reading.code, lambda reading: sum([reading.code])])
def test_an_int_that_can_be_no_key_is_refused_by_key_by(tmp_path, key):
    path = tmp_path / "readings.jsonl"
    path.write_text('{"sensor":"a","at":1,"value":1,"code":1' + "0" * 300 + "}\n")

    with pytest.raises(BicycleError) as caught:
        results(path, key=key)

    assert caught.value.facts["operator"] == "vertex_3"  # behind the source and its times
    assert caught.value.facts["offset"] == 0


def test_windows_come_in_the_order_of_time_and_key_whichever_way_they_are_folded(tmp_path):
    sensors = [f"sensor-{number % 37}" for number in range(500)]
    path = written(tmp_path, [(name, n % 60, n) for n, name in enumerate(sensors)])

    by_field = results(path, parallelism=1)

    assert by_field == results(path, key=lambda reading: "".join(reading.sensor), parallelism=1)
    assert [row[1] for row in by_field] == sorted(row[1] for row in by_field)


def test_what_is_held_back_travels_when_there_is_much_of_it(tmp_path, monkeypatch):
    path = written(tmp_path, READINGS * 50)
    at_once = results(path)
    monkeypatch.setattr(fold, "_ROWS_MAX", 1)

    assert results(path) == at_once


def test_little_travels_as_records_would_have_left_it(tmp_path, monkeypatch):
    path = written(tmp_path, READINGS * 50)
    little = results(path)
    monkeypatch.setattr(fold, "_CONTENTS_MIN", 0)

    assert results(path) == little


@pytest.mark.parametrize("key", [sensor_of, lambda reading: "".join(reading.sensor)])
def test_results_leave_in_batches_of_whole_windows(tmp_path, monkeypatch, key):
    path = written(tmp_path, [("a", time, time) for time in range(100)])
    at_once = results(path, key=key)
    monkeypatch.setattr(kept_slices, "_RESULTS_PER_BATCH", 3)

    assert results(path, key=key) == at_once
    assert len(at_once) == 10


def test_keys_are_forgotten_between_epochs_when_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(fold, "_KEYS_MAX", 1)
    path = written(tmp_path, READINGS)

    assert sorted(results(path)) == sorted(
        results(path, key=lambda reading: "".join(reading.sensor))
    )


@pytest.mark.parametrize("value", [2**61, 2**62, 2**63 - 1, 2**63, -(2**63), 10**40])
def test_sums_beyond_64_bits_are_exact(tmp_path, value):
    readings = [("a", 1, value), ("a", 2, value), ("a", 3, value), ("b", 4, 1)]

    assert sorted(results(written(tmp_path, readings))) == [
        ("a", 0, 10, (3, 3 * value, 3 * value / 3)), ("b", 0, 10, (1, 1, 1.0))
    ]  # fmt: skip


def test_sums_of_several_tasks_beyond_64_bits_are_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(fold, "_ROWS_MAX", 1)
    folder = tmp_path / "several"
    folder.mkdir()
    for number in range(4):
        place = tmp_path / str(number)
        place.mkdir()
        written(place, [("a", 1, 2**62), ("c", number, number)]).rename(folder / f"{number}.jsonl")

    assert sorted(results(folder)) == [
        ("a", 0, 10, (4, 2**64, float(2**62))), ("c", 0, 10, (4, 6, 1.5))
    ]  # fmt: skip


def test_times_far_apart_are_no_matter(tmp_path):
    far = 10**14
    readings = [("a", -far, 1), ("a", far, 2), ("b", 0, 3)]

    assert sorted(results(written(tmp_path, readings)), key=lambda row: row[1]) == [
        ("a", -far, -far + 10, (1, 1, 1.0)),
        ("b", 0, 10, (1, 3, 3.0)),
        ("a", far, far + 10, (1, 2, 2.0)),
    ]


def test_strings_and_ints_that_arrive_together_are_kept_apart(monkeypatch):
    monkeypatch.setattr(fold, "_CONTENTS_MIN", 0)
    plan = WindowPlan(assigner=tumbling_windows(10), aggregates=[Count()])
    columns = field_columns(Folding(plan, Reading).functions)
    readings = [Reading("1", 3, 7), Reading("2", 4, 7), Reading("1", 12, 7)]
    records = Frame.of_rows(FieldRows(objects=readings, make=None))
    merge = ColumnMerge(columns, step_ms=10)
    for key in ("sensor", "code"):
        folded = fold.ColumnFold(columns, plan.assigner, group_count=128)
        starts, inside = folded.starts(records.field("at").numbers)
        assert inside is None
        assert folded.add(key_column(records.field(key)), starts, {})
        for group, block in folded.take():
            merge.add(group, open_block(seal_block(block)))

    windows = list(merge.take())

    found = [
        row
        for starts, keys, (counts,) in map(result_columns, zip(windows))
        for row in zip(starts.tolist(), keys, counts, strict=True)
    ]
    assert sorted(found, key=str) == [
        (0, "1", 1), (0, "2", 1), (0, 1, 2), (10, "1", 1), (10, 1, 1)
    ]  # fmt: skip
    assert not any(window.is_whole for window in windows)


def test_a_line_that_is_no_object_is_a_bad_one_on_columns_too(tmp_path):
    path = tmp_path / "readings.jsonl"
    path.write_text('{"sensor":"a","at":1}\n[1]\n{"sensor":"a","at":12}\n')

    def job(env):
        readings = env.read_jsonl(path).uid("readings").on_error("dead_letter")
        timed = readings.assign_timestamps(lambda reading: reading["at"])
        timed.key_by(lambda reading: reading["sensor"]).tumbling_window(10).count().collect("out")

    with Harness(job) as harness:
        harness.run()
        assert len(harness.results("out")) == 2
        (letter,) = harness.dead_letters
    assert (letter["operator"], letter["message"]) == (
        "readings", "Expected `object`, got `array`"
    )  # fmt: skip
