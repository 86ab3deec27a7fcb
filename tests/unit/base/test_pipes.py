"""Frames on pipes: what is written is read in any pieces, and damaged frames are detected."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.pipes import (
    GREETING,
    FrameReader,
    Questions,
    decode_body,
    encode_frame,
    is_readable,
)

HEADERS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)
BLOBS = st.lists(st.binary(max_size=50), max_size=4)


def feed(data, *, step=1 << 20, size_max=1 << 20):
    reader = FrameReader(size_max)
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
    return reader


@given(HEADERS, BLOBS, st.integers(1, 64))
def test_what_is_written_is_read_in_pieces_of_any_size(header, blobs, step):
    reader = feed(GREETING + encode_frame(header, blobs), step=step)

    assert decode_body(reader.body) == (header, blobs)


@given(BLOBS, st.data())
def test_a_frame_cut_short_is_never_taken_for_whole(blobs, data):
    stream = GREETING + encode_frame({"a": 1}, blobs)
    size = data.draw(st.integers(0, len(stream) - 1))

    reader = feed(stream[:size])

    assert not reader.is_done
    assert reader.has_greeted == (size >= len(GREETING))


@given(BLOBS, st.data())
def test_a_changed_byte_is_noticed(blobs, data):
    stream = bytearray(GREETING + encode_frame({"a": 1}, blobs))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= data.draw(st.integers(1, 255))

    reader = feed(bytes(stream))

    assert reader.body is None


def test_bytes_behind_the_frame_are_ignored():
    reader = feed(GREETING + encode_frame({"a": 1}) + b"garbage", step=7)

    assert decode_body(reader.body) == ({"a": 1}, [])


def test_a_frame_over_the_limit_is_refused_by_its_length_alone():
    frame = encode_frame({}, [bytes(1000)])

    reader = feed(GREETING + frame[:16], size_max=500)

    assert (reader.oversize, reader.is_done) == (len(frame) - 16, True)


def test_garbage_is_refused_at_its_first_bytes():
    assert feed(b"hello").problem is not None
    assert feed(GREETING + b"hello").problem is not None
    assert feed(GREETING + b"BX").problem is None


def test_a_value_that_json_does_not_know_is_written_as_text():
    reader = feed(GREETING + encode_frame({"a": {1, 2}}))

    assert decode_body(reader.body) == ({"a": "{1, 2}"}, [])


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00[]", b"\x02\x00\x00\x00{}"]
)
def test_a_body_that_does_not_hold_what_it_says_is_an_error(body):
    with pytest.raises(ValueError, match=r"frame"):
        decode_body(body)


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as one, os.fdopen(writer, "wb", buffering=0) as other:
        yield one, other


def test_a_question_larger_than_a_pipe_comes_whole_and_the_end_is_no_question(pipe):
    reader, writer = pipe
    ends = [os.open(os.devnull, os.O_WRONLY) for _ in range(2)]
    questions = Questions(f"{reader.fileno()},{ends[0]},{ends[1]}")
    blob = bytes(1 << 20)

    def ask():
        left = memoryview(encode_frame({"number": 1}, [blob]))
        while left:
            left = left[writer.write(left) :]
        writer.close()

    asking = threading.Thread(target=ask)
    asking.start()
    assert questions.next() == ({"number": 1}, [blob])
    asking.join()
    assert questions.next() is None
    for end in ends:
        os.close(end)


def test_waiting_tells_data_end_and_silence(pipe):
    reader, writer = pipe
    assert not is_readable(reader, 0)
    writer.write(b"a")
    assert is_readable(reader.fileno(), None)
    reader.read(1)
    writer.close()
    assert is_readable(reader, 60)
