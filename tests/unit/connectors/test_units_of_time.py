"""A number in the place of a time is in ms, in every source of files and every table."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import numpy
import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.sql.tree import column as sql_column
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import ArrowVector, Vector
from bicycle_runtime.pipelines.record_functions import TypedRecord
from bicycle_runtime.testing.connectors.running import SourceRun, services_in

MS = 1_772_368_200_123
AT = datetime(2026, 3, 1, 12, 30, 0, 123_000, tzinfo=UTC)
NOON, NOON_MS = time(12), 12 * 3_600_000


@dataclass(frozen=True)
class Span:
    at: datetime
    hour: time
    length: timedelta
    moments: list[datetime]
    named: dict[str, timedelta]
    day: date | None = None


SPAN = Span(AT, NOON, timedelta(milliseconds=1_500), [AT], {"a": timedelta(milliseconds=2)})


def batches(tmp_path, word, path, *, record_type=None, field=""):
    properties = {"path": str(path), "timestamp_field": field}
    spec = ConnectorSpec(
        vertex_id="v", connector_type=word, properties=properties, record_type=record_type
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    epochs = run.drain(Budget(record_count=1_000, byte_count=1 << 20, parallelism=1))
    run.stop()
    return [batch for epoch in epochs for part in epoch.batches for batch in part]


def values(found):
    assert [batch.failures for batch in found if batch.failures] == []
    return [value for batch in found for value in batch.values]


def table(record_type, declared=None):
    spec = ConnectorSpec(
        vertex_id="v", connector_type="parquet", properties={}, record_type=record_type
    )
    return columns_of(spec, declared, "")


def test_json_numbers_are_ms(tmp_path):
    path = tmp_path / "in.jsonl"
    rest = '"moments": [1772368200123], "named": {"a": 2}'
    path.write_text(
        f'{{"at": {MS}, "hour": {NOON_MS}, "length": 1500.9, {rest}}}\n'
        f'{{"at": "2026-03-01T12:30:00.123Z", "hour": "12:00", "length": "PT1.5S", {rest}}}\n'
        f'{{"at": "soon", "hour": 1, "length": 2, {rest}}}\n',
        encoding="utf-8",
    )

    [batch] = [
        found for found in batches(tmp_path, "jsonl", path, record_type=Span) if found.offsets
    ]
    assert list(batch.values) == [SPAN]
    assert len(batch.failures) == 2  # A time of day without seconds is none in RFC 3339.


@dataclass(frozen=True)
class Moment:
    name: str
    at: datetime | None
    length: timedelta = timedelta(0)


def test_csv_numbers_are_ms_with_a_type_as_without(tmp_path):
    path = tmp_path / "in.csv"
    lines = [
        "name,at,length",
        f"a,{MS},1500",
        f"b,{MS}.9,PT1.5S",
        "c,2026-03-01T12:30:00.123Z,1.5e3",
    ]
    path.write_text("\n".join([*lines, "d,,0", ""]), encoding="utf-8")

    found = values(batches(tmp_path, "csv", path, record_type=Moment))
    assert [each.at for each in found] == [AT, AT, AT, None]
    assert {each.length for each in found[:3]} == {timedelta(milliseconds=1_500)}

    typed = batches(tmp_path, "csv", path, record_type=Moment, field="at")
    plain = batches(tmp_path, "csv", path, field="at")
    assert [time for batch in typed for time in batch.timestamps or ()] == [MS] * 3
    assert [time for batch in plain for time in batch.timestamps or ()] == [MS] * 3


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_times_before_1970_are_rounded_down(tmp_path, unit):
    per_ms = {"ns": 1_000_000, "us": 1_000, "ms": 1}[unit]
    ticks = [-1, -per_ms, -per_ms - 1, 0, 1]
    kind = pyarrow.timestamp(unit, "UTC")
    column = pyarrow.array(ticks, pyarrow.int64()).cast(kind)
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"at": column, "all": [[tick] for tick in ticks]}), path)

    found = batches(tmp_path, "parquet", path, field="at")
    times = [time for batch in found for time in batch.timestamps or ()]
    assert times == [tick // per_ms for tick in ticks]


def test_floats_before_1970_are_rounded_down(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"at": -0.5}\n{"at": -1.0}\n{"at": "-1.5"}\n', encoding="utf-8")

    found = batches(tmp_path, "jsonl", path, field="at")
    assert [time for batch in found for time in batch.timestamps or ()] == [-1, -1, -2]


def test_nanoseconds_within_lists_and_of_durations_are_read(tmp_path):
    at = pyarrow.array([-1_500], pyarrow.int64())
    columns = {
        "length": at.cast(pyarrow.duration("ns")),
        "hour": pyarrow.array([1_500], pyarrow.int64()).cast(pyarrow.time64("ns")),
        "many": pyarrow.ListArray.from_arrays([0, 1], at.cast(pyarrow.timestamp("ns", "UTC"))),
    }
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table(columns), path)

    [row] = values(batches(tmp_path, "parquet", path))
    late = timedelta(microseconds=-2)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert row == {"length": late, "hour": time(0, 0, 0, 1), "many": [epoch + late]}


def test_nanoseconds_of_the_hour_that_a_zone_has_twice_are_read(tmp_path):
    """02:10 on 2020-10-25 is there at 00:10 UTC and at 01:10 UTC."""
    kind = pyarrow.timestamp("ns", "Europe/Berlin")
    times_s = [1_603_584_600, 1_603_588_200, -1]
    column = pyarrow.array([at * 10**9 + 1_999 for at in times_s], pyarrow.int64()).cast(kind)
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"at": column}), path)

    found = [row["at"] for row in values(batches(tmp_path, "parquet", path))]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [at - epoch for at in found] == [timedelta(seconds=at, microseconds=1) for at in times_s]


def test_a_number_of_parquet_is_ms_for_a_declared_time(tmp_path):
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"name": ["a"], "at": [MS], "length": [1_500]}), path)

    assert values(batches(tmp_path, "parquet", path, record_type=Moment)) == [
        Moment("a", AT, timedelta(milliseconds=1_500))
    ]


@pytest.mark.parametrize("kind", [int, float, str])
def test_columns_of_tables_take_numbers_as_ms(kind):
    record = Span(
        kind(MS), kind(NOON_MS), kind(1_500), [kind(MS)], {"a": kind(2)}, date(2026, 3, 1)
    )

    found = table(Span).batch([SPAN, record], None).to_pylist()

    first, second = ({**row, "day": None} for row in found)
    assert first == second
    assert (first["at"], first["hour"], first["length"]) == (AT, NOON, SPAN.length)


@pytest.mark.parametrize("value", [MS, float(MS), str(MS), "2026-03-01T13:30:00.123+01:00", AT])
def test_declared_columns_take_numbers_as_ms_and_texts_as_rfc_3339(value):
    declared = {"at": "datetime", "hour": "time", "day": "date"}
    rows = table(None, declared).batch([{"at": value, "hour": NOON_MS, "day": "2026-03-01"}], None)

    assert rows.to_pylist() == [{"at": AT, "hour": NOON, "day": date(2026, 3, 1)}]


def test_columns_that_lie_as_arrays_are_ms_too():
    texts = ArrowVector(pyarrow.array([str(MS)]))
    for column in (Vector(1, None, numpy.array([MS])), texts, Vector(1, [float(MS)])):
        records = Frame.of(RecordForm(dict, ("at",)), [column], 1)
        assert table(None, {"at": "datetime"}).batch(records, None).to_pylist() == [{"at": AT}]


@pytest.mark.parametrize(
    ("field", "value"),
    [("at", True), ("at", "soon"), ("at", 1e18), ("hour", -1), ("day", 20_000), ("day", AT),
     ("moments", ["soon"]), ("named", {"a": AT})],
)  # fmt: skip
def test_what_is_no_time_does_not_fit_its_column(field, value):
    broken = Span(**{**{name: getattr(SPAN, name) for name in Span.__annotations__}, field: value})

    with pytest.raises(ValueError, match=f"field '{field}' does not match its column"):
        table(Span).batch([broken], None)


def test_a_declared_timestamp_of_a_pipeline_takes_ms_as_expressions_do():
    values = [MS, MS + 0.5, str(MS), "2026-03-01T12:30:00.123Z", AT, -0.5]
    frame = Frame.of_dicts([{"at": value} for value in values])
    found = evaluate(sql_column("at", "TIMESTAMP"), frame)

    assert found.items == [AT] * 5 + [datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]
    assert TypedRecord({"at": "timestamp"})({"at": MS + 0.5}) == {"at": MS + 0.5}
