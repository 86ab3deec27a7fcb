"""Ints arrive as they were sent, in as few bytes as they need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.arrays import NarrowInts, unpack

INTS = st.integers(min_value=-(2**62), max_value=2**62)


def narrow(values):
    return NarrowInts(np.array(values, np.int64))


@given(st.lists(INTS, min_size=1), st.lists(st.integers(0, 300), min_size=1), st.data())
def test_they_arrive_as_they_were_sent(far, near, data):
    cut = data.draw(st.integers(0, len(far)))
    parts = [narrow(far).pack(0, cut), narrow(far).pack(cut, len(far))]

    found = unpack([*parts, narrow(near).pack(0, len(near))])

    assert found.dtype == np.int64
    assert found.tolist() == far + near


@pytest.mark.parametrize(
    ("values", "byte_count"),
    [
        ([5, 5, 5], 3), ([10**15, 10**15 + 255], 2), ([-1, 255], 4), ([0, 65_536], 8),
        ([-(2**31), 2**31 - 1], 8), ([0, 2**32], 16), ([-(2**62), 2**62], 16),
    ],
)  # fmt: skip
def test_they_take_what_their_span_needs(values, byte_count):
    assert len(narrow(values).pack(0, len(values))[2]) == byte_count
