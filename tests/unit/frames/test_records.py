"""Records by column."""

import pytest

from bicycle_runtime.expressions.evaluation import mask_of
from bicycle_runtime.frames.frame import SourceFrame
from bicycle_runtime.frames.records import DictRecords, FieldRecords
from bicycle_runtime.frames.vectors import Refused, Vector


class Row:
    def __init__(self, key, value):
        self.key, self.value = key, value


def records_of(*rows):
    made = []

    def make():
        made.append(len(rows))
        return [f"record {row.key}" for row in rows]

    return FieldRecords(list(rows), make), made


def test_columns_make_no_record():
    records, made = records_of(Row("a", 1), Row("b", -2))

    frame = SourceFrame(records, {"key": str})

    assert (frame.count, frame.field("key").items) == (2, ["a", "b"])
    assert frame.field("value").numbers.tolist() == [1, -2]
    assert bool(records)
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
    records = DictRecords([{"kind": "a", "value": 1}, {"kind": "b"}])
    frame = SourceFrame(records, {})

    with pytest.raises(Refused):
        frame.field("value")

    assert frame.field_or("value", Vector.constant(0, 2)).items == [1, 0]
    chosen = frame.take(mask_of(Vector(2, [True, False])))
    assert chosen.field("value").items == [1]
    assert chosen.field("kind").items == ["a"]
