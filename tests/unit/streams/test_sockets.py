"""Lines over TCP: the suite through a server that gives all to all, and sides that break."""

import asyncio
import contextlib
import socket

import pytest

from bicycle_runtime.contract import Guarantee
from bicycle_streams import (
    ConnectionLostError,
    StreamConnectError,
    StreamError,
    StreamUnsupportedError,
    StreamUrlError,
    connect,
)
from bicycle_streams.errors import PAYLOAD_NOT_A_LINE, RECEIVED_LINE_TOO_LONG
from bicycle_streams.testing import StreamLoadSuite, StreamSuite
from tests.unit.streams.broadcasting import BroadcastCase

pytest_plugins = ["bicycle_streams.testing.plugin"]

QUICK = {"retry_delay_ms": 1, "retry_delay_max_ms": 20}


class SocketCase(BroadcastCase):
    """A server in a thread of its own, which gives what each client sends to all of them."""

    word = "socket"
    guarantee = Guarantee.AT_MOST_ONCE
    server_options = {"heads": True}  # noqa: RUF012  # the contract

    @property
    def options(self):
        return {"heads": True, **QUICK}


class TestSocket(StreamSuite):
    case_type = SocketCase


@pytest.mark.extended
class TestSocketUnderLoad(StreamLoadSuite):
    case_type = SocketCase


def run(scenario):
    async def whole():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(whole())


@contextlib.asynccontextmanager
async def plain_server(serve):
    """A server of others; gives its address."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"socket://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_lines_go_both_ways_as_they_are():
    """As with nc: JSON arrays are no heads, spaces stay, and the last line may lack its end."""
    sent = [b"[1, 2] and more", b"  spaces  ", "é".encode(), b"", b'{"id": 7}']
    heard = []

    async def serve(reader, writer):
        writer.write(b"\r\n".join(sent))
        writer.write_eof()
        heard.append(await reader.read())
        writer.close()

    async def scenario():
        async with plain_server(serve) as uri:
            async with connect(uri, {"retry_timeout_ms": 0}) as streamer:
                consumer = await streamer.create_consumer("a")
                found = [await consumer.next() for _ in sent]
            async with connect(uri) as streamer:
                producer = await streamer.create_producer("a")
                for payload in sent:
                    producer.send(payload)
            while len(heard) < 2:
                await asyncio.sleep(0.001)
        return found

    found = run(scenario)

    assert [message.payload for message in found] == sent
    assert [message.sequence for message in found] == list(range(len(sent)))
    assert {str(message.stream_key) for message in found} == {"broadcast"}
    assert heard == [b"", b"\n".join(sent) + b"\n"]


@pytest.mark.parametrize("word", ["socket", "ws"])
def test_a_server_forwards_messages_to_all_clients_but_their_sender(word):
    async def scenario():
        address = f"{word}://127.0.0.1"
        async with connect(f"{address}:0", {"listen": True, "broadcast": True}) as server:
            uri = f"{address}:{server.port}"
            async with connect(uri) as one, connect(uri) as other:
                while len(server.peers) < 2:
                    await asyncio.sleep(0.001)
                heard = [await each.create_consumer("a") for each in (other, one)]
                found = []
                for client, consumer in zip((one, other), heard, strict=True):
                    await (await client.create_producer("a")).send(f"message {len(found)}")
                    found.append((await consumer.next()).as_str())
        return found

    assert run(scenario) == ["message 0", "message 1"]


def test_a_receipt_says_that_the_kernel_has_the_line():
    """It comes while the other side reads nothing, and no more is taken than there is room for."""

    async def scenario():
        is_over = asyncio.Event()

        async def serve(reader, writer):
            reader._transport.pause_reading()
            await is_over.wait()
            writer.close()

        async with plain_server(serve) as uri, connect(uri, {"send_timeout_ms": 200}) as streamer:
            producer = await streamer.create_producer("a")
            receipt = await producer.send("x")
            assert (receipt.stream_key, receipt.sequence) == ("a", 0)
            with pytest.raises(ConnectionLostError):
                await producer.send("x" * (64 << 20))
            with pytest.raises(ConnectionLostError):
                await producer.flush()  # Who dropped the receipt learns it here.
            is_over.set()

    run(scenario)


def test_more_than_the_kernel_tells_is_refused():
    async def serve(reader, writer):
        await reader.read()
        writer.close()

    async def scenario():
        async with plain_server(serve) as uri, connect(uri) as streamer:
            for durability in ("at-least-once", "exactly-once"):
                with pytest.raises(StreamUnsupportedError) as refusal:
                    await streamer.create_producer("a", durability=durability)
            assert "duplicates" in str(refusal.value)
            for mode in ("resumable", "load-balanced"):
                with pytest.raises(StreamUnsupportedError, match="stores no positions"):
                    await streamer.create_consumer("a", mode=mode, group="g")
            producer = await streamer.create_producer("a")
            for payload in (b"\xff", b"two\nlines"):
                with pytest.raises(StreamUnsupportedError) as refusal:
                    producer.send(payload)
                assert refusal.value.code == PAYLOAD_NOT_A_LINE.code

    run(scenario)


def test_a_client_connects_again_and_tells_what_broke():
    """What comes over the next connection is heard; what was on its way is refused once."""
    count = 0

    async def serve(reader, writer):
        nonlocal count
        count += 1
        writer.write(b"%d\n" % count)
        if count < 4:
            await writer.drain()
            await asyncio.sleep(0)
            writer.transport.abort()
        else:
            await reader.read()
            writer.close()

    async def scenario():
        async with plain_server(serve) as uri, connect(uri, QUICK) as streamer:
            consumer = await streamer.create_consumer("a")
            while (await consumer.next()).payload != b"4":
                pass
            assert streamer.connection_count >= 4
            await (await streamer.create_producer("a")).send("x")

    run(scenario)


def test_a_side_that_stays_away_ends_consumers_and_producers():
    async def serve(reader, writer):
        writer.close()

    async def scenario():
        async with plain_server(serve) as uri:
            streamer = connect(uri, {**QUICK, "retry_timeout_ms": 30})
            await streamer.__aenter__()
        consumer = await streamer.create_consumer("a")
        producer = await streamer.create_producer("a")
        with pytest.raises(ConnectionLostError):
            await consumer.next()
        with pytest.raises(ConnectionLostError):
            await producer.send("x")
        with pytest.raises(ConnectionLostError):
            await streamer.disconnect()

    run(scenario)


def test_a_server_gives_what_is_sent_to_who_is_there_and_counts_what_is_lost():
    async def scenario():
        async with connect("socket://127.0.0.1:0", {"listen": True}) as server:
            producer = await server.create_producer("a")
            await producer.send("nobody hears it")
            assert server.dropped_count == 1
            uri = f"socket://127.0.0.1:{server.port}"
            async with connect(uri, QUICK) as client, connect(uri, QUICK) as other:
                heard = [await each.create_consumer("a") for each in (client, other)]
                said = await server.create_consumer("b")
                while len(server.peers) < 2:
                    await asyncio.sleep(0.001)
                await producer.send("to all")
                await (await client.create_producer("b")).send("to the server")
                found = [(await each.next()).as_str() for each in (*heard, said)]
            assert server.dropped_count == 1
        return found

    assert run(scenario) == ["to all", "to all", "to the server"]


def test_who_takes_nothing_is_disconnected_and_others_go_on():
    async def scenario():
        options = {"listen": True, "send_timeout_ms": 2_000}
        async with connect("socket://127.0.0.1:0", options) as server:
            stuck = socket.create_connection(("127.0.0.1", server.port))
            async with connect(f"socket://127.0.0.1:{server.port}", QUICK) as client:
                consumer = await client.create_consumer("a")
                while len(server.peers) < 2:
                    await asyncio.sleep(0.001)
                producer = await server.create_producer("a")
                producer.send("x" * (8 << 20))
                producer.send("end")
                sizes = [(await consumer.next()).size for _ in range(2)]
                await producer.flush()
                assert (len(server.peers), server.dropped_count > 0) == (1, True)
            stuck.close()
        return sizes

    assert run(scenario) == [8 << 20, 3]


def test_a_client_that_only_reads_may_close_its_other_half():
    """As nc does at the end of its input; one that only writes is forgotten when it ends."""

    async def scenario():
        async with connect("socket://127.0.0.1:0", {"listen": True}) as server:
            said = await server.create_consumer("a")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"bye")
            writer.close()
            assert (await said.next()).as_str() == "bye"
            while server.peers:
                await asyncio.sleep(0.001)
            producer = await server.create_producer("a")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"first\n")
            writer.write_eof()
            assert (await said.next()).as_str() == "first"
            await producer.send("still heard")
            line = await reader.readline()
        assert await reader.read() == b""
        writer.close()
        return line

    assert run(scenario) == b"still heard\n"


def test_lines_that_are_none_are_told_and_others_follow():
    async def scenario():
        options = {"listen": True, "line_bytes_max": 1 << 20, "heads": True}
        async with connect("socket://127.0.0.1:0", options) as server:
            consumer = await server.create_consumer("a")
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\xff\n[1, 2] x\n[2024-01-01T00:00:00 | a | 5 | 0] fine\nplain\n")
            for _ in range(2):
                with pytest.raises(StreamError):
                    await consumer.next()
            assert ((await consumer.next()).sequence, (await consumer.next()).as_str()) == (
                5,
                "plain",
            )
            writer.write(b"x" * (2 << 20))
            with pytest.raises(StreamError) as refusal:
                await consumer.next()
            assert refusal.value.code == RECEIVED_LINE_TOO_LONG.code
            writer.close()
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"next\n")
            assert (await consumer.next()).as_str() == "next"
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("uri", "options", "error"),
    [
        ("socket://127.0.0.1:1", {}, StreamConnectError),
        ("socket://999.1.1.1:1", {"listen": True}, StreamConnectError),
        ("socket://127.0.0.1", {}, StreamUrlError),
        ("socket://127.0.0.1:x", {}, StreamUrlError),
        ("socket://a:1,b:2", {}, StreamUrlError),
        ("socket://user@a:1", {}, StreamUrlError),
    ],
)
def test_a_place_that_is_none_is_told(uri, options, error):
    async def scenario():
        async with connect(uri, options):
            raise AssertionError("it must not open")

    with pytest.raises(error):
        run(scenario)


def test_a_side_that_does_not_answer_is_not_waited_for_for_ever():
    """Nobody accepts, and the queue of the kernel is full."""

    async def scenario(uri):
        async with connect(uri, {"connect_timeout_ms": 20}):
            raise AssertionError("it must not open")

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with pytest.raises(StreamConnectError, match="no answer in 20 ms"):
            run(lambda: scenario(f"socket://127.0.0.1:{server.getsockname()[1]}"))


def test_a_server_refuses_and_counts_clients_beyond_the_maximum():
    async def scenario():
        words = {"listen": True, "clients_max": 1}
        async with connect("socket://127.0.0.1:0", words) as server:
            _, first = await asyncio.open_connection("127.0.0.1", server.port)
            while not server.peers:
                await asyncio.sleep(0.01)
            reader, surplus = await asyncio.open_connection("127.0.0.1", server.port)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert server.refused_count == 1
            first.close()
            while server.peers:
                await asyncio.sleep(0.01)
            writers = [surplus]
            while not server.peers:  # The first client is counted until its task has ended.
                writers.append((await asyncio.open_connection("127.0.0.1", server.port))[1])
                await asyncio.sleep(0.05)
            for writer in writers:
                writer.close()

    run(scenario)
