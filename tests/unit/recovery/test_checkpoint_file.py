"""Checkpoint files and manifests: golden bytes, and no damage that goes unnoticed."""

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.recovery import CheckpointState, decode_checkpoint, encode_checkpoint
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_VALUE_UNFIT,
    CheckpointFormatError,
    ManifestError,
)
from bicycle_runtime.recovery.manifest import decode_manifest, encode_manifest
from tests.raising import raises
from tests.unit.recovery.checkpoint_samples import SAMPLE, SAMPLE_BYTES, STATES
from tests.unit.recovery.golden_states import GOLDEN, MANIFEST

BODY = SAMPLE_BYTES + bytes.fromhex(
    "06000000" "6f7264657273" "0068e5cf8b010000"
    "01000000" "02000000" "6279" "05000000" "74c3a97374"
)  # fmt: skip


def sealed(body, *, version=1, reserved=0, magic=b"BICC"):
    parts = (version.to_bytes(2, "little"), reserved.to_bytes(2, "little"))
    return body + b"".join(parts) + zlib.crc32(body).to_bytes(4, "little") + magic


def problem_of(data):
    with pytest.raises(CheckpointFormatError) as caught:
        decode_checkpoint(data)
    return caught.value.facts["problem"]


def test_the_bytes_are_those_of_the_format():
    assert encode_checkpoint(SAMPLE) == sealed(BODY)
    assert decode_checkpoint(sealed(BODY)) == SAMPLE


def test_the_golden_checkpoint_is_still_written_and_read():
    golden = (GOLDEN / "version-1.checkpoint").read_bytes()

    assert encode_checkpoint(SAMPLE) == golden
    assert decode_checkpoint(golden) == SAMPLE


def test_the_golden_manifest_is_still_written_and_read():
    golden = (GOLDEN / "version-1.form-2.manifest").read_bytes()

    assert encode_manifest(MANIFEST) == golden
    assert decode_manifest(golden, path="p") == MANIFEST


def test_the_golden_manifest_of_older_watermarks_is_read_with_those_of_now():
    golden = (GOLDEN / "version-1.manifest").read_bytes()

    found = decode_manifest(golden, path="p")

    before = {uid: mark + 1 for uid, mark in found.time.watermarks.items()}
    assert before == MANIFEST.time.watermarks
    assert replace(found, time=MANIFEST.time) == MANIFEST


@given(STATES)
def test_a_checkpoint_comes_back_with_all_it_has(state):
    assert decode_checkpoint(encode_checkpoint(state)) == state


@given(STATES)
def test_a_file_begins_with_the_plain_layout_which_compatible_reading_finds(state):
    data = encode_checkpoint(state)
    found = CheckpointState.deserialize("s", data, is_strict=False)

    assert found.serialize() == state.serialize()
    assert data.startswith(state.serialize())


def test_compatible_reading_finds_epoch_and_offsets_in_a_manifest():
    found = CheckpointState.deserialize("job", encode_manifest(MANIFEST), is_strict=False)

    assert (found.id.sequence, found.event_count) == (17, 300)
    assert found.source_offsets == {"lines\x1f0": 100, "lines\x1f1": 200, "words\x1f": 3}


def test_a_file_cut_at_any_byte_is_refused():
    whole = encode_checkpoint(SAMPLE)

    for size in range(len(whole)):
        assert problem_of(whole[:size]) == ("trailer_cut" if size < 12 else "checksum")


@given(STATES, st.data())
def test_a_flipped_bit_is_refused(state, data):
    flipped = bytearray(encode_checkpoint(state))
    position = data.draw(st.integers(0, len(flipped) - 1))
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))

    assert problem_of(bytes(flipped)) in ("checksum", "version")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (sealed(BODY, version=2), "version"),
        (sealed(BODY, reserved=1), "checksum"),
        (sealed(BODY, magic=b"BICM"), "checksum"),
        (sealed(SAMPLE_BYTES), "number_cut"),
        (sealed(BODY[:-1]), "name_cut"),
        (sealed(BODY + b"\x00"), "bytes_left"),
        (sealed(b""), "header_cut"),
    ],
)
def test_a_file_that_somebody_else_made_is_refused(data, problem):
    assert problem_of(data) == problem


def test_metadata_of_one_key_twice_are_refused():
    entry = BODY[-15:]
    twice = BODY.replace(b"\x01\x00\x00\x00" + entry, b"\x02\x00\x00\x00" + entry * 2)

    assert problem_of(sealed(twice)) == "name_twice"


@pytest.mark.parametrize("body", [b"", SAMPLE_BYTES[:30], SAMPLE_BYTES + b"\x00"])
def test_a_manifest_whose_body_is_wrong_is_refused_by_its_path(body):
    with pytest.raises(ManifestError) as caught:
        decode_manifest(sealed(body, magic=b"BICM"), path="epochs/1.manifest")

    assert caught.value.facts["path"] == "epochs/1.manifest"


@pytest.mark.parametrize("metadata", [{"\ud800": "v"}, {"k": "\ud800"}])
def test_metadata_that_are_no_utf8_are_refused(metadata):
    with raises(CHECKPOINT_VALUE_UNFIT):
        encode_checkpoint(CheckpointState(SAMPLE.id, metadata=metadata))
