"""Compressed files are read in pieces, however much a few of their bytes stand for."""

import gzip
import tracemalloc
from contextlib import closing

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.connectors.errors import INPUT_DAMAGED
from bicycle_runtime.connectors.files.blocks import BLOCK_BYTES, open_at
from bicycle_runtime.connectors.files.zstd import ZstdDamage, ZstdStream
from tests.examples import examples
from tests.raising import raises

SKIPPABLE = b"\x5f\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"abcde"
FRAMES = st.lists(
    st.tuples(
        st.one_of(
            st.binary(max_size=2_000),
            st.builds(bytes.__mul__, st.binary(max_size=3), st.integers(0, 200_000)),
        ),
        st.integers(-3, 12),
        st.booleans(),
        st.booleans(),
    ),
    max_size=3,
)


def compressed(frames):
    """Return frames as bytes, with where each ends; before the second lies one to be skipped."""
    data, ends = b"", [0]
    for number, (content, level, has_checksum, has_size) in enumerate(frames):
        if number == 1:
            data += SKIPPABLE
            ends.append(len(data))
        compressor = zstandard.ZstdCompressor(
            level=level, write_checksum=has_checksum, write_content_size=has_size
        )
        data += compressor.compress(content)
        ends.append(len(data))
    return data, ends


def read_all(path, size):
    with path.open("rb") as raw:
        stream, found = ZstdStream(raw), []
        while data := stream.read(size):
            assert len(data) <= size
            found.append(data)
    return b"".join(found)


@settings(max_examples=examples(100), deadline=None)
@given(frames=FRAMES, size=st.integers(1, 300_000), cut=st.integers(0, 10_000))
def test_all_frames_come_whole_and_a_cut_one_is_noticed(tmp_path_factory, frames, size, cut):
    path = tmp_path_factory.mktemp("frames") / "x.zst"
    data, ends = compressed(frames)
    path.write_bytes(data)
    assert read_all(path, max(size, 64)) == b"".join(content for content, *_ in frames)

    end = cut % (len(data) + 1)
    path.write_bytes(data[:end])
    if end in ends:
        read_all(path, 1_000)
    else:
        with pytest.raises(ZstdDamage):
            read_all(path, 1_000)


@settings(max_examples=examples(100), deadline=None)
@given(frames=FRAMES, place=st.integers(0), bits=st.integers(1, 255))
def test_damage_is_no_other_error(tmp_path_factory, frames, place, bits):
    data = bytearray(compressed(frames)[0])
    if not data:
        return
    data[place % len(data)] ^= bits
    path = tmp_path_factory.mktemp("frames") / "x.zst"
    path.write_bytes(bytes(data))

    try:
        read_all(path, 1 << 17)
    except ZstdDamage:
        return


def bomb(suffix, size):
    content = b"\n".join([b"x" * 9_999] * (size // 10_000)) + b"\n"
    return gzip.compress(content) if suffix == "gz" else zstandard.compress(content, 19)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_small_file_of_much_content_takes_little_memory(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(bomb(suffix, 100 << 20))
    assert path.stat().st_size < 200_000
    cursor = open_at(str(path), 0)
    tracemalloc.start()
    try:
        byte_count = 0
        while data := cursor.read(BLOCK_BYTES):
            byte_count += len(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        cursor.close()

    assert byte_count > 99 << 20
    assert peak < 4 << 20
    skipped = open_at(str(path), byte_count - 3)
    assert skipped.read() == b"xx\n"
    skipped.close()


def test_text_that_only_claims_to_be_compressed_is_an_error_with_its_path(tmp_path):
    path = tmp_path / "x.zst"
    path.write_bytes(b"just text\n")

    with closing(open_at(str(path), 0)) as cursor, raises(INPUT_DAMAGED) as caught:
        cursor.read()

    assert caught.value.facts["path"] == str(path)
