"""A line of the standard input that has no end."""

import asyncio
import io

import pytest

from bicycle_streams.errors import STANDARD_INPUT_UNREADABLE
from bicycle_streams.standard_input import batches_of_lines
from tests.raising import raises


def read(data, line_bytes_max):
    """Return the lines that come, until an error ends them."""
    lines = []

    async def scenario():
        async for batch in batches_of_lines(io.BytesIO(data), line_bytes_max=line_bytes_max):
            while batch:
                lines.append(batch.popleft())

    return lines, asyncio.run, scenario


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_refused_before_it_is_whole(end):
    size = 1 << 20
    lines, run, scenario = read(b"first\n" * 20_000 + b"x" * size + end, size // 2)

    with raises(STANDARD_INPUT_UNREADABLE) as caught:
        run(scenario())

    assert "more than 524,288 bytes" in caught.value.facts["reason"]
    assert lines == [b"first"] * len(lines)
    assert len(lines) >= 10_000


def test_a_line_of_the_largest_size_is_read():
    size = 1 << 20
    lines, run, scenario = read(b"x" * size + b"\nlast", size)

    run(scenario())

    assert [len(line) for line in lines] == [size, 4]


def test_a_stream_that_its_owner_closes_has_ended():
    stream = io.BytesIO(b"ada\n")
    stream.close()

    async def lines():
        return [batch async for batch in batches_of_lines(stream)]

    assert asyncio.run(lines()) == []
