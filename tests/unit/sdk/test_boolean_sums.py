"""Sums of booleans: numbers, also of a single record."""

from functools import reduce

import pytest

from bicycle_sdk import StreamEnvironment
from bicycle_sdk.windows import Sum, WindowResult


def itself(value):
    return value


@pytest.mark.parametrize("values", [[True], [False], [True, True], [True, 0.5]])
def test_a_sum_of_booleans_is_a_number(values):
    total = Sum(itself)
    accumulator = reduce(total.add, values, total.create_accumulator())
    found = total.get_result(accumulator)

    assert found == sum(values)
    assert type(found) is not bool


def is_long(pair: tuple[str, int]) -> bool:
    return pair[1] > 5


def name_of(pair: tuple[str, int]) -> str:
    return pair[0]


def test_sums_of_booleans_are_declared_as_ints():
    pairs = StreamEnvironment().from_collection([("a", 1)]).key_by(name_of)

    assert pairs.sum(is_long)._vertex.output_type == tuple[str, int]
    sums = pairs.tumbling_window(5).sum(is_long)
    assert sums._vertex.output_type == WindowResult[str, int]
