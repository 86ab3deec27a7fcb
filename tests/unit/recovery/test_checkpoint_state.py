"""The binary checkpoint state: exact bytes, and an exact error for every way to be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.recovery.checkpoint_state import CheckpointState
from bicycle_runtime.recovery.errors import CheckpointFormatError

U64 = st.integers(0, 2**64 - 1)
STATES = st.builds(
    CheckpointState,
    sequence=U64,
    watermark_ns=U64,
    event_count=U64,
    operator_states=st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=4),
    source_offsets=st.dictionaries(st.text(max_size=5), U64, max_size=4),
)
SAMPLE = CheckpointState(
    sequence=7, watermark_ns=8, event_count=9, operator_states={"op": b"\x01\x02\x03"},
    source_offsets={"s": 5},
)  # fmt: skip
SAMPLE_BYTES = bytes.fromhex(
    "0700000000000000" "0800000000000000" "0900000000000000"
    "01000000" "02000000" "6f70" "03000000" "010203"
    "01000000" "01000000" "73" "0500000000000000"
)  # fmt: skip


def test_the_bytes_are_those_of_the_format():
    assert SAMPLE.serialize() == SAMPLE_BYTES
    assert CheckpointState.deserialize(SAMPLE_BYTES) == SAMPLE


def test_an_empty_state_has_32_bytes():
    assert CheckpointState(sequence=1).serialize() == b"\x01" + b"\x00" * 31


@given(STATES)
def test_a_state_comes_back_as_it_was(state):
    assert CheckpointState.deserialize(state.serialize()) == state


def test_equal_states_have_equal_bytes_whatever_their_order():
    one = CheckpointState(sequence=1, operator_states={"a": b"1", "b": b"2"})
    other = CheckpointState(sequence=1, operator_states={"b": b"2", "a": b"1"})

    assert one.serialize() == other.serialize()


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "checkpoint data too short for header"),
        (SAMPLE_BYTES[:23], "checkpoint data too short for header"),
        (SAMPLE_BYTES[:24], "cannot read u32 at offset 24"),
        (SAMPLE_BYTES[:27], "cannot read u32 at offset 24"),
        (SAMPLE_BYTES[:28], "cannot read u32 at offset 28"),
        (SAMPLE_BYTES[:33], "truncated string bytes"),
        (SAMPLE_BYTES[:36], "cannot read u32 at offset 34"),
        (SAMPLE_BYTES[:40], "truncated operator state bytes"),
        (SAMPLE_BYTES[:41], "cannot read u32 at offset 41"),
        (SAMPLE_BYTES[:45], "cannot read u32 at offset 45"),
        (SAMPLE_BYTES[:49], "truncated string bytes"),
        (SAMPLE_BYTES[:57], "cannot read u64 at offset 50"),
        (SAMPLE_BYTES + b"\x00", "1 bytes after the end"),
    ],
)
def test_cut_data_is_told_by_what_is_missing(data, detail):
    with pytest.raises(CheckpointFormatError) as caught:
        CheckpointState.deserialize(data)

    assert caught.value.facts["detail"] == detail
    assert caught.value.summary == f"Deserialization error: {detail}"


def test_a_name_that_is_not_utf8_is_told():
    with pytest.raises(CheckpointFormatError) as caught:
        CheckpointState.deserialize(SAMPLE_BYTES.replace(b"op", b"\xff\xfe"))

    assert caught.value.facts["detail"].startswith("invalid UTF-8 in field name: ")


def test_a_name_that_stands_twice_is_told():
    twice = CheckpointState(sequence=1, source_offsets={"a": 1, "b": 2}).serialize()

    with pytest.raises(CheckpointFormatError):
        CheckpointState.deserialize(twice.replace(b"b", b"a"))


def test_a_huge_count_asks_for_no_memory():
    data = SAMPLE_BYTES[:24] + b"\xff" * 4

    with pytest.raises(CheckpointFormatError):
        CheckpointState.deserialize(data)


@given(STATES, st.data())
def test_no_cut_goes_unnoticed(state, data):
    whole = state.serialize()
    size = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(CheckpointFormatError):
        CheckpointState.deserialize(whole[:size])
