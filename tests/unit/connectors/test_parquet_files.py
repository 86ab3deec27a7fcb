"""Parquet files to records: types, bad rows, times, places in a file, files that are none."""

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.errors import NO_PARQUET_FILE
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing.connectors.running import SourceRun, services_in, values_of
from tests.raising import raises


class Named(NamedTuple):
    user: str
    cents: int
    place: str = "here"


AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Order:
    user: str
    cents: int


@pytest.fixture
def source(tmp_path):
    runs = []

    def start(path=tmp_path / "in.parquet", record_type=None, **properties):
        spec = ConnectorSpec(
            vertex_id="rows",
            connector_type="parquet",
            properties={"path": str(path), **properties},
            record_type=record_type,
        )
        runs.append(SourceRun(spec, services_in(tmp_path)).start())
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


def write(path, rows, *, group_size=None, schema=None):
    table = pyarrow.Table.from_pylist(rows, schema=schema)
    parquet.write_table(table, path, row_group_size=group_size)


def test_rows_are_dicts_of_python_values(tmp_path, source):
    rows = [{"user": "ada", "at": AT, "tags": ["a", "b"]}, {"user": "bob", "at": None, "tags": []}]
    write(tmp_path / "in.parquet", rows)

    assert values_of(source().drain()) == rows


def test_a_type_takes_its_columns_by_name_and_a_row_that_does_not_fit_is_a_bad_record(
    tmp_path, source
):
    rows = [
        {"user": "ada", "cents": 1, "note": "x"},
        {"user": None, "cents": 2, "note": "y"},
        {"user": "bob", "cents": 3, "note": "z"},
    ]
    write(tmp_path / "in.parquet", rows)
    run = source(record_type=Order)
    [epoch] = run.drain()

    assert epoch.values == [Order("ada", 1), Order("bob", 3)]
    [failure] = epoch.failures
    assert (failure.offset, failure.raw) == (1, b'{"user":null,"cents":2}')
    assert run.source.describe(epoch.slices[0].shard, 1).endswith("in.parquet row 2")


def test_rows_become_named_tuples_by_the_names_of_the_columns(tmp_path, source):
    write(tmp_path / "in.parquet", [{"cents": 1, "note": "x", "user": "ada"}])

    assert values_of(source(record_type=Named).drain()) == [Named("ada", 1)]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("size", [3, 10, 20])
def test_epochs_end_within_row_groups_and_go_on_there(tmp_path, source, restarts, size):
    rows = [{"n": number} for number in range(32)]
    write(tmp_path / "in.parquet", rows, group_size=12)
    budget = Budget(record_count=size, byte_count=1 << 20, parallelism=2)
    epochs = source().drain(budget, restarts=restarts)

    assert values_of(epochs) == rows
    assert max(len(epoch.values) for epoch in epochs) == size


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_event_time_comes_from_a_column_also_in_nanoseconds(tmp_path, source, unit):
    schema = pyarrow.schema([("at", pyarrow.timestamp(unit, "UTC")), ("n", pyarrow.int64())])
    write(tmp_path / "in.parquet", [{"at": AT, "n": 1}, {"at": None, "n": 2}], schema=schema)
    [epoch] = source(timestamp_field="at").drain()

    [batch] = [batch for batch in epoch.all_batches if batch.values]
    assert batch.timestamps == [int(AT.timestamp() * 1_000)]
    assert [failure.offset for failure in epoch.failures] == [1]
    assert b'"n":2' in epoch.failures[0].raw


def test_a_folder_is_read_without_the_marks_of_who_wrote_it_and_new_files_are_found(
    tmp_path, source
):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    write(folder / "a.parquet", [{"n": 1}])
    run = source(folder, follow=True)
    assert values_of(run.drain()) == [{"n": 1}]
    write(folder / "b.parquet", [{"n": 2}])
    run.services.clock.advance(1_000)

    assert values_of(run.drain()) == [{"n": 2}]


@pytest.mark.parametrize("size", [0, 10, 60])
def test_a_file_that_is_none_or_cut_is_named(tmp_path, source, size):
    path = tmp_path / "in.parquet"
    write(path, [{"n": number} for number in range(10)])
    path.write_bytes(path.read_bytes()[:size])

    with raises(NO_PARQUET_FILE) as refused:
        source().drain()

    assert refused.value.facts["path"] == str(path)


def test_a_lack_of_memory_is_no_damage_of_the_file(tmp_path, source, monkeypatch):
    write(tmp_path / "in.parquet", [{"n": number} for number in range(10)])
    run = source()

    def lack_memory(*_arguments, **_options):
        raise pyarrow.ArrowMemoryError("malloc of size 400 MB failed")

    with monkeypatch.context() as patch:
        patch.setattr(parquet.ParquetFile, "iter_batches", lack_memory)
        with pytest.raises(MemoryError):
            run.drain()
    assert len(values_of(source().drain())) == 10


def test_a_file_without_rows_is_read(tmp_path, source):
    write(tmp_path / "in.parquet", [], schema=pyarrow.schema([("n", pyarrow.int64())]))

    assert values_of(source().drain()) == []


def test_a_reader_travels_without_open_files(tmp_path, source):
    write(tmp_path / "in.parquet", [{"n": 1}])
    run = source()
    run.drain()

    assert len(pickle.dumps(run.reader)) < 200


_LARGE = "x" * 100_000
_MANY = 1_000


def _repeat(value, count=_MANY):
    """Return a column of one value, which Parquet stores once."""
    return pyarrow.array([value]).take(pyarrow.array([0] * count))


_ENDS = pyarrow.array(range(_MANY + 1), pyarrow.int32())
_COLUMNS = {
    "text": lambda: _repeat(_LARGE),
    "plain": lambda: _repeat(_LARGE),
    "differences": lambda: _repeat(_LARGE),
    "after-small": lambda: pyarrow.concat_arrays([_repeat("x", 10_000), _repeat(_LARGE)]),
    "after-null": lambda: pyarrow.concat_arrays(
        [pyarrow.nulls(1, pyarrow.string()), _repeat(_LARGE)]
    ),
    "list": lambda: pyarrow.ListArray.from_arrays(_ENDS, _repeat(_LARGE)),
    "struct": lambda: pyarrow.StructArray.from_arrays(
        [_repeat("key"), _repeat(_LARGE)], ["key", "value"]
    ),
    "map": lambda: pyarrow.MapArray.from_arrays(_ENDS, _repeat("key"), _repeat(_LARGE)),
    "numbers": lambda: _repeat([7] * 12_500),
}


@pytest.mark.parametrize("kind", _COLUMNS)
def test_rows_of_a_small_file_are_decoded_in_bounded_pieces(tmp_path, source, kind):
    column = _COLUMNS[kind]()
    parquet.write_table(
        pyarrow.table({"a": column}), tmp_path / "in.parquet",
        compression="zstd", use_dictionary=kind not in ("plain", "differences"),
        column_encoding={"a": "DELTA_BYTE_ARRAY"} if kind == "differences" else None,
    )  # fmt: skip
    expected, run = len(column), source()
    del column
    before = pyarrow.total_allocated_bytes()
    run.source.poll()
    (part,) = run.source.plan(Budget(record_count=100_000, byte_count=1 << 30, parallelism=1))

    sizes, held = [], []
    for batch in run.source.reader().read(part):
        sizes.append(len(batch.values))
        held.append(pyarrow.total_allocated_bytes() - before)

    assert sum(sizes) == expected
    if kind == "differences":  # A page of plain values is held as a whole.
        assert max(held) < 32 << 20
    assert max(sizes[-4:]) <= (16 << 20) // len(_LARGE) + 1
