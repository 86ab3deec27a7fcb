"""Slices of files where records wait for calls in flight, and of many small files."""

from collections import Counter

import pytest

from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing.connectors import SourceRun, services_in


def start(folder, connector_type="text"):
    spec = ConnectorSpec(
        vertex_id="v", connector_type=connector_type, properties={"path": str(folder)}
    )
    run = SourceRun(spec, services_in(folder)).start()
    run.source.poll()
    return run


def loads(run, slices, parallelism):
    """Return how many records each subtask reads of planned slices."""
    counts = Counter()
    for number, part in enumerate(slices):
        batches = list(run.source.reader().read(part))
        counts[number % parallelism] += sum(len(batch.values) for batch in batches)
    return [counts[subtask] for subtask in range(parallelism)]


def waves(record_count, wave, parallelism=2):
    return Budget(record_count=record_count, byte_count=1 << 20, parallelism=parallelism, wave=wave)


@pytest.mark.parametrize(("parallelism", "expected"), [(1, [900]), (2, [450, 450])])
def test_a_small_file_is_divided_evenly_where_calls_are_in_flight(tmp_path, parallelism, expected):
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" * (1 + n % 3) for n in range(450)))
    run = start(tmp_path)

    slices = run.source.plan(waves(1_000, 200, parallelism))

    assert loads(run, slices, parallelism) == expected
    run.stop()


@pytest.mark.parametrize("end", ["\n", ""])
def test_each_line_is_read_once_and_an_epoch_is_filled_to_the_record(tmp_path, end):
    lines = [f"line {n}" for n in range(1_000)]
    for number in range(10):
        part = lines[number * 100 : number * 100 + 100]
        (tmp_path / f"{number}.txt").write_text("\n".join(part) + end)
    run = start(tmp_path)

    epochs = run.drain(waves(400, 40))

    assert sorted(value for epoch in epochs for value in epoch.values) == sorted(lines)
    assert [len(epoch.values) for epoch in epochs] == [400, 400, 200]
    run.stop()


def test_an_epoch_is_filled_whatever_the_lengths_of_lines(tmp_path):
    for number in range(30):
        lines = [str(n).ljust(1 + (number % 5) * number) for n in range(100)]
        (tmp_path / f"{number:02}.txt").write_text("\n".join(lines) + "\n")
    run = start(tmp_path)

    epochs = run.drain(waves(1_000, 200))

    assert [len(epoch.values) for epoch in epochs] == [1_000, 1_000, 1_000]
    run.stop()


@pytest.mark.parametrize("line_count", [1, 2, 3, 7])
def test_small_files_load_all_subtasks_evenly(tmp_path, line_count):
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text("x\n" * line_count)
    run = start(tmp_path)

    for width in (2, 3):
        counts = loads(run, run.source.plan(waves(1_000, 10, width)), width)
        assert sum(counts) == 40 * line_count
        assert max(counts) - min(counts) <= 1
    run.stop()


def test_a_csv_file_has_one_slice_whatever_is_in_flight(tmp_path):
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 900)
    run = start(tmp_path, "csv")

    (part,) = run.source.plan(waves(1_000, 10))

    assert part.end == 1_802
    run.stop()


def test_an_epoch_reads_as_many_small_files_as_fit(tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text("x\n" * 100)
    run = start(tmp_path)

    epoch = run.read(Budget(record_count=1_000, byte_count=1 << 20, parallelism=1))

    assert 900 <= len(epoch.values) <= 1_000
    run.stop()
