"""Grouping the rows of arrays, compared with Python's own sorting."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.arrays import Runs, as_numbers

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
