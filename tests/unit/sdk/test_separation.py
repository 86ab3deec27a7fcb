"""Copies that share nothing that can change with what they were made of."""

import dataclasses
import threading

import pytest

from bicycle_sdk.state.separation import separate


@dataclasses.dataclass
class Order:
    parts: list[int]


def test_what_cannot_change_is_not_copied():
    for value in ("a", 1, None, ("a", 1.5), b"x"):
        assert separate(value) is value


def test_a_copy_is_equal_and_has_parts_of_its_own():
    @dataclasses.dataclass
    class Local:
        parts: list[int]

    for value in (Order([1]), Local([1]), {"a": [1]}, {"a": 1, 2: None}, ([1],)):
        made = separate(value)
        assert made == value
        assert made is not value
    parts = [1]
    first, second = separate((parts, parts))
    assert first is second  # As it was within the value.


@pytest.mark.parametrize("value", [threading.Lock(), [threading.Lock()]])
def test_what_cannot_be_copied_is_shared(value):
    assert separate(value) is value
