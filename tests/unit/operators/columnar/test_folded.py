"""What aggregates fold: sums of floats that are exact in any order and however cut, texts, sets."""

from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.arrays import Runs
from bicycle_runtime.frames.keys import values_array
from bicycle_runtime.frames.vectors import Vector
from bicycle_runtime.operators.columnar.folded import (
    FoldedSets,
    FoldedTexts,
    digits_of,
    joined_folded,
    unpacked_folded,
)
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
    assert total.results() == [fsum(values)]
    total_of = Sum(float)
    assert sums_of_floats(total.floats()) == [total_of.add_all((None, (0.0,)), [*values, 0.0])]


@given(st.lists(st.lists(NEAR, min_size=1, max_size=4), min_size=1, max_size=6))
def test_runs_are_summed_each_by_itself(runs):
    values = np.array([value for run in runs for value in run])
    numbers = np.repeat(np.arange(len(runs)), [len(run) for run in runs])

    assert digits_of(values).joined(Runs(numbers), "add").results() == list(map(fsum, runs))


@pytest.mark.parametrize(
    "values",
    [[float("nan")], [float("inf"), 1.0], [1.0, 1e-300], [1e200, 1.0], [1e300], [5e-324], [1e-170]],
)
def test_what_has_no_few_digits_is_refused(values):
    assert digits_of(np.array(values)) is None


@pytest.mark.parametrize("values", [[0.0], [-0.0, 0.0], [1e100, -1e100], [1e-100, 1e-99]])
def test_far_from_one_there_are_digits_too(values):
    found = digits_of(np.array(values))

    assert found.joined(Runs(np.zeros(len(values), np.int64)), "add").results() == [fsum(values)]
    assert repr(found.results()) == repr([value + 0.0 for value in values])


def test_a_place_that_some_lack_is_zero_there():
    low, high = digits_of(np.array([0.001])), digits_of(np.array([1e12, 3.0]))

    assert joined_folded([low, high]).results() == [0.001, 1e12, 3.0]


TEXTS = st.text(st.sampled_from("aé\0\uffff\U0001f600"), max_size=2)
RUNS = st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=6)


def arrived(folded, rows):
    """Return rows cut into blocks of one, sent and put together again."""
    packed = folded.packer()
    return unpacked_folded([packed(row, row + 1) for row in range(rows)])


def rows_of(runs):
    values = [value for run in runs for value in run]
    numbers = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    return values_array(Vector(len(values), values)), Runs(numbers)


@given(RUNS)
def test_the_least_and_the_greatest_text_are_those_of_python(runs):
    texts, folds = rows_of(runs)

    for word, best in (("minimum", min), ("maximum", max)):
        folded = FoldedTexts(texts).joined(folds, word)
        assert arrived(folded, len(runs)).results() == list(map(best, runs))
        assert folded[1:].results() == list(map(best, runs))[1:]


@given(st.one_of(RUNS, st.lists(st.lists(st.integers(-3, 3), min_size=1), min_size=1, max_size=6)))
def test_sets_of_values_are_those_of_python_and_join(runs):
    values, folds = rows_of(runs)
    rows = FoldedSets("texts", np.ones(len(values), np.int64), values)
    folded = arrived(rows.joined(folds, "add"), len(runs))
    twice = joined_folded([folded, folded])
    again = twice.joined(Runs(np.arange(2 * len(runs)) % len(runs)), "add")

    for found in (folded, again):
        assert list(found.sets()) == list(map(set, runs))
        assert found.results() == [len(set(run)) for run in runs]
        assert list(found[1:].sets()) == list(map(set, runs))[1:]
