"""Records as columns, and records created from columns."""

from dataclasses import dataclass
from datetime import UTC, datetime
from types import NoneType

import numpy
import pyarrow
import pytest

from bicycle_runtime.expressions.evaluation import mask_of
from bicycle_runtime.frames.frame import FieldRows, Frame, joined
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import ArrowVector, Mask, Refused, Vector

MOMENT = datetime(2026, 11, 28, tzinfo=UTC)


class Row:
    def __init__(self, key, value):
        self.key, self.value = key, value


def records_of(*rows):
    made = []

    def make():
        made.append(len(rows))
        return [f"record {row.key}" for row in rows]

    return Frame.of_rows(FieldRows(objects=list(rows), make=make)), made


def test_columns_make_no_record():
    frame, made = records_of(Row("a", 1), Row("b", -2))

    assert (frame.count, frame.field("key").items) == (2, ["a", "b"])
    assert frame.field("value").numbers.tolist() == [1, -2]
    assert bool(frame)
    assert made == []


def test_records_are_made_once_and_are_a_sequence_like_any_other():
    records, made = records_of(Row("a", 1), Row("b", 2), Row("c", 3))

    assert list(records) == ["record a", "record b", "record c"]
    assert (records[-1], records[1:]) == ("record c", ["record b", "record c"])
    assert made == [3]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_an_int_that_64_bits_do_not_hold_gives_no_array(value):
    vector = Vector(2, [1, value])

    assert vector.numbers is None
    assert vector.items == [1, value]


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_least_and_greatest_ints_of_64_bits_are_kept(value):
    assert Vector(1, [value]).numbers.tolist() == [value]


def test_a_field_that_one_record_lacks_is_refused_unless_it_lies_outside():
    frame = Frame.of_dicts([{"kind": "a", "value": 1}, {"kind": "b"}])

    with pytest.raises(Refused):
        frame.field("value")

    assert frame.field_or("value", Vector.constant(0, 2)).items == [1, 0]
    chosen = frame.take(mask_of(Vector(2, [True, False])))
    assert chosen.field("value").items == [1]
    assert chosen.field("kind").items == ["a"]


@dataclass
class Order:
    names: list[str]


def orders(*names):
    rows = FieldRows(objects=[Order([n]) for n in names], make=lambda: [Order([n]) for n in names])
    return Frame.of_rows(rows)


def some(frame):
    return frame.take(Mask(numpy.array([index != 1 for index in range(len(frame))])))


@pytest.mark.parametrize(
    "frame",
    [
        orders("a", "b", "c"),
        some(orders("a", "b", "c")),
        some(some(orders("a", "b", "c", "d"))),
        Frame.of(RecordForm(Order, ("names",)), [Vector(2, [["a"], ["b"]])], 2),
        Frame.of(RecordForm(Order, ("names",)), [ArrowVector(pyarrow.array([["a"], ["b"]]))], 2),
        joined([Frame.of(RecordForm(Order, ("names",)), [Vector(1, [[n]])], 1) for n in "ab"]),
    ],
)
def test_a_copy_shares_nothing_with_the_records(frame):
    expected = [Order(list(each.names)) for each in frame]

    for copy in (frame.copy(), some(frame.copy()), some(frame).copy()):
        for each in copy:
            each.names.append("changed")

    assert list(frame) == expected


def test_a_copy_has_the_same_columns_of_values_that_cannot_change():
    column = pyarrow.array([MOMENT, None], pyarrow.timestamp("ms", "UTC"))
    times = Vector(2, [MOMENT, MOMENT])
    frame = Frame.of(RecordForm(dict, ("at", "since")), [ArrowVector(column), times], 2)

    copy = frame.copy()

    assert copy.field("at").as_they_lie is column
    assert copy.field("since") is times
    assert list(copy) == [{"at": MOMENT, "since": MOMENT}, {"at": None, "since": MOMENT}]


def test_dicts_that_exist_have_no_copy():
    assert Frame.of_dicts([{"a": 1}]).copy() is None


def test_some_of_several_frames_are_those_of_each():
    form = RecordForm(dict, ("n",))
    frames = [Frame.of(form, [Vector(3, [n, n + 1, n + 2])], 3) for n in (0, 10)]
    several = joined(frames)

    found = several.take(Mask(numpy.array([True, False, False, False, True, True])))

    assert found.field("n").items == [0, 11, 12]
    assert list(found) == [{"n": 0}, {"n": 11}, {"n": 12}]
    assert [row.f0 for row in found.rows()] == [0, 11, 12]


def test_records_of_several_masks_are_created_once():
    records, made = records_of(Row("a", 1), Row("b", 2), Row("c", 3))

    chosen = [records.take(Mask(numpy.array([index == at for index in range(3)]))) for at in (0, 2)]

    assert [list(each) for each in chosen] == [["record a"], ["record c"]]
    assert made == [3]


def test_fields_of_an_arrow_batch_keep_their_nulls():
    batch = pyarrow.RecordBatch.from_pydict(
        {"n": [1, None], "t": ["a", None], "at": [MOMENT, None]}
    )
    frame = Frame.of_arrow(batch)

    assert list(frame) == batch.to_pylist()
    assert frame.field("n").kinds == {int, NoneType}
    assert frame.field("n").as_they_lie.equals(batch.column("n"))
    with pytest.raises(Refused):
        frame.field("unknown")
    assert frame.field_or("unknown", Vector.constant(0, 2)).items == [0, 0]
