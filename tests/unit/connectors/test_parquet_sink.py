"""The Parquet sink: columns, folders, when parts are complete, and what others read of it."""

import errno
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import polars
import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.errors import (
    OUTPUT_TAKEN_OVER,
    STAGED_FILE_DAMAGED,
    TABLE_DIFFERS,
)
from bicycle_runtime.connectors.tables import held_rows
from bicycle_runtime.contract import WriterTask
from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter
from bicycle_sdk.sinks import by_date, by_field, parquet_sink
from tests.raising import raises
from tests.unit.connectors.parquet_parts import events, files, rows

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


# --- folders ---------------------------------------------------------------------------------


def test_a_field_names_folders_that_every_reader_knows(table, out):
    cities = ["brest", "Köln/Deutz", "a=b", None, ""]
    run = table(tuple[int, str | None], partition_by="field", partition_field="field_2")
    run.run_epoch([list(enumerate(cities))], is_last=True)

    assert {name.rpartition("/")[0] for name in files(out)} == {
        "field_2=brest", "field_2=K%C3%B6ln%2FDeutz", "field_2=a%3Db",
        "field_2=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    found = duckdb.sql(
        f"select field_1, field_2 from read_parquet('{out}/**/*.parquet', hive_partitioning=true) "
        "order by 1"
    ).fetchall()
    assert found == list(enumerate(["brest", "Köln/Deutz", "a=b", None, None]))
    frame = polars.read_parquet(f"{out}/**/*.parquet", hive_partitioning=True).sort("field_1")
    assert frame["field_2"].to_list()[:3] == ["brest", "Köln/Deutz", "a=b"]


@pytest.mark.parametrize(
    ("form", "folders"),
    [
        ("%Y-%m-%d", {"dt=1969-12-31", "dt=2026-03-01", "dt=2026-03-02"}),
        ("%Y-%m", {"dt=1969-12", "dt=2026-03"}),
    ],
)
def test_dates_name_folders_and_the_field_stays(table, out, form, folders):
    times = [AT, AT.replace(day=2), datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]
    run = table(
        tuple[int, datetime], partition_by="date", partition_field="field_2", partition_format=form
    )
    run.run_epoch([list(enumerate(times))], is_last=True)

    assert {name.rpartition("/")[0] for name in files(out)} == folders
    assert sorted((row["field_1"], row["field_2"]) for row in rows(out)) == list(enumerate(times))


def test_the_event_time_names_folders(tmp_path):
    def job(env):
        times = env.from_collection([0, 86_400_000]).assign_timestamps(lambda ms: ms)
        times.sink_to(parquet_sink(tmp_path / "out", folders=by_date())).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    names = {name.rpartition("/")[0] for name in files(tmp_path / "out")}
    assert names == {"dt=1970-01-01", "dt=1970-01-02"}


def test_a_record_without_event_time_has_no_folder(tmp_path):
    def job(env):
        numbers = env.from_collection([1, 2])
        sink = numbers.sink_to(parquet_sink(tmp_path / "out", folders=by_date()))
        sink.uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        reasons = [letter["message"] for letter in harness.dead_letters]
    assert ["no event time" in reason for reason in reasons] == [True, True]


@pytest.mark.extended
def test_nothing_is_lost_among_ten_thousand_folders(table, out):
    count = 10_000  # Files: most of the time goes into opening them.
    run = table(tuple[int, int], partition_by="field", partition_field="field_2")
    for epoch in range(2):
        numbers = range(epoch * count, (epoch + 1) * count)
        run.run_epoch([[(number, number % count) for number in numbers]], is_last=epoch == 1)

    assert len(files(out)) == count
    found = Counter(row["field_1"] for row in rows(out))
    assert found == Counter(range(2 * count))


# --- parts -----------------------------------------------------------------------------------


def test_small_epochs_make_few_files_however_many_they_are(table, out):
    run = table(roll_ms=1_000_000)
    for number in range(150):
        run.run_epoch([events([2 * number]), events([2 * number + 1])])
        run.collect()
        assert len(run.state["held"]["files"]) <= 64
        assert files(out) == []
    run.restart()
    run.services.clock.advance(1_000_000)
    run.run_epoch([])

    assert len(files(out)) == 1
    assert rows(out) == events(range(300))


def test_open_parts_of_a_folder_are_joined_without_rows_that_are_visible(table, out):
    run = table(partition_by="field", partition_field="user", roll_rows=40)
    for number in range(100):
        run.run_epoch([events([0, 0, 0, number % 5])])
        run.collect()
        run.restart()
    run.run_epoch([], is_last=True)

    counts = Counter()
    for name in files(out):
        found = parquet.ParquetFile(out / name).metadata.num_rows
        assert found <= 40
        counts[name.partition("/")[0]] += found
    assert counts == {"user=user 0": 320, **{f"user=user {each}": 20 for each in range(1, 5)}}


def test_files_whose_rows_are_all_visible_are_not_held(table, out):
    run = table(partition_by="field", partition_field="user", roll_rows=2)
    for number in range(40):
        run.run_epoch([events([10 * number, 10 * number + 5])])
        assert run.state["held"]["files"] == []
        run.collect()

    assert len(rows(out)) == 80
    assert (run.sink.waiting(), run.sink.deadline_ms()) == (None, None)


def test_files_without_rows_are_joined_when_another_file_has_some(table, out):
    run = table(partition_by="field", partition_field="user", roll_rows=2)
    run.run_epoch([events([1])])
    for number in range(70):
        run.run_epoch([events([10 * number, 10 * number + 5])])
        run.collect()
        run.restart()
        assert len(run.state["held"]["files"]) <= 64
    assert {name.partition("/")[0] for name in files(out)} == {"user=user 0"}
    run.run_epoch([], is_last=True)

    assert sorted(row["n"] for row in rows(out)) == [0, 1, *range(5, 700, 5)]


def group_rows(path):
    metadata = parquet.ParquetFile(path).metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_large_row_groups_lie_in_a_part_as_they_were_staged(table, out, monkeypatch):
    monkeypatch.setattr(held_rows, "_LARGE_GROUP_ROWS", 4)
    run = table()
    for start in (0, 5, 10):
        run.run_epoch([events(range(start, start + 5))])
    run.restart()
    run.run_epoch([], is_last=True)

    [name] = files(out)
    assert group_rows(out / name) == [5, 5, 5]
    assert rows(out) == events(range(15))
    assert duckdb.sql(f"select sum(n) from '{out / name}'").fetchall() == [(105,)]


@pytest.mark.parametrize("change", ["small groups", "other compression", "other columns"])
def test_row_groups_that_do_not_fit_are_written_again(table, out, monkeypatch, change):
    monkeypatch.setattr(held_rows, "_LARGE_GROUP_ROWS", 6 if change == "small groups" else 4)
    columns = {"user": "str", "n": "int"}
    run = table(columns=columns)
    run.run_epoch([events(range(5))])
    changed = {
        "other compression": {"compression": "zstd"},
        "other columns": {"columns": {**columns, "more": "int"}},
    }.get(change, {})
    run.spec = replace(run.spec, properties={**run.spec.properties, **changed})
    run.restart()
    run.run_epoch([events(range(5, 10))])
    run.run_epoch([], is_last=True)

    found = [(row["user"], row["n"]) for row in rows(out)]
    assert found == [(f"user {n % 5}", n) for n in range(10)]
    assert [group_rows(out / name) for name in files(out)] == (
        [[5], [5]] if change == "other columns" else [[10]]
    )


def test_values_that_do_not_come_again_have_no_dictionary(table, out):
    table(tuple[int, str]).run_epoch([[(n, f"word {n % 9}") for n in range(99)]], is_last=True)

    [name] = files(out)
    group = parquet.ParquetFile(out / name).metadata.row_group(0)
    assert [group.column(place).has_dictionary_page for place in (0, 1)] == [False, True]


def test_a_part_is_complete_when_it_has_enough_rows_and_has_no_more(table, out):
    run = table(roll_rows=10)
    for number in range(0, 28, 4):
        run.run_epoch([events(range(number, number + 4))])
    assert [len(parquet.read_table(out / name)) for name in files(out)] == [8, 8, 8]
    run.run_epoch([events(range(28, 60))])
    run.run_epoch([], is_last=True)

    lengths = [len(parquet.read_table(out / name)) for name in files(out)]
    assert lengths == [8, 8, 8, 4, 10, 10, 10, 2]
    assert rows(out) == events(range(60))


def test_a_part_is_complete_when_it_has_enough_bytes(table, out):
    run = table(roll_bytes=2_000)
    for number in range(40):
        run.run_epoch([events([number])])

    assert 2 <= len(files(out)) <= 30
    run.run_epoch([], is_last=True)
    assert rows(out) == events(range(40))


def test_all_is_completed_when_open_parts_have_too_many_bytes(table, out):
    run = table(partition_by="field", partition_field="user", open_bytes_max=1)
    run.run_epoch([events(range(20))])

    assert len(files(out)) == 5


def test_rows_become_visible_when_they_are_old_enough(table, out):
    run = table(roll_ms=1_000)
    run.run_epoch([events([1])])
    waiting = run.sink.waiting()
    assert (waiting.record_count, waiting.visible_ms) == (1, run.sink.deadline_ms())
    run.services.clock.advance(600)
    run.restart()
    run.run_epoch([events([2])])
    assert files(out) == []
    run.services.clock.advance(400)
    run.run_epoch([])

    assert rows(out) == events([1, 2])
    assert (run.sink.waiting(), run.sink.deadline_ms()) == (None, None)


@pytest.mark.parametrize("name", ["snappy", "zstd", "gzip", "none"])
def test_files_are_compressed_as_asked_for(table, out, name):
    table(compression=name).run_epoch([events(range(9))], is_last=True)

    [file] = files(out)
    found = parquet.ParquetFile(out / file).metadata.row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(name, name.upper())


def test_names_differ_between_plans_and_runs(table, out, tmp_path):
    first = table(roll_rows=5)
    first.run_epoch([events(range(7)), events(range(7, 14))], is_last=True)
    table(roll_rows=5).run_epoch([events(range(14, 20))], is_last=True)

    names = [name.rpartition("/")[2] for name in files(out)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"part-\d{10}-\d{4}-\d{4}-[0-9a-f]{6}\.parquet", n) for n in names)
    assert sorted(row["n"] for row in rows(out)) == list(range(20))


def test_what_is_held_keeps_its_columns_when_the_job_changes(table, out):
    run = table(tuple[int, str])
    run.run_epoch([[(1, "a")]])
    run.spec = replace(run.spec, record_type=tuple[int, str, float])
    run.restart()
    run.run_epoch([[(2, "b", 0.5)]])
    run.run_epoch([], is_last=True)

    place = f"read_parquet('{out}/*.parquet', union_by_name=true)"
    assert duckdb.sql(f"select * from {place} order by 1").fetchall() == [
        (1, "a", None),
        (2, "b", 0.5),
    ]


def test_files_of_other_columns_are_told_before_the_start(table, out):
    table(tuple[int, str]).run_epoch([[(1, "a")]], is_last=True)

    with raises(TABLE_DIFFERS) as caught:
        table(tuple[int, float])
    assert "'field_2' is string" in caught.value.facts["problem"]


def test_parts_that_are_not_sealed_any_more_are_taken_back(table, out, tmp_path):
    run = table(roll_rows=2)
    run.run_epoch([events([1, 2])])
    sealed = (run.epoch, run.state)
    run.run_epoch([events([3, 4])])
    assert len(files(out)) == 2
    run.epoch, run.state = sealed
    run.restart()

    assert rows(out) == events([1, 2])
    kept = list(tmp_path.glob("checkpoints/connectors/v/withdrawn/part-*.parquet"))
    assert [parquet.read_table(path).to_pylist() for path in kept] == [events([3, 4])]


@pytest.mark.parametrize("is_linked", [True, False])
def test_held_rows_come_again_after_a_fallback_to_an_epoch_that_holds_them(
    table, out, monkeypatch, is_linked
):
    if not is_linked:
        monkeypatch.setattr(os, "link", refuse_link)
    run = table()
    run.run_epoch([events([1, 2])])
    sealed = (run.epoch, run.state)
    run.run_epoch([], is_last=True)
    assert rows(out) == events([1, 2])
    run.epoch, run.state = sealed
    run.restart()
    assert rows(out) == []
    run.run_epoch([], is_last=True)
    run.run_epoch([])
    run.collect()

    assert rows(out) == events([1, 2])
    assert run.services.storage.list("staged") == []


def refuse_link(source, target, **_):
    raise OSError(errno.EXDEV, "Invalid cross-device link", source, None, target)


def test_who_was_replaced_publishes_nothing(table, out):
    run = table(roll_rows=1)
    run.seal([events([1])])
    old, epoch, state = run.sink, run.epoch, run.state
    run.restart()

    with raises(OUTPUT_TAKEN_OVER):
        old.publish(epoch, state)
    assert rows(out) == events([1])


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_damaged_staged_file_is_not_published(table, out, is_partitioned):
    properties = {"partition_by": "field", "partition_field": "user"} if is_partitioned else {}
    run = table(**properties)
    run.seal([events([1])], is_last=True)
    [path] = run.services.storage.list("staged")
    data = bytearray(run.services.storage.read(path))
    data[len(data) // 3] ^= 1
    run.services.storage.write(path, bytes(data))

    with raises(STAGED_FILE_DAMAGED):
        run.publish()
    assert files(out) == []


@pytest.mark.parametrize("share", [0.3, 0.999])
def test_a_damaged_file_is_not_copied_into_a_part(table, out, monkeypatch, share):
    monkeypatch.setattr(held_rows, "_LARGE_GROUP_ROWS", 1)
    run = table()
    run.run_epoch([events([1, 2])])
    run.seal([events([3, 4])], is_last=True)
    path = run.services.storage.list("staged")[0]
    data = bytearray(run.services.storage.read(path))
    data[int(len(data) * share) - 5] ^= 1
    run.services.storage.write(path, bytes(data))

    with raises(STAGED_FILE_DAMAGED):
        run.publish()
    assert files(out) == []


def test_a_calls_options_go_to_the_connector():
    sink = parquet_sink("out", folders=by_field("city"), columns={"n": int}, roll_rows=5)

    assert sink.properties == {
        "path": "out", "partition_by": "field", "partition_field": "city",
        "columns": [["n", "int"]], "roll_rows": 5,
    }  # fmt: skip


def test_memory_of_a_writer_does_not_grow_with_the_epoch(table, out):
    run = table(tuple[int, str])
    writer = run.sink.writer().open(writer_task(run))
    before = pyarrow.total_allocated_bytes()
    most = 0
    for start in range(0, 500_000, 50_000):
        writer.write(writer.prepare([(n, "x" * 50) for n in range(start, start + 50_000)], None))
        most = max(most, pyarrow.total_allocated_bytes() - before)
    files_of = writer.finish()

    assert sum(file.record_count for file in files_of) == 500_000
    assert most < 64 << 20


def writer_task(run):
    return WriterTask(storage=run.services.storage, prefix="staged/1/0-0", epoch=1, subtask=0)
