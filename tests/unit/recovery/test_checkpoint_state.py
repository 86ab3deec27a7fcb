"""The binary checkpoint state: exact bytes, and an exact error for every way to be cut."""

import itertools
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.recovery import CheckpointId, CheckpointState
from bicycle_runtime.recovery.errors import CHECKPOINT_VALUE_UNFIT, CheckpointFormatError
from bicycle_sdk.clock import ManualClock
from tests.raising import raises
from tests.unit.recovery.checkpoint_samples import SAMPLE, SAMPLE_BYTES, STATES

# Where the sample is cut: sizes, problem, detail, place of what is cut, its size.
HEADER = "checkpoint data too short for header"
CUTS = [
    (range(24), "header_cut", HEADER, 0, 24),
    (range(24, 28), "number_cut", "cannot read u32 at offset 24", 24, 4),
    (range(28, 32), "number_cut", "cannot read u32 at offset 28", 28, 4),
    (range(32, 34), "name_cut", "truncated string bytes", 32, 2),
    (range(34, 38), "number_cut", "cannot read u32 at offset 34", 34, 4),
    (range(38, 41), "state_cut", "truncated operator state bytes", 38, 3),
    (range(41, 45), "number_cut", "cannot read u32 at offset 41", 41, 4),
    (range(45, 49), "number_cut", "cannot read u32 at offset 45", 45, 4),
    (range(49, 50), "name_cut", "truncated string bytes", 49, 1),
    (range(50, 58), "number_cut", "cannot read u64 at offset 50", 50, 8),
]


def state(sequence=1, **fields):
    return CheckpointState(CheckpointId("s", sequence), **fields)


def facts_of(data, **options):
    with pytest.raises(CheckpointFormatError) as caught:
        CheckpointState.deserialize("orders", data, **options)
    assert caught.value.summary == f"Deserialization error: {caught.value.facts['detail']}"
    return caught.value.facts


def test_the_bytes_are_those_of_the_layout():
    assert SAMPLE.serialize() == SAMPLE_BYTES


def test_the_layout_has_no_metadata_and_no_time_and_the_caller_names_the_stream():
    found = CheckpointState.deserialize("other", SAMPLE_BYTES, clock=ManualClock(start_ms=42))

    id_now = CheckpointId("other", 7, created_at_ms=42)
    assert found == replace(SAMPLE, id=id_now, metadata={})


def test_an_empty_state_has_32_bytes():
    assert state(1).serialize() == b"\x01" + b"\x00" * 31


@pytest.mark.parametrize("is_strict", [True, False])
@given(checkpoint=STATES)
def test_a_state_comes_back_as_it_was(is_strict, checkpoint):
    stream_id, created_at_ms = checkpoint.id.stream_id, checkpoint.id.created_at_ms
    clock = ManualClock(start_ms=created_at_ms)

    found = CheckpointState.deserialize(
        stream_id, checkpoint.serialize(), is_strict=is_strict, clock=clock
    )

    assert found == replace(checkpoint, metadata={})


def test_equal_states_have_equal_bytes_whatever_their_order():
    one = state(operator_states={"a": b"1", "b": b"2"}, source_offsets={"x": 1, "y": 2})
    other = state(operator_states={"b": b"2", "a": b"1"}, source_offsets={"y": 2, "x": 1})

    assert one.serialize() == other.serialize()


def test_entries_in_any_order_are_read():
    data = state(source_offsets={"a": 1, "b": 2}).serialize()
    first, second = data[-26:-13], data[-13:]

    found = CheckpointState.deserialize("s", data[:-26] + second + first)

    assert found.source_offsets == {"b": 2, "a": 1}


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize(("sizes", "problem", "detail", "offset", "length"), CUTS)
def test_data_cut_at_any_byte_is_told_by_what_is_missing(
    sizes, problem, detail, offset, length, is_strict
):
    for size in sizes if is_strict or offset != 41 else ():
        assert facts_of(SAMPLE_BYTES[:size], is_strict=is_strict) == {
            "problem": problem,
            "detail": detail,
            "offset": offset,
            "missing_count": offset + length - size,
        }


def test_the_cuts_above_are_all_there_are():
    sizes = itertools.chain.from_iterable(cut[0] for cut in CUTS)

    assert [*sizes] == [*range(len(SAMPLE_BYTES))]


@given(STATES, st.data())
def test_no_cut_goes_unnoticed(checkpoint, data):
    whole = checkpoint.serialize()
    size = data.draw(st.integers(0, len(whole) - 1))

    assert facts_of(whole[:size])["missing_count"] > 0


@pytest.mark.parametrize("size", range(41, 45))
def test_compatible_reading_takes_data_that_ends_behind_the_operators_as_without_sources(size):
    found = CheckpointState.deserialize("orders", SAMPLE_BYTES[:size], is_strict=False)

    assert (found.operator_states, found.source_offsets) == ({"op": b"\x01\x02\x03"}, {})


def test_bytes_behind_the_end_are_told_and_compatible_reading_ignores_them():
    data = SAMPLE_BYTES + b"\x00\x00"

    assert facts_of(data) == {
        "problem": "bytes_left",
        "detail": "2 bytes after the end",
        "offset": len(SAMPLE_BYTES),
        "missing_count": 0,
    }
    found = CheckpointState.deserialize("orders", data, is_strict=False)
    assert found.serialize() == SAMPLE_BYTES


@pytest.mark.parametrize(
    "twice",
    [
        state(operator_states={"a": b"x", "b": b"y"}),
        state(source_offsets={"a": 1, "b": 2}),
    ],
)
def test_a_name_that_stands_twice_is_told_and_compatible_reading_takes_the_last(twice):
    data = twice.serialize().replace(b"b", b"a")

    facts = facts_of(data)
    assert (facts["problem"], facts["missing_count"]) == ("name_twice", 0)
    assert data[facts["offset"] :].startswith(b"\x01\x00\x00\x00a")
    found = CheckpointState.deserialize("s", data, is_strict=False)
    assert (found.operator_states or found.source_offsets) in ({"a": b"y"}, {"a": 2})


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_name_that_is_not_utf8_is_told_with_its_place(is_strict):
    facts = facts_of(SAMPLE_BYTES.replace(b"op", b"o\xff"), is_strict=is_strict)

    assert (facts["problem"], facts["offset"]) == ("name_encoding", 33)
    assert facts["detail"].startswith("invalid UTF-8 in field name: ")


@pytest.mark.parametrize("position", [24, 28, 34, 41, 45])
@pytest.mark.parametrize("is_strict", [True, False])
def test_a_huge_count_or_length_asks_for_no_memory(position, is_strict):
    data = SAMPLE_BYTES[:position] + b"\xff" * 4 + SAMPLE_BYTES[position + 4 :]

    assert facts_of(data, is_strict=is_strict)["missing_count"] > 0


@pytest.mark.parametrize("value", [-1, 2**64, 1.5])
def test_a_number_out_of_bounds_makes_no_state(value):
    makers = {
        "sequence": lambda: CheckpointId("s", value),
        "created_at_ms": lambda: CheckpointId("s", 1, created_at_ms=value),
        "watermark_ns": lambda: state(watermark_ns=value),
        "event_count": lambda: state(event_count=value),
        "offset of a source": lambda: state(source_offsets={"a": value}),
    }

    for field, make in makers.items():
        with raises(CHECKPOINT_VALUE_UNFIT) as caught:
            make()
        assert caught.value.facts == {
            "field": field, "found": repr(value), "expected": f"0 to {2**64 - 1}",
        }  # fmt: skip


class Huge(bytes):
    """Claims a length that its field cannot hold."""

    def __len__(self):
        return 2**32


def test_a_state_of_4_gib_is_refused():
    with raises(CHECKPOINT_VALUE_UNFIT) as caught:
        state(operator_states={"a": Huge()}).serialize()

    assert caught.value.facts["field"] == "length of an operator state"
    assert caught.value.facts["found"] == str(2**32)


@pytest.mark.parametrize("field", ["operator_states", "source_offsets"])
def test_a_name_with_half_a_surrogate_pair_is_refused(field):
    value = {"operator_states": b"", "source_offsets": 1}[field]

    with raises(CHECKPOINT_VALUE_UNFIT) as caught:
        state(**{field: {"\ud800": value}}).serialize()

    assert caught.value.facts["found"] == r"'\ud800'"


def test_a_state_does_not_change_with_what_it_was_made_of():
    operators, offsets, metadata = {"op": b"1"}, {"s": 1}, {"k": "v"}
    made = state(operator_states=operators, source_offsets=offsets, metadata=metadata)

    for mapping in (operators, offsets, metadata):
        mapping.clear()

    assert (made.operator_states, made.source_offsets) == ({"op": b"1"}, {"s": 1})
    assert made.metadata == {"k": "v"}


def test_an_entry_that_is_set_takes_the_place_of_the_one_before():
    one = state()
    one.set_operator_state("op", b"1")
    one.set_operator_state("other", b"1")
    one.set_source_offset("s", 1)
    one.set_operator_state("op", b"2")
    one.set_source_offset("s", 2)

    assert one.operator_states == {"op": b"2", "other": b"1"}
    assert one.source_offsets == {"s": 2}
    assert CheckpointState.deserialize("s", one.serialize()).operator_states == one.operator_states


@pytest.mark.parametrize("offset", [-1, 2**64])
def test_an_offset_out_of_bounds_is_refused_and_the_one_before_stays(offset):
    one = state()
    one.set_source_offset("s", 1)

    with raises(CHECKPOINT_VALUE_UNFIT):
        one.set_source_offset("s", offset)

    assert one.source_offsets == {"s": 1}


def test_ids_are_ordered_by_stream_then_sequence_then_time_and_are_keys():
    ids = [
        CheckpointId("a", 9, created_at_ms=1),
        CheckpointId("a", 10, created_at_ms=1),
        CheckpointId("a", 10, created_at_ms=2),
        CheckpointId("b", 0, created_at_ms=0),
    ]

    assert sorted(reversed(ids)) == ids
    assert len({*ids, CheckpointId("b", 0, created_at_ms=0)}) == len(ids)


def test_numbers_at_their_bounds_come_back():
    high = 2**64 - 1
    edge = state(high, watermark_ns=high, event_count=high, source_offsets={"": high, "é": 0})

    data = edge.serialize()
    assert data[:24] == struct.pack("<3Q", high, high, high)
    assert CheckpointState.deserialize("s", data).source_offsets == {"": high, "é": 0}
