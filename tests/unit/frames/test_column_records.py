"""Records that lie as columns, and are made when somebody asks for them."""

import gc
import json
import weakref
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from bicycle_runtime.connectors.lines import json_lines
from bicycle_runtime.frames.frame import Frame, joined
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import TupleVector, Vector


class Total(NamedTuple):
    key: str
    count: int


class Mean(NamedTuple):
    key: str
    mean: float


@dataclass
class Price:
    name: str
    cents: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    _id: int
    name: str


@dataclass
class Mixed:
    name: str = field(kw_only=True)
    cents: int


@dataclass
class Nothing:
    pass


def on_columns(form, *rows):
    columns = [Vector(len(rows), [row[place] for row in rows]) for place in range(len(form.names))]
    return Frame.of(form, columns, len(rows))


def totals(*rows):
    return on_columns(RecordForm(Total, Total._fields), *rows)


def test_they_are_a_sequence_of_the_records():
    records = totals(("a", 1), ("b", 2), ("c", 3))

    assert list(records) == [Total("a", 1), Total("b", 2), Total("c", 3)]
    assert {type(record) for record in records} == {Total}
    assert (len(records), records[-1].count, records[1:]) == (3, 3, [Total("b", 2), Total("c", 3)])


def test_their_rows_are_given_as_often_as_somebody_asks():
    records = totals(("a", 1))

    assert list(records.rows()) == list(records.rows()) == [("a", 1)]
    assert type(next(iter(records.rows()))) is tuple


def test_several_become_one_without_a_record_being_made(monkeypatch):
    monkeypatch.setattr(Frame, "records", None)

    several = joined([totals(("a", 1)), totals(), totals(("b", 2), ("c", 3))])

    assert isinstance(several, Frame)
    assert (several.form.kind, len(several)) == (Total, 3)
    assert list(several.rows()) == [("a", 1), ("b", 2), ("c", 3)]
    assert [column.items for column in several.columns()] == [["a", "b", "c"], [1, 2, 3]]


@pytest.mark.parametrize(
    "other", [[Total("b", 2)], on_columns(RecordForm(Mean, Mean._fields), ("b", 2.0))]
)
def test_what_is_not_alike_becomes_a_list_of_the_records(other):
    assert joined([totals(("a", 1)), other]) == [Total("a", 1), other[0]]


def test_nothing_joined_is_an_empty_list():
    assert joined([]) == []


@pytest.mark.parametrize(
    ("form", "rows", "records"),
    [
        (RecordForm(dict, ("a", "b")), [(1, "x"), (2, 0)], [{"a": 1, "b": "x"}, {"a": 2, "b": 0}]),
        (RecordForm(dict, ()), [(), ()], [{}, {}]),
        (RecordForm(dict, ('"', "ß\n")), [(1, 2.5)], [{'"': 1, "ß\n": 2.5}]),
        (RecordForm(tuple, (0, 1)), [("a", True)], [("a", True)]),
        (RecordForm(None, (None,)), [("a",), (3,)], ["a", 3]),
        (RecordForm(Price, ("name", "cents")), [("tea", 250)], [Price("tea", 250)]),
        (RecordForm(Named, ("_id", "name")), [(1, "a")], [Named(_id=1, name="a")]),
        (RecordForm(Mixed, ("name", "cents")), [("a", 1)], [Mixed(1, name="a")]),
        (RecordForm(Nothing, ()), [(), ()], [Nothing(), Nothing()]),
        (RecordForm(Total, Total._fields), [("a", 1)], [Total("a", 1)]),
    ],
)  # fmt: skip
def test_records_of_each_form_are_those_that_functions_would_make(form, rows, records):
    made = on_columns(form, *rows)

    assert list(made) == records
    assert list(map(type, made)) == list(map(type, records))
    assert json_lines(made) == json_lines(records)


def test_tuples_within_records_stay_in_columns_until_they_are_written():
    parts = [Vector(2, [1, 2]), Vector.constant("x", 2)]
    columns = [Vector(2, ["a", "b"]), TupleVector(2, parts)]
    made = Frame.of(RecordForm(dict, ("key", "value")), columns, 2)
    twice = joined([made, made])

    assert twice.columns()[1].parts[0].items == [1, 2, 1, 2]
    assert [json.loads(line) for line in json_lines(made).splitlines()] == [
        {"key": "a", "value": [1, "x"]}, {"key": "b", "value": [2, "x"]}
    ]  # fmt: skip
    assert list(made) == [{"key": "a", "value": (1, "x")}, {"key": "b", "value": (2, "x")}]


class Counted(Frame):
    """Records whose rows come one at a time, from something that can be watched."""

    def rows(self):
        self.watched = (row for row in Frame.rows(self))
        return self.watched


def two_prices(kind=Frame):
    columns = [Vector(2, ["a", "b"]), Vector(2, [1, 2])]
    return kind.of(RecordForm(Price, ("name", "cents")), columns, 2)


def test_records_are_let_go_of_without_a_collection_of_garbage():
    gc.disable()
    try:
        records = two_prices()
        assert records[1] == Price("b", 2)
        known = weakref.ref(records)
        del records
        assert known() is None
    finally:
        gc.enable()


def test_rows_that_are_written_are_let_go_of():
    records = two_prices(Counted)
    json_lines(records)
    known = weakref.ref(records.watched)
    del records

    assert known() is None
