"""WebSockets: the suite through a server that gives all to all, and feeds that break and stall."""

import asyncio
import base64
import hashlib

import pytest
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import serve
from websockets.exceptions import InvalidMessage

from bicycle_streams import (
    ConnectionLostError,
    StreamConnectError,
    StreamEndedError,
    StreamError,
    StreamUrlError,
    connect,
)
from bicycle_streams.delivering import PREFETCH_BYTES
from bicycle_streams.lines import format_line, parse_line
from bicycle_streams.testing import LosesConnections, StreamLoadSuite, StreamSuite
from tests.unit.streams.broadcasting import BroadcastCase

pytest_plugins = ["bicycle_streams.testing.plugin"]

QUICK = {"retry_delay_ms": 1, "retry_delay_max_ms": 20}


class WebSocketCase(BroadcastCase, LosesConnections):
    """A server in a thread of its own, which gives what each client sends to all of them."""

    word = "ws"

    @property
    def options(self):
        return QUICK

    def break_connections(self):
        async def abort():
            for peer in list(self.streamer.peers):
                peer.transport.abort()

        asyncio.run_coroutine_threadsafe(abort(), self.loop).result()


class TestWebSocket(StreamSuite):
    case_type = WebSocketCase


@pytest.mark.extended
class TestWebSocketUnderLoad(StreamLoadSuite):
    case_type = WebSocketCase


def run(scenario):
    async def whole():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(whole())


def test_a_feed_that_breaks_is_resumed_behind_the_last_message():
    """The other side is told where we were; messages that it skips are counted."""
    told = []

    async def feed(peer):
        told.append(await peer.recv())
        for number in ([1, 2], [3, 6])[min(len(told) - 1, 1)]:
            await peer.send(f'{{"seq": {number}}}')
        if len(told) == 1:
            peer.transport.abort()
        await peer.wait_closed()

    async def scenario():
        async with serve(feed, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            words = {"subscribe": "prices from {sequence}", "sequence_field": "seq", **QUICK}
            async with connect(f"ws://127.0.0.1:{port}", words) as streamer:
                consumer = await streamer.create_consumer("prices")
                found = [(await consumer.next()).sequence for _ in range(2)]
                while streamer.connection_count < 2 or len(found) < 4:
                    found.append((await consumer.next()).sequence)
                return found, streamer.gap_count

    found, gap_count = run(scenario)

    assert (found, gap_count) == ([1, 2, 3, 6], 2)
    assert told == ["prices from -1", "prices from 2"]


NO_SEQUENCE = ['{"seq": 1e999}', "[" * 100_000, '{"seq": -5}', '{"type": "subscribed"}', b"\xff"]


@pytest.mark.parametrize("odd", NO_SEQUENCE, ids=["endless", "deep", "negative", "none", "bytes"])
def test_a_frame_without_a_sequence_leaves_the_position_unchanged(odd):
    """A sequence of 0 would count as received, and would be missing after a restart."""
    told = []

    async def feed(peer):
        told.append(await peer.recv())
        await peer.send(odd)
        if len(told) == 1:
            peer.transport.abort()
            return
        for frame in ('{"seq": 0}', odd, '{"seq": 1}'):
            await peer.send(frame)
        await peer.wait_closed()

    async def scenario():
        async with serve(feed, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            words = {"subscribe": "{sequence}", "sequence_field": "seq", **QUICK}
            async with connect(f"ws://127.0.0.1:{port}", words) as streamer:
                consumer = await streamer.create_consumer("prices")
                found = [await consumer.next()]
                while found[-1].sequence < 1:
                    found.append(await consumer.next())
                return found, streamer.gap_count

    found, gap_count = run(scenario)

    assert [message.sequence for message in found][-4:] == [-1, 0, 0, 1]
    assert (told, gap_count) == (["-1", "-1"], 0)
    assert parse_line(format_line(found[0].header, "x"), "stdio://")[0].sequence is None


def test_an_unexpected_error_closes_the_connection_and_is_raised_by_consumers():
    class Failing:
        def decode(self, line):
            raise RuntimeError("odd")

    async def feed(peer):
        await peer.send("x")
        await peer.wait_closed()
        closed.set()

    async def scenario():
        async with serve(feed, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            streamer = connect(f"ws://127.0.0.1:{port}", QUICK)
            streamer._decoder = Failing()
            async with streamer:
                consumer = await streamer.create_consumer("a")
                with pytest.raises(ConnectionLostError, match="RuntimeError: odd"):
                    await consumer.next()
                await closed.wait()
                producer = await streamer.create_producer("a")
                with pytest.raises(ConnectionLostError):
                    await producer.send("x")
                with pytest.raises(ConnectionLostError):
                    await producer.end()

    closed = asyncio.Event()
    run(scenario)


async def shake_hands_and_be_silent(reader, writer):
    """Speak as little WebSocket as a server can, and answer no ping."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    [key] = [line.split(": ")[1] for line in head.split("\r\n") if "websocket-key" in line.lower()]
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
    accept = base64.b64encode(digest).decode()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    await reader.read()
    writer.close()


def test_a_side_that_answers_no_ping_is_left_for_a_new_connection():
    async def scenario():
        async with await asyncio.start_server(shake_hands_and_be_silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            words = {"ping_interval_ms": 10, "ping_timeout_ms": 20, **QUICK}
            async with connect(f"ws://127.0.0.1:{port}", words) as streamer:
                while streamer.connection_count < 3:
                    await asyncio.sleep(0.005)

    run(scenario)


def test_pauses_grow_and_differ_and_end():
    async def scenario():
        pauses = []
        async with serve(lambda peer: peer.wait_closed(), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            words = {"retry_delay_ms": 1, "retry_delay_max_ms": 8, "retry_timeout_ms": 1_500}
            async with connect(f"ws://127.0.0.1:{port}", words) as streamer:
                uniform = streamer._random.uniform

                def noted(low, high):
                    pauses.append(uniform(low, high))
                    return pauses[-1]

                streamer._random.uniform = noted
                consumer = await streamer.create_consumer("a")
                producer = await streamer.create_producer("a")
                server.close()
                with pytest.raises(ConnectionLostError):
                    await consumer.next()
                sent = producer.send("x")
                with pytest.raises(ConnectionLostError):
                    await sent
                with pytest.raises(ConnectionLostError):
                    await producer.end()
        return pauses

    pauses = run(scenario)

    assert len(pauses) > 5
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
    assert len(set(pauses)) == len(pauses)


def test_a_server_gives_what_is_sent_to_who_is_there():
    async def scenario():
        async with connect("ws://127.0.0.1:0", {"listen": True}) as server:
            producer = await server.create_producer("a")
            await producer.send("nobody hears it")
            async with connect(f"ws://127.0.0.1:{server.port}", QUICK) as client:
                heard = await client.create_consumer("a")
                said = await server.create_consumer("b")
                while not server.peers:
                    await asyncio.sleep(0.001)
                await producer.send("to all")
                await (await client.create_producer("b")).send("to the server")
                found = (await heard.next()).as_str(), (await said.next()).as_str()
            with pytest.raises(StreamEndedError):
                await heard._fetch(1)
        return found

    assert run(scenario) == ("to all", "to the server")


def test_a_frame_of_bytes_goes_to_everybody():
    async def feed(peer):
        await peer.send(b"\xff\x00")
        await peer.wait_closed()

    async def scenario():
        async with serve(feed, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with connect(f"ws://127.0.0.1:{port}") as streamer:
                message = await (await streamer.create_consumer("a")).next()
                return message.stream_key, message.payload

    assert run(scenario) == ("broadcast", b"\xff\x00")


def frame(first_byte, data):
    return bytes([first_byte, len(data)]) + data


BAD_FRAMES = {
    "large": frame(0x81, b"x" * 101),
    "fragments-without-end": frame(0x01, b"x" * 50) + frame(0x00, b"x" * 50) * 3,
    "not-text": frame(0x81, b"\xff\xfe"),
    "reserved": frame(0x83, b"x"),
    "compressed": frame(0xC1, b"\x00" * 5),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_cannot_be_received_is_told_and_the_next_connection_counts(name):
    async def feed(peer):
        feeds.append(peer)
        if len(feeds) == 1:
            await peer.send("before")
            peer.transport.write(BAD_FRAMES[name])
        else:
            await peer.send("after")
        await peer.wait_closed()

    async def scenario():
        options = {**QUICK, "frame_bytes_max": 100}
        async with serve(feed, "127.0.0.1", 0, compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            async with connect(f"ws://127.0.0.1:{port}", options) as streamer:
                consumer = await streamer.create_consumer("a")
                first = (await consumer.next()).as_str()
                with pytest.raises(StreamError) as refusing:
                    await consumer.next()
                return first, refusing.value.code, (await consumer.next()).as_str()

    feeds = []
    assert run(scenario) == ("before", "BIC-2648", "after")


def test_a_consumer_that_nobody_asks_holds_a_bounded_number_of_bytes():
    size = PREFETCH_BYTES // 4

    async def feed(peer):
        for number in range(40):
            await peer.send(f"{number}" + "x" * size)

    async def scenario():
        async with serve(feed, "127.0.0.1", 0, compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            async with connect(f"ws://127.0.0.1:{port}") as streamer:
                consumer = await streamer.create_consumer("a")
                first = await consumer.next()
                [peer] = streamer.peers
                while not (consumer.is_full and peer.recv_messages.paused):
                    await asyncio.sleep(0.001)
                held = len(consumer._queue) + len(peer.recv_messages.frames)
                rest = [await consumer.next() for _ in range(39)]
                return held, [message.as_str()[:2] for message in (first, *rest)]

    held, found = run(scenario)
    assert held <= 7
    assert found == [f"{number}x"[:2] for number in range(40)]


@pytest.mark.parametrize(
    ("uri", "options"),
    [("ws://127.0.0.1:1", {}), ("ws://999.1.1.1:1", {}), ("ws://999.1.1.1:1", {"listen": True})],
)
def test_a_place_that_is_not_there_is_told(uri, options):
    async def scenario():
        async with connect(uri, options):
            raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError):
        run(scenario)


@pytest.mark.parametrize("options", [{}, {"listen": True}])
@pytest.mark.parametrize("uri", ["ws://127.0.0.1:x", "ws://a:1,b:2/prices", "ws://:80"])
def test_an_address_that_is_none_is_told(uri, options):
    async def scenario():
        async with connect(uri, options):
            raise AssertionError("it must not open")

    with pytest.raises(StreamUrlError):
        run(scenario)


def test_a_server_listens_at_addresses_of_the_sixth_version():
    async def scenario():
        async with connect("ws://[::1]:0", {"listen": True}) as server:
            client = connect(f"ws://[::1]:{server.port}", QUICK)
            async with client:
                return client.connection_count

    assert run(scenario) == 1


def test_a_server_refuses_and_counts_clients_beyond_the_maximum_from_their_first_packet():
    async def scenario():
        words = {"listen": True, "clients_max": 2}
        async with connect("ws://127.0.0.1:0", words) as server:
            url = f"ws://127.0.0.1:{server.port}"
            first = await dial(url)
            _, silent = await asyncio.open_connection("127.0.0.1", server.port)
            while len(server.clients) < 2:
                await asyncio.sleep(0.01)
            for _ in range(5):
                with pytest.raises((InvalidMessage, ConnectionError)):
                    await dial(url)
            assert (server.refused_count, len(server.peers)) == (5, 1)
            silent.close()
            while len(server.clients) > 1:
                await asyncio.sleep(0.01)
            second = await dial(url)
            assert (server.refused_count, len(server.clients)) == (5, 2)
            await asyncio.gather(first.close(), second.close())

    run(scenario)
