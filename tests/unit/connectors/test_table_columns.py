"""Columns of tables: from types of records, as declared, and records that do not fit."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import numpy
import pyarrow
import pytest
from pydantic import BaseModel

from bicycle_runtime.connectors.errors import (
    COLUMN_TYPE_UNKNOWN,
    COLUMNS_WRONG,
    CONNECTOR_OPTION_WRONG,
)
from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.contract import ConnectorSpec, WriterTask
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import ArrowVector, Vector
from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter
from bicycle_sdk.sinks import parquet_sink
from bicycle_sdk.windows import WindowResult
from tests.raising import raises
from tests.unit.connectors.parquet_parts import rows

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


class Size(Enum):
    SMALL = "s"


class Place(NamedTuple):
    city: str
    floor: int | None


@dataclass(frozen=True)
class Order:
    id: int
    user: str
    cents: float
    paid: bool
    at: datetime
    day: date
    hour: time
    price: Decimal
    raw: bytes
    size: Size
    kind: Literal["web", "shop"]
    uid: UUID
    tags: list[str]
    counts: dict[str, int]
    place: Place
    note: str | None = None


ORDER = Order(
    id=7, user="ada", cents=1.5, paid=True, at=AT, day=AT.date(), hour=AT.time(),
    price=Decimal("2.50"), raw=b"\0\1", size=Size.SMALL, kind="web", uid=UUID(int=5),
    tags=["a", "b"], counts={"x": 1}, place=Place("brest", None),
)  # fmt: skip


class Corner(Enum):
    LEFT = (0, 1)


class Key(Enum):
    FIRST = UUID(int=5)


class Mixed(Enum):
    WORD = "a"
    NUMBER = 1


class Event(TypedDict):
    user: str
    n: int


class Count(NamedTuple):
    user: str
    n: int


T = TypeVar("T")


@dataclass
class Measured(Generic[T]):
    value: T
    others: list[T]
    former: T | None = None


@dataclass
class Measures(Measured[list[T]], Generic[T]):
    first: T | None = None


class Level(Measures[int]):
    pass


class MeasuredModel(BaseModel, Generic[T]):
    value: T


class MeasuredStruct(msgspec.Struct, Generic[T]):
    value: T


class MeasuredEvent(TypedDict, Generic[T]):
    value: T


def test_each_type_of_field_has_its_column(table, out):
    table(Order).run_epoch([[ORDER, replace(ORDER, note="late")]], is_last=True)

    [first, second] = rows(out)
    assert first == {
        "id": 7, "user": "ada", "cents": 1.5, "paid": True, "at": AT, "day": AT.date(),
        "hour": AT.time(), "price": Decimal("2.50"), "raw": b"\0\1", "size": "s", "kind": "web",
        "uid": str(UUID(int=5)), "tags": ["a", "b"], "counts": [("x", 1)],
        "place": {"city": "brest", "floor": None}, "note": None,
    }  # fmt: skip
    assert second["note"] == "late"


@pytest.mark.parametrize(
    ("record_type", "record", "expected"),
    [
        (Event, {"user": "ada", "n": 1}, {"user": "ada", "n": 1}),
        (Count, Count("ada", 1), {"user": "ada", "n": 1}),
        (tuple[str, int], ("ada", 1), {"field_1": "ada", "field_2": 1}),
        (int, 5, {"value": 5}),
        (
            WindowResult[str, int],
            WindowResult("ada", 0, 5, 2),
            {"key": "ada", "start": 0, "end": 5, "value": 2},
        ),
        (Measured[int], Measured(1, [2]), {"value": 1, "others": [2], "former": None}),
        (
            Level,
            Level([1], [[2]], None, 3),
            {"value": [1], "others": [[2]], "former": None, "first": 3},
        ),
        (MeasuredModel[int], MeasuredModel[int](value=1), {"value": 1}),
        (MeasuredStruct[int], MeasuredStruct(1), {"value": 1}),
        (MeasuredEvent[int], {"value": 1}, {"value": 1}),
        (None, {"b": [1]}, {"event_time": None, "payload": '{"b":[1]}'}),
        (dict[str, int], {"b": 1}, {"event_time": None, "payload": '{"b":1}'}),
    ],
)
def test_records_of_each_shape_become_rows(table, out, record_type, record, expected):
    table(record_type).run_epoch([[record]], is_last=True)

    assert rows(out) == [expected]


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (Size.SMALL, "s"),
        (Corner.LEFT, "[0,1]"),
        (Key.FIRST, str(UUID(int=5))),
        (Mixed.WORD, "a"),
        (Mixed.NUMBER, "1"),
    ],
)
def test_members_of_an_enum_become_values_of_each_type(table, out, member, expected):
    run = table(tuple[type(member), list[type(member)]])
    run.run_epoch([[(member, [member])]], is_last=True)

    assert rows(out) == [{"field_1": expected, "field_2": [expected]}]


def test_declared_columns_take_fields_by_name_and_null_where_there_is_none(table, out):
    columns = {"n": "int", "at": "datetime", "price": "decimal(6,2)", "more": "json"}
    run = table(None, columns=columns)
    record = {"n": 1, "at": AT, "price": Decimal("2.5"), "more": {"a": [1]}, "other": 5}
    run.run_epoch([[record, {"n": 2}, ORDER]], is_last=True)

    first, second, third = rows(out)
    assert first == {"n": 1, "at": AT, "price": Decimal("2.50"), "more": '{"a":[1]}'}
    assert second == {"n": 2, "at": None, "price": None, "more": None}
    assert (third["n"], third["price"]) == (None, Decimal("2.50"))


def test_the_event_time_goes_into_a_column(tmp_path):
    values = [("a", 5), ("b", 7)]

    def job(env):
        stamped = env.from_collection(values).assign_timestamps(lambda pair: pair[1])
        sink = parquet_sink(tmp_path / "out", columns={"field_1": str}, timestamp_field="at")
        named = stamped.map(lambda pair: {"field_1": pair[0]})
        named.sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    at = [datetime.fromtimestamp(ms / 1_000, UTC) for ms in (5, 7)]
    assert rows(tmp_path / "out") == [{"field_1": "a", "at": at[0]}, {"field_1": "b", "at": at[1]}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"user": "ada", "n": "1"}, "field 'n' does not match"),
        ({"user": "ada", "n": 2**70}, "field 'n' does not match"),
        ({"user": "ada", "n": 1.5}, "field 'n' does not match"),
        ({"user": None, "n": 1}, "field 'user' is None"),
        ({"n": 1}, "has no field 'user'"),
    ],
)
def test_a_record_that_does_not_fit_is_settled_by_on_error(tmp_path, record, reason):
    def job(env):
        typed = env.from_collection([{"user": "ada", "n": 1}, record, {"user": "bob", "n": 2}])
        typed = typed.map(Checked()).uid("typed")
        typed.sink_to(parquet_sink(tmp_path / "out")).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        [letter] = harness.dead_letters

    assert reason in letter["message"]
    assert [row["n"] for row in rows(tmp_path / "out")] == [1, 2]


class Checked:
    def __call__(self, record: Event) -> Event:
        return record


@pytest.mark.parametrize(
    ("properties", "record_type", "error"),
    [
        ({"columns": {"a": "integer"}}, None, COLUMN_TYPE_UNKNOWN),
        ({"columns": {"a": "decimal(50,2)"}}, None, COLUMN_TYPE_UNKNOWN),
        ({"columns": {}}, None, CONNECTOR_OPTION_WRONG),
        ({}, tuple[str, Path], COLUMN_TYPE_UNKNOWN),
        ({"partition_by": "field"}, Event, CONNECTOR_OPTION_WRONG),
        ({"partition_by": "field", "partition_field": "town"}, Event, COLUMNS_WRONG),
        ({"partition_by": "field", "partition_field": "value"}, int, COLUMNS_WRONG),
        ({"partition_by": "date", "partition_field": "user"}, Event, COLUMNS_WRONG),
        ({"partition_by": "date", "partition_format": "day"}, Event, CONNECTOR_OPTION_WRONG),
        ({"compression": "lz9"}, Event, CONNECTOR_OPTION_WRONG),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    table, out, properties, record_type, error
):
    with raises(error):
        table(record_type, **properties)
    assert not out.exists()


def test_a_type_of_a_field_that_no_column_holds_is_named():
    spec = ConnectorSpec(
        vertex_id="out", connector_type="parquet_file", properties={}, record_type=tuple[int, Path]
    )

    with raises(COLUMN_TYPE_UNKNOWN) as caught:
        columns_of(spec, None, "")
    assert (caught.value.facts["column"], caught.value.facts["vertex"]) == ("field_2", "out")


def test_a_time_is_not_cut_to_its_day(table):
    run = table(tuple[date])
    writer = run.sink.writer().open(
        WriterTask(storage=run.services.storage, prefix="staged/1/0-0", epoch=1, subtask=0)
    )

    assert writer.prepare([(AT.date(),), (AT.date(),)], None).num_rows == 2
    with pytest.raises(ValueError, match="'field_1' does not match its column"):
        writer.prepare([(AT,)], None)


@dataclass(frozen=True)
class Counted:
    count: int


@pytest.mark.parametrize(
    ("kind", "fitting", "kept", "lossy"),
    [
        (list[int], [1, 2.0, numpy.int64(3), None], [1, 2, 3, None], [1, 1.5]),
        (tuple[int, ...], (1, 2), [1, 2], (0.1,)),
        (list[list[int]], [[1], [2.0]], [[1], [2]], [[1], [1.5]]),
        (dict[str, int], {"a": 1.0}, [("a", 1)], {"a": 1.5}),
        (Counted, Counted(2.0), {"count": 2}, Counted(1.5)),
        (list[Counted], [Counted(1)], [{"count": 1}], [Counted(float("nan"))]),
        (list[int], [2**63 - 1], [2**63 - 1], [Decimal("1.5")]),
        (list[int], [], [], [2**63]),
    ],
)
def test_an_integer_within_a_value_is_not_cut(table, kind, fitting, kept, lossy):
    run = table(tuple[kind])
    writer = run.sink.writer().open(
        WriterTask(storage=run.services.storage, prefix="staged/1/0-0", epoch=1, subtask=0)
    )

    assert writer.prepare([(fitting,)], None).column("field_1").to_pylist() == [kept]
    with pytest.raises(ValueError, match="'field_1' does not match its column"):
        writer.prepare([(fitting,), (lossy,)], None)


TYPES = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "decimal": Decimal,
    "json": list[int],
}
ARRAYS = {
    "int": numpy.array([1, -(2**62)]),
    "float": numpy.array([1.5, float("nan")]),
    "whole": numpy.array([1.0, -0.0]),
    "bool": numpy.array([True, False]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("word", ["int", "float", "bool", "str", "decimal", "json"])
@pytest.mark.parametrize("kind", [dict, tuple])
def test_arrays_become_the_columns_that_their_values_would_become(word, array, kind):
    spec = ConnectorSpec(vertex_id="out", connector_type="parquet_file", properties={})
    if kind is dict:
        columns = columns_of(spec, {"x": word}, "")
    else:
        columns = columns_of(replace(spec, record_type=tuple[TYPES[word]]), None, "")
    form, vector = RecordForm(kind, ("x",)), Vector(len(array), None, array)

    def outcome(values):
        try:
            return repr(columns.batch(values, None).to_pydict())
        except (ValueError, TypeError) as error:
            return str(error)

    frame = Frame.of(form, [vector], len(array))
    assert outcome(frame) == outcome(frame.records)


@pytest.mark.parametrize("kind", ["str", "json", "bytes"])
@pytest.mark.parametrize("texts", [["a", "", "ß"], ["a", None], [None]])
def test_texts_of_arrow_become_the_columns_that_texts_of_python_become(kind, texts):
    spec = ConnectorSpec(vertex_id="out", connector_type="parquet_file", properties={})
    columns = columns_of(spec, {"word": kind}, "")
    form = RecordForm(dict, ("word",))
    lying = ArrowVector(pyarrow.array(texts, pyarrow.string()))

    found, wanted = (
        columns.batch(Frame.of(form, [each], len(texts)), None)
        for each in (lying, Vector(len(texts), texts))
    )

    assert found.equals(wanted)
    assert found.equals(columns.batch([{"word": text} for text in texts], None))


def test_texts_of_arrow_that_lack_one_do_not_fit_a_column_that_takes_no_null():
    spec = ConnectorSpec(vertex_id="out", connector_type="parquet_file", properties={})
    columns = columns_of(spec, {"word": "str"}, "").requiring(["word"])
    lying = ArrowVector(pyarrow.array(["a", None]))
    records = Frame.of(RecordForm(dict, ("word",)), [lying], 2)

    with pytest.raises(ValueError, match="does not allow null"):
        columns.batch(records, None)
