"""Records that are made from tuples when somebody asks for them."""

from typing import NamedTuple

import pytest

from bicycle_runtime.operators.columnar.records import TupleRecords, joined


class Total(NamedTuple):
    key: str
    count: int


class Mean(NamedTuple):
    key: str
    mean: float


def totals(*rows):
    return TupleRecords(Total, len(rows), lambda: iter(rows))


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
    monkeypatch.setattr(TupleRecords, "records", None)

    several = joined([totals(("a", 1)), totals(), totals(("b", 2), ("c", 3))])

    assert isinstance(several, TupleRecords)
    assert (several.kind, len(several)) == (Total, 3)
    assert list(several.rows()) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    "other", [[Total("b", 2)], TupleRecords(Mean, 1, lambda: iter([("b", 2.0)]))]
)
def test_what_is_not_alike_becomes_a_list_of_the_records(other):
    assert joined([totals(("a", 1)), other]) == [Total("a", 1), other[0]]


def test_nothing_joined_is_an_empty_list():
    assert joined([]) == []
