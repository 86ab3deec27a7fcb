"""Grouping the rows of arrays, compared with Python's own sorting."""

from itertools import groupby

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.arrays import Runs, as_numbers, listed_values

NUMBERS = st.one_of(
    st.integers(0, 3), st.integers(0, 2**16 + 1), st.integers(0, 2**33), st.integers(0, 2**63 - 1)
)


@given(st.lists(st.tuples(NUMBERS, st.integers(-99, 99)), min_size=1))
def test_runs_are_the_rows_of_one_number_in_order(rows):
    numbers, values = (np.array(column, np.int64) for column in zip(*rows, strict=True))

    runs = Runs(numbers)

    by_number = groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0])
    expected = [(number, [value for _, value in run]) for number, run in by_number]
    assert runs.of(numbers).tolist() == [number for number, _ in expected]
    assert runs.of(values).tolist() == [run[0] for _, run in expected]
    assert runs.lengths().tolist() == [len(run) for _, run in expected]
    assert runs.joined(values, "add").tolist() == [sum(run) for _, run in expected]
    assert runs.joined(values, "minimum").tolist() == [min(run) for _, run in expected]


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1), st.integers(1, 10**6))
def test_small_numbers_have_the_order_of_the_items(places, step):
    starts = [7 + place * step for place in places]

    numbers, bound = as_numbers(np.array(starts, np.int64), step)

    by_number = dict(zip(numbers.tolist(), starts, strict=True))
    assert [by_number[number] for number in numbers.tolist()] == starts
    assert [start for _, start in sorted(by_number.items())] == sorted(set(starts))
    assert 0 <= min(by_number) <= max(by_number) < bound <= 1 << 20


TIMES = [pyarrow.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns")
         for zone in (None, "UTC", "Europe/Berlin")]  # fmt: skip


@pytest.mark.parametrize("kind", [*TIMES, pyarrow.date32(), pyarrow.string()], ids=str)
@pytest.mark.parametrize("values", [[], [None], [0, None, -86_400], [1_800_000_000 % 99_999] * 3])
def test_values_of_a_column_are_those_of_arrow(kind, values):
    numbers = pyarrow.array(values, pyarrow.int64())
    column = numbers.cast("int32").cast(kind) if kind == pyarrow.date32() else numbers.cast(kind)
    if str(kind).startswith("timestamp[ns"):
        column = pyarrow.array([None if one is None else one * 1000 for one in values], kind)

    for each in (column, column[1:], pyarrow.chunked_array([column, column], kind)):
        listed = listed_values(each)

        assert listed == each.to_pylist()
        assert [type(one) for one in listed] == [type(one) for one in each.to_pylist()]


@pytest.mark.parametrize(
    "column",
    [pyarrow.array([4 * 10**14], pyarrow.timestamp("ms", "UTC")),
     pyarrow.array([10**17], pyarrow.timestamp("ms")), pyarrow.array([10**8], pyarrow.date32())],
    ids=str,
)  # fmt: skip
def test_times_that_python_does_not_know_are_an_error(column):
    with pytest.raises(OverflowError):
        listed_values(column)
