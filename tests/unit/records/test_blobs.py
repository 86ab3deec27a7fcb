"""Parcels and record blobs: what goes in comes out, and what is foreign is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.records.blobs import (
    BlockKind,
    Envelope,
    decode_records,
    encode_records,
    open_block,
    read_header,
    seal_block,
)
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_runtime.records.errors import BLOB_UNREADABLE
from tests.raising import raises


@given(
    st.sampled_from(BlockKind), st.integers(0, 200), st.integers(0, 30_000), st.binary(max_size=9)
)
def test_a_shuffle_block_opens_as_it_was_sealed(kind, level, task, body):
    envelope, found = open_block(seal_block(Envelope(kind, level, task), body))

    assert (envelope, bytes(found)) == (Envelope(kind, level, task), body)


@given(
    st.lists(
        st.tuples(st.text(), st.integers(0, 127), st.integers(-(2**63), 2**63 - 1)), max_size=20
    ),
    st.booleans(),
    st.booleans(),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_records_come_back_with_groups_times_and_header(rows, is_keyed, is_timed, place):
    values = [value for value, _, _ in rows]
    groups = [group for _, group, _ in rows] if is_keyed else None
    times = [time for _, _, time in rows] if is_timed else None
    codec = RecordCodec(str)
    data, _ = encode_records(values, groups, times, codec=codec, blob=place, origin="here")
    body = memoryview(data)
    header = read_header(body)
    found, columns, stamps = decode_records(body, header, codec)

    assert (found, stamps) == (values, times)
    assert (list(columns) if columns is not None and groups else groups) == groups
    assert (header.edge, header.sender, header.sequence) == place
    assert (header.record_count, header.origin) == (len(values), "here")


@pytest.mark.parametrize("groups", [[0, 128, 255], [0, 256, 32_767]])
def test_large_key_groups_come_back(groups):
    codec = RecordCodec(int)
    data, _ = encode_records([1, 2, 3], groups, codec=codec, blob=(0, 0, 0), origin="")
    body = memoryview(data)

    _, found, _ = decode_records(body, read_header(body), codec)
    assert found is not None
    assert list(found) == groups


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x63\x01\x00\x00\x00\x00\x00\x00 other version"])
def test_a_foreign_shuffle_block_is_refused(data):
    with raises(BLOB_UNREADABLE):
        open_block(data)
