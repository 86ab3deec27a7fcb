"""Frames on pipes: whatever is written is read, in any pieces, and what is none is told."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.pipes import is_readable, read_frame, write_frame

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as one, os.fdopen(writer, "wb", buffering=0) as other:
        yield one, other


@given(st.lists(PLAIN, max_size=3))
def test_what_is_written_is_read(values):
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as one:
        with os.fdopen(writer, "wb", buffering=0) as other:
            for value in values:
                write_frame(other, value)
        assert [read_frame(one) for _ in values] == values
        with pytest.raises(EOFError):
            read_frame(one)


def test_a_frame_larger_than_a_pipe_comes_whole(pipe):
    reader, writer = pipe
    text = "a" * (1 << 20)
    writing = threading.Thread(target=write_frame, args=(writer, text))
    writing.start()
    assert read_frame(reader, timeout_s=60) == text
    writing.join()


NO_FRAMES = [b"\0\0\0\2{]", b"\0\0\0\1\xff", b"\xff\xff\xff\xff", b"\0\0", b"\0\0\0\7[1"]


@pytest.mark.parametrize("data", NO_FRAMES)
def test_what_is_no_frame_is_told(pipe, data):
    reader, writer = pipe
    writer.write(data)
    writer.close()
    with pytest.raises(EOFError):
        read_frame(reader, timeout_s=60)


def test_half_a_frame_is_not_waited_for_longer_than_asked(pipe):
    reader, writer = pipe
    writer.write(b"\0\0\0\7[1")
    with pytest.raises(TimeoutError):
        read_frame(reader, timeout_s=0.05)


def test_waiting_tells_data_end_and_silence(pipe):
    reader, writer = pipe
    assert not is_readable(reader, 0)
    writer.write(b"a")
    assert is_readable(reader.fileno(), None)
    reader.read(1)
    writer.close()
    assert is_readable(reader, 60)
