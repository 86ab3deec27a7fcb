"""Records by column, and which functions do nothing but look a field up."""

from operator import attrgetter, itemgetter

import pytest

from bicycle_runtime.operators.columnar.choice import field_of
from bicycle_runtime.operators.columnar.records import FieldRecords


class Row:
    def __init__(self, key, value):
        self.key, self.value = key, value


def documented(record):
    """Return the key, as the line below says."""
    return record.key


def annotated(record: Row) -> int:
    return record.value


def with_default(record, other=1):  # the default is the point
    return record.key


def closing_over(name):
    return lambda record: name.key


async def awaited(record):
    return record.key


def yielded(record):
    yield record.key


class Selecting:
    def __call__(self, record):
        return record.key

    def method(self, record):
        return record.key


@pytest.mark.parametrize(
    ("function", "field"),
    [
        (lambda record: record.key, "key"),
        (lambda name: name.value, "value"),
        (documented, "key"),
        (annotated, "value"),
        (attrgetter("key"), "key"),
        (attrgetter("key.value"), None),
        (attrgetter("key", "value"), None),
        (itemgetter("key"), None),
        (lambda record: record, None),
        (lambda record: record.key.value, None),
        (lambda record: record.key(), None),
        (lambda record: record.key + 0, None),
        (lambda record: Row.key, None),
        (lambda *records: records.key, None),
        (lambda **records: records.key, None),
        (lambda: Row.key, None),
        (with_default, None),
        (closing_over(Row("a", 1)), None),
        (awaited, None),
        (yielded, None),
        (Selecting(), None),
        (Selecting().method, None),
        (str.lower, None),
        (None, None),
    ],
)
def test_only_what_looks_up_an_attribute_of_its_argument_is_by_field(function, field):
    assert field_of(function) == field


def records_of(*rows):
    made = []

    def make():
        made.append(len(rows))
        return [f"record {row.key}" for row in rows]

    return FieldRecords(list(rows), make), made


def test_columns_make_no_record():
    records, made = records_of(Row("a", 1), Row("b", -2))

    assert (len(records), records.column("key")) == (2, ["a", "b"])
    assert records.numbers("value").tolist() == [1, -2]
    assert bool(records)
    assert made == []


def test_records_are_made_once_and_are_a_sequence_like_any_other():
    records, made = records_of(Row("a", 1), Row("b", 2), Row("c", 3))

    assert list(records) == ["record a", "record b", "record c"]
    assert (records[-1], records[1:]) == ("record c", ["record b", "record c"])
    assert made == [3]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_an_int_that_64_bits_do_not_hold_gives_no_array(value):
    records, _ = records_of(Row("a", 1), Row("b", value))

    assert records.numbers("value") is None
    assert records.column("value") == [1, value]


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_least_and_greatest_ints_of_64_bits_are_kept(value):
    records, _ = records_of(Row("a", value))

    assert records.numbers("value").tolist() == [value]
