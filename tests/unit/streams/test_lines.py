"""Lines between programs: their heads, and streams on standard input and output."""

import asyncio
import io
import os
import subprocess
import sys
import textwrap

import pytest

from bicycle_streams import (
    StreamConnectError,
    StreamEndedError,
    StreamError,
    StreamUnsupportedError,
    Timestamp,
    connect,
)
from bicycle_streams.lines import parse_line

TIME = "2022-01-02T03:04:05"
TIME_MS = Timestamp.parse(TIME)


@pytest.mark.parametrize(
    ("line", "head", "payload"),
    [
        ("a plain, raw message", (None,) * 4, "a plain, raw message"),
        ('{ "payload": 1 }', (None,) * 4, '{ "payload": 1 }'),
        (f"[{TIME}] x", (TIME_MS, None, None, None), "x"),
        (f"[{TIME}.678 | a-b_c.1] [1]", (TIME_MS + 678, "a-b_c.1", None, None), "[1]"),
        (f"[{TIME} | a | 123] x y", (TIME_MS, "a", 123, None), "x y"),
        (f"[{TIME} | a | 123 | 4] x", (TIME_MS, "a", 123, 4), "x"),
        ("[a] x", (None, "a", None, None), "x"),
        ("[a | 123] x", (None, "a", 123, None), "x"),
        ("[a|123|4]x", (None, "a", 123, 4), "x"),
    ],
)
def test_a_head_may_be_partial(line, head, payload):
    assert parse_line(line, "stdio://") == (head, payload)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("[ ] x", ""),
        ("[Jan 1, 2022] x", "Jan 1, 2022"),
        (f"[{TIME} | a | b] x", "b"),
        ("[a | 1 | b] x", "b"),
        ("[a | 1 | 2 | 3] x", "3"),
        (f"[a | {TIME}] x", TIME),
        ("[2022-13-45T00:00:00] x", "2022-13-45T00:00:00"),
        ("[+99999999999-01-01T00:00:00 | k] x", "+99999999999-01-01T00:00:00"),
        ("[-146136544-01-01T00:00:00] x", "-146136544-01-01T00:00:00"),
    ],
)
def test_a_head_that_is_none_is_told(line, part):
    with pytest.raises(StreamError) as caught:
        parse_line(line, "stdio://")

    assert (caught.value.code, caught.value.facts["part"]) == ("BIC-2650", part)


class Standard:
    """A standard stream with nothing but its bytes."""

    def __init__(self, data=b""):
        self.buffer = io.BytesIO(data)


def run(monkeypatch, scenario, data=b"", **options):
    """Run a scenario on standard streams of its own; returns its answer and what was written."""
    output = Standard()
    monkeypatch.setattr(sys, "stdin", Standard(data))
    monkeypatch.setattr(sys, "stdout", output)

    async def whole():
        async with connect("stdio://", options) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole()), output.buffer.getvalue().decode()


def test_lines_are_given_to_the_consumers_of_their_stream(monkeypatch):
    async def scenario(streamer):
        consumers = [await streamer.create_consumer(key) for key in "ab"]
        return [
            [(str(m.stream_key), m.sequence, m.payload) async for m in consumer]
            for consumer in consumers
        ]

    (first, second), _ = run(monkeypatch, scenario, b"[a] 1\n[b] 2\nall\n\n[a | 9] 3\n[a] 4")

    assert first == [("a", 0, b"1"), ("broadcast", 0, b"all"), ("a", 9, b"3"), ("a", 10, b"4")]
    assert second == [("b", 0, b"2"), ("broadcast", 0, b"all")]


def test_a_line_that_cannot_be_read_is_told_and_the_next_is_read(monkeypatch):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        found = []
        for _ in range(4):
            try:
                found.append((await consumer.next()).payload)
            except StreamError as error:
                found.append(error.code)
        return found

    found, _ = run(monkeypatch, scenario, b"[a] 1\n[ ] x\n\xff\n[a] 2\n")

    assert found == [b"1", "BIC-2650", "BIC-2651", b"2"]


def test_messages_are_written_as_lines_but_for_empty_ones(monkeypatch):
    async def scenario(streamer):
        producer = await streamer.create_producer("a")
        producer.send("one", timestamp_ms=TIME_MS)
        producer.send("")
        receipt = await producer.send("three", timestamp_ms=TIME_MS)
        for payload in (b"\xff", "two\nlines"):
            with pytest.raises(StreamUnsupportedError):
                producer.send(payload)
        return receipt.sequence

    sequence, text = run(monkeypatch, scenario)

    assert sequence == 2
    assert text == f"[{TIME}.000 | a | 0 | 0] one\n[{TIME}.000 | a | 2 | 0] three\n"


def test_what_is_sent_comes_back_with_loopback_and_a_group_shares_it(monkeypatch):
    async def scenario(streamer):
        words = {"mode": "load-balanced", "group": "g"}
        alone = await streamer.create_consumer("a")
        members = [await streamer.create_consumer("a", **words)]
        producer = await streamer.create_producer("a")
        await producer.send("first")
        members.append(await streamer.create_consumer("a", **words))
        for n in range(1, 10):
            producer.send(str(n))
        await producer.flush()
        everything = [m.sequence for m in await alone.next_batch(10)]
        return everything, [[m.sequence for m in await c.next_batch(10)] for c in members]

    (everything, shares), _ = run(monkeypatch, scenario, loopback=True)

    assert everything == list(range(10))
    assert shares == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_a_slow_consumer_holds_the_reader_up_and_loses_nothing(monkeypatch):
    async def scenario(streamer):
        slow, fast = [await streamer.create_consumer("a") for _ in range(2)]
        first = [(await fast.next()).sequence for _ in range(3)]
        await fast.end()
        return first, [m.sequence async for m in slow]

    data = b"".join(b"[a] x\n" for _ in range(50))
    (first, rest), _ = run(monkeypatch, scenario, data, prefetch_messages=3)

    assert (first, rest) == ([0, 1, 2], list(range(50)))


class Breaking:
    """A standard stream that gives some lines, pauses, and breaks."""

    def __init__(self):
        self.buffer = self
        self.answers = [b"[a] 1\n[a] ", None, b"2\n[a] 3"]
        self.pipe = os.pipe()
        os.write(self.pipe[1], b"x")  # Something is there when it is waited for.

    def read(self, size):
        if self.answers:
            return self.answers.pop(0)
        raise OSError(5, "Input/output error")

    def fileno(self):
        return self.pipe[0]


@pytest.mark.parametrize(("stream", "count"), [(Breaking, 3), (lambda: None, 0)])
def test_a_standard_input_that_breaks_or_is_none_is_told_behind_what_came(
    monkeypatch, stream, count
):
    async def scenario():
        monkeypatch.setattr(sys, "stdin", stream())
        async with connect("stdio://") as streamer:
            consumer = await streamer.create_consumer("a")
            found = [(await consumer.next()).payload for _ in range(count)]
            with pytest.raises(StreamError) as caught:
                await consumer.next()
            return found, caught.value.code

    assert asyncio.run(scenario()) == ([b"1", b"2", b"3"][:count], "BIC-2656")


def test_one_streamer_reads_standard_input_others_may_write_and_none_works_afterwards(monkeypatch):
    async def scenario(streamer):
        consumer = await streamer.create_consumer("a")
        async with connect("stdio://") as other:
            await (await other.create_producer("b")).send("x")
            with pytest.raises(StreamConnectError) as caught:
                await other.create_consumer("a")
        with pytest.raises(StreamUnsupportedError):
            await consumer.seek(0)
        with pytest.raises(StreamUnsupportedError):
            await streamer.create_consumer("a", mode="resumable")
        with pytest.raises(StreamEndedError):
            await consumer.next()
        return caught.value.code

    code, text = run(monkeypatch, scenario)
    assert (code, text.endswith("| b | 0 | 0] x\n")) == ("BIC-2653", True)


def test_programs_make_a_pipe():
    program = textwrap.dedent(
        """
        import asyncio
        from bicycle_streams import connect

        async def main():
            async with connect("stdio://") as streamer:
                consumer = await streamer.create_consumer("a")
                producer = await streamer.create_producer("b")
                async for message in consumer:
                    producer.send(message.as_str().upper())

        asyncio.run(main())
        """
    )
    data = "".join(f"[a] line {n}\n" for n in range(1000))

    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, text=True, check=True
    )

    lines = done.stdout.splitlines()
    assert [line.partition("] ")[2] for line in lines] == [f"LINE {n}" for n in range(1000)]
    assert done.stderr == ""
