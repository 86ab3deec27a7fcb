"""Sums of floats by digits: exact, whatever the order and however they are cut."""

from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.columnar.arrays import Runs
from bicycle_runtime.operators.columnar.folded import digits_of, joined_folded, unpacked_folded
from bicycle_sdk.windows import Sum
from bicycle_sdk.windows.aggregates import sums_of_floats

NEAR = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)
MANY = st.lists(st.lists(NEAR, min_size=1, max_size=8), min_size=1, max_size=5)


@given(MANY)
def test_digits_add_up_to_the_exact_sum(parts):
    digits = [digits_of(np.array(part)) for part in parts]
    packed = [one.packer()(0, len(part)) for one, part in zip(digits, parts, strict=True)]
    whole = unpacked_folded(packed)

    total = whole.joined(Runs(np.zeros(len(whole.parts[min(whole.parts)]), np.int64)), "add")

    values = [value for part in parts for value in part]
    assert total.numbers() == [fsum(values)]
    total_of = Sum(float)
    assert sums_of_floats(total.floats()) == [total_of.add_all((None, (0.0,)), [*values, 0.0])]


@given(st.lists(st.lists(NEAR, min_size=1, max_size=4), min_size=1, max_size=6))
def test_runs_are_summed_each_by_itself(runs):
    values = np.array([value for run in runs for value in run])
    numbers = np.repeat(np.arange(len(runs)), [len(run) for run in runs])

    assert digits_of(values).joined(Runs(numbers), "add").numbers() == list(map(fsum, runs))


@pytest.mark.parametrize(
    "values",
    [[float("nan")], [float("inf"), 1.0], [1.0, 1e-300], [1e200, 1.0], [1e300], [5e-324], [1e-170]],
)
def test_what_has_no_few_digits_is_refused(values):
    assert digits_of(np.array(values)) is None


@pytest.mark.parametrize("values", [[0.0], [-0.0, 0.0], [1e100, -1e100], [1e-100, 1e-99]])
def test_far_from_one_there_are_digits_too(values):
    found = digits_of(np.array(values))

    assert found.joined(Runs(np.zeros(len(values), np.int64)), "add").numbers() == [fsum(values)]
    assert repr(found.numbers()) == repr([value + 0.0 for value in values])


def test_a_place_that_some_lack_is_zero_there():
    low, high = digits_of(np.array([0.001])), digits_of(np.array([1e12, 3.0]))

    assert joined_folded([low, high]).numbers() == [0.001, 1e12, 3.0]
