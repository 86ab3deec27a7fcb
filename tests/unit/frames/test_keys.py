"""Keys in arrays give what a dict, ``sorted`` and ``key_group`` give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.keys import (
    KeyCodes,
    Keys,
    key_column,
    ordered,
    packed_keys,
    unpacked_keys,
)
from bicycle_runtime.frames.vectors import TupleVector, Vector
from bicycle_runtime.records.keys import encode_key, key_group

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
INTS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
KINDS = (TEXTS, INTS, st.tuples(TEXTS, INTS), st.tuples(INTS), st.tuples(INTS, TEXTS, TEXTS))
KEYS = st.one_of(*(st.lists(kind, min_size=1) for kind in KINDS))
GROUP_COUNT = 8


def array_of(keys):
    """Return keys as the column that fields of records give."""
    if type(keys[0]) is tuple:
        parts = [Vector(len(keys), list(part)) for part in zip(*keys, strict=True)]
        return key_column(TupleVector(len(keys), parts))
    return key_column(Vector(len(keys), list(keys)))


def groups_of(keys):
    return [key_group(encode_key(key), group_count=GROUP_COUNT) for key in keys]


@pytest.mark.parametrize(
    "column", [[1, 2**63], [-(2**63) - 1], ["a", "\ud800"], [1, "a"], [1.5], [True], [("a", None)]]
)
def test_a_key_that_no_array_can_hold_is_told(column):
    assert array_of(column) is None


@given(batches=st.one_of(*(st.lists(st.lists(k, min_size=1), min_size=1) for k in KINDS)))
def test_a_key_has_one_number_and_its_own_group_whenever_it_comes(batches):
    codes = KeyCodes(GROUP_COUNT)

    found = [codes.of([array_of(batch), array_of(batch)]) for batch in batches]

    known = codes.keys.to_list()
    assert [[known[code] for code in batch.tolist()] for batch in found] == [
        batch + batch for batch in batches
    ]
    assert len(codes) == len(known) == len({key for batch in batches for key in batch})
    assert codes.groups.tolist() == groups_of(known)


@given(keys=KEYS, data=st.data())
def test_keys_arrive_as_they_were_sent_however_they_are_cut(keys, data):
    cuts = data.draw(st.lists(st.integers(1, len(keys)), unique=True))
    bounds = sorted({0, *cuts, len(keys)})

    packed = packed_keys(array_of(keys), bounds)

    assert len(packed) == len(bounds) - 1
    assert unpacked_keys(packed).to_list() == keys
    assert unpacked_keys(packed[-1:]).to_list() == keys[bounds[-2] :]


def test_a_part_of_an_array_is_sent_without_the_rest():
    [whole] = array_of(["left out", "b", "", "no"]).parts
    part = Keys((whole.slice(1, 2),))

    assert packed_keys(part, [0, 2]) == [(False, [((0, "|u1", b"\x01\x00"), b"b")])]


@given(keys=KEYS)
def test_keys_are_ordered_by_group_and_then_as_python_orders_them(keys):
    names, groups, places = ordered(array_of(keys), np.array(groups_of(keys)))

    expected = sorted(set(keys), key=lambda key: (groups_of([key]), key))
    assert names.to_list() == expected
    assert groups.tolist() == groups_of(expected)
    assert names.take(places).to_list() == keys
