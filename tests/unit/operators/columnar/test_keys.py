"""Keys in arrays give what a dict, ``sorted`` and ``key_group`` give."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.columnar.keys import (
    KeyCodes,
    key_array,
    ordered,
    packed_keys,
    picked,
    unpacked_keys,
)
from bicycle_runtime.operators.columnar.records import FieldRecords
from bicycle_runtime.records.keys import encode_key, key_group

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
INTS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
KEYS = st.one_of(st.lists(TEXTS, min_size=1), st.lists(INTS, min_size=1))
GROUP_COUNT = 8


def array_of(keys):
    """Return keys as the array that a field of records gives."""
    rows = [SimpleNamespace(key=key) for key in keys]
    return key_array(FieldRecords(rows, lambda: rows), "key")


def groups_of(keys):
    return [key_group(encode_key(key), group_count=GROUP_COUNT) for key in keys]


@pytest.mark.parametrize("column", [[1, 2**63], [-(2**63) - 1], ["a", "\ud800"]])
def test_a_key_that_no_array_can_hold_is_told(column):
    assert array_of(column) is None


@given(batches=st.one_of(*(st.lists(st.lists(k, min_size=1), min_size=1) for k in (TEXTS, INTS))))
def test_a_key_has_one_number_and_its_own_group_whenever_it_comes(batches):
    codes = KeyCodes(GROUP_COUNT)

    found = [codes.of([array_of(batch), array_of(batch)]) for batch in batches]

    known = codes.keys.to_pylist()
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
    assert unpacked_keys(packed).to_pylist() == keys
    assert unpacked_keys(packed[-1:]).to_pylist() == keys[bounds[-2] :]


def test_a_part_of_an_array_is_sent_without_the_rest():
    part = array_of(["left out", "b", "", "no"]).slice(1, 2)

    assert packed_keys(part, [0, 2]) == [((0, "|u1", b"\x01\x00"), b"b")]


@given(keys=KEYS)
def test_keys_are_ordered_by_group_and_then_as_python_orders_them(keys):
    names, groups, places = ordered(array_of(keys), np.array(groups_of(keys)))

    expected = sorted(set(keys), key=lambda key: (groups_of([key]), key))
    assert names.to_pylist() == expected
    assert groups.tolist() == groups_of(expected)
    assert picked(names, places).to_pylist() == keys
