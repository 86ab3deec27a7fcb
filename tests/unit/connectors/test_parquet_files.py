"""Parquet files to records: types, bad rows, times, places in a file, files that are none."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.errors import NO_PARQUET_FILE
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.frames.table_columns import TableColumns
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


@dataclass
class Holder:
    a: Any
    n: int


@dataclass
class Inner:
    counts: dict[str, int]


@dataclass
class Counts:
    counts: dict[str, int]
    inner: Inner
    many: list[dict[str, int]]


@dataclass
class OnlyCounts:
    counts: Mapping[str, int]


@dataclass
class Pairs:
    counts: list[tuple[str, int]]


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


def text_of(data):
    """Return a column of texts with one that is not UTF-8."""
    return pyarrow.Array.from_buffers(
        pyarrow.string(), len(data), pyarrow.array(data, pyarrow.binary()).buffers()
    )


def numbers_as(kind, *numbers):
    return pyarrow.array(numbers, pyarrow.int64()).cast(kind)


_BAD_VALUES = {
    "time": (
        numbers_as(pyarrow.timestamp("us"), 0, 2**62, 1),
        datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None),
        b"out of range",
    ),
    "time in a zone": (
        numbers_as(pyarrow.timestamp("ms", "UTC"), 0, 2**62, 1),
        datetime(1970, 1, 1, tzinfo=UTC),
        b"out of range",
    ),
    "day": (
        pyarrow.array([0, 10**8, 1], pyarrow.int32()).cast(pyarrow.date32()),
        date(1970, 1, 1),
        b"100000000",
    ),
    "span": (numbers_as(pyarrow.duration("ms"), 0, 2**62, 1), timedelta(0), str(2**62).encode()),
    "text": (text_of([b"a", b"a\xff", b"b"]), "a", b"a"),
    "text of a dictionary": (text_of([b"a", b"a\xff", b"b"]).dictionary_encode(), "a", b"a"),
    "text in a list": (
        pyarrow.ListArray.from_arrays([0, 1, 2, 3], text_of([b"a", b"a\xff", b"b"])),
        ["a"],
        b"a",
    ),
}


@pytest.mark.parametrize("kind", _BAD_VALUES)
@pytest.mark.parametrize("record_type", ["frames", None, Holder])
def test_a_value_that_python_cannot_hold_is_a_bad_record(tmp_path, source, kind, record_type):
    column, first, raw = _BAD_VALUES[kind]
    parquet.write_table(pyarrow.table({"a": column, "n": [1, 2, 3]}), tmp_path / "in.parquet")
    run = source(record_type=None if record_type == "frames" else record_type)
    if record_type == "frames":
        assert run.reader.give_fields()

    [epoch] = run.drain()

    [failure] = epoch.failures
    found = [value if isinstance(value, dict) else vars(value) for value in epoch.values]
    assert [(value["n"], failure.offset) for value in found] == [(1, 1), (3, 1)]
    assert found[0]["a"] == first
    assert "column 'a'" in failure.reason
    assert raw in failure.raw and b'"n":2' in failure.raw


def test_bad_values_and_rows_that_do_not_fit_come_in_their_order(tmp_path, source):
    users = text_of([b"a", b"\xff", b"b", b"c"])
    cents = pyarrow.array([None, 2, 3, None], pyarrow.int64())
    parquet.write_table(pyarrow.table({"user": users, "cents": cents}), tmp_path / "in.parquet")
    [epoch] = source(record_type=Order).drain()

    assert [failure.offset for failure in epoch.failures] == [0, 1, 3]
    assert epoch.values == [Order("b", 3)]


def test_extreme_values_that_python_can_hold_stay(tmp_path, source):
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    days = 106_751_991
    rows = [
        {"at": first, "day": date.min, "span": timedelta(-days)},
        {"at": last, "day": date.max, "span": timedelta(days)},
        {"at": None, "day": None, "span": None},
    ]
    write(tmp_path / "in.parquet", rows)
    run = source()
    run.reader.give_fields()

    assert values_of(run.drain()) == rows


def test_maps_become_dicts_where_a_type_has_dicts(tmp_path, source):
    counts = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    schema = pyarrow.schema(
        {
            "counts": counts,
            "inner": pyarrow.struct({"counts": counts}),
            "many": pyarrow.list_(counts),
        }
    )
    row = {"counts": {"x": 1}, "inner": {"counts": {"y": 2}}, "many": [{"z": 3}, {}]}
    write(tmp_path / "in.parquet", [row], schema=schema)

    assert values_of(source(record_type=Counts).drain()) == [
        Counts({"x": 1}, Inner({"y": 2}), [{"z": 3}, {}])
    ]
    assert values_of(source(record_type=Pairs).drain()) == [Pairs([("x", 1)])]
    assert values_of(source().drain())[0]["counts"] == [("x", 1)]


def test_a_map_with_a_key_twice_is_a_bad_record_where_a_type_has_a_dict(tmp_path, source):
    schema = pyarrow.schema({"counts": pyarrow.map_(pyarrow.string(), pyarrow.int64())})
    rows = [{"counts": [("x", 1), ("x", 2)]}, {"counts": [("x", 1), ("y", 2)]}]
    write(tmp_path / "in.parquet", rows, schema=schema)
    [epoch] = source(record_type=OnlyCounts).drain()

    assert epoch.values == [OnlyCounts({"x": 1, "y": 2})]
    assert [failure.offset for failure in epoch.failures] == [0]


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


class Journey(NamedTuple):
    first: Named
    stops: list[Named]
    pairs: dict[str, tuple[int, str]]
    last: Named | None = None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (
            Journey,
            Journey(Named("ada", 1), [Named("bob", 2, "there")], {"a": (1, "x")}, Named("c", 3)),
        ),
        (tuple[int, Named], (1, Named("ada", 2))),
    ],
)
def test_tuples_within_records_are_read_as_the_sink_wrote_them(tmp_path, source, kind, value):
    rows = TableColumns.of_type(kind, "").batch([value], None)
    parquet.write_table(pyarrow.Table.from_batches([rows]), tmp_path / "in.parquet")

    assert values_of(source(record_type=kind).drain()) == [value]
