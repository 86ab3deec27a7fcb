"""The subscriber server as a process: positions, filters, slow clients, and whatever is sent to it.

The streams are those of a file; tests of other backends are in the folders of their servers.
"""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bicycle_streams import Message, StreamEndedError, StreamKey, StreamUrl, connect
from bicycle_streams.lines import BROADCAST
from bicycle_streams.subscriber_server.feeds import Feed
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from tests.unit.streams.subscriber_server.subscribed import (
    SubscriberServer,
    ask,
    client_of,
    figure,
    reaches,
    run,
)

KEYS = ["orders", "refunds"]


@asynccontextmanager
async def served(folder, *words, keys=KEYS):
    """Give a producer of any stream of a file, and a server of some of them."""
    uri = f"file://{folder}/events.ss"
    async with connect(uri, {"create": "if-missing"}) as streamer:
        producer = await streamer.create_generic_producer()
        with SubscriberServer(folder, f"{uri}/{','.join(keys)}", *words) as server:
            yield producer, server


async def send(producer, payloads, key="orders"):
    for payload in payloads:
        receipt = producer.send_to(key, json.dumps(payload))
    return await receipt


def test_a_subscription_begins_where_it_was_asked_to(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as client:
            for number in (1, 2, 3, 4):
                receipt = await send(producer, [number])
                if number == 3:
                    moment = {"time": f"{receipt.timestamp}Z"}
                await asyncio.sleep(0.002)  # Their times differ.
            await reaches(server, 'messages_read_total{stream="orders"}', 4)
            asked = {
                "a": ("beginning", [1, 2, 3, 4]),
                "b": ({"sequence": 3}, [3, 4]),
                "c": ({"sequence": "3"}, [3, 4]),
                "d": ({"after": {"0": "3"}}, [4]),
                "e": ({"after": {"0": 4}}, []),
                "f": (moment, [3, 4]),
            }
            for name, (begin, expected) in asked.items():
                frame = await client.ask(op="subscribe", id=name, stream="orders", from_=begin)
                assert frame == {"op": "subscribed", "id": name, "stream": "orders"}
                past = await client.until("live")
                assert [each["payload"] for each in past[:-1]] == expected, name
            await client.ask(op="subscribe", id="g", stream="orders")
            await send(producer, [5])
            frames = [await client.next() for _ in range(7)]
            assert [frame["id"] for frame in frames] == [*asked, "g"]
            assert all(frame["payload"] == 5 for frame in frames)
            assert frames[0]["header"]["position"] == "5"

    run(scenario())


def test_past_and_new_messages_follow_each_other_without_gap_or_repetition(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as client:
            for begin in range(0, 6_000, 200):
                await send(producer, range(begin, begin + 200))
                if begin in (1_000, 3_000, 5_000):
                    name = f"from {begin}"
                    await client.send(op="subscribe", id=name, stream="orders", from_="beginning")
            found = {f"from {begin}": [] for begin in (1_000, 3_000, 5_000)}
            while min(map(len, found.values())) < 6_000:
                frame = await client.next()
                if frame["op"] == "message":
                    found[frame["id"]].append(frame["payload"])
            assert all(payloads == list(range(6_000)) for payloads in found.values())

    run(scenario())


def test_filters_pass_what_is_wanted_of_the_past_and_of_what_comes(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as client:
            orders = [{"country": country} for country in ("de", "fr", "de")]
            await send(producer, orders)
            wanted = {"country": ["de"]}
            await client.ask(
                op="subscribe", id="a", stream="orders", from_="beginning", filter=wanted
            )
            past = await client.until("live")
            assert [each["header"]["sequence"] for each in past[:-1]] == [1, 3]
            await send(producer, [*orders, "text", 7])
            await send(producer, [{"country": "de", "last": True}])
            found = [await client.next() for _ in range(3)]
            assert [each["header"]["sequence"] for each in found] == [4, 6, 9]

    run(scenario())


def test_streams_come_and_go_on_one_connection(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as client:
            await client.ask(op="subscribe", id="a", stream="orders")
            await client.ask(op="subscribe", id="b", stream="refunds")
            await send(producer, [1], "refunds")
            assert (await client.next())["id"] == "b"
            assert (await client.ask(op="unsubscribe", id="b"))["op"] == "unsubscribed"
            await send(producer, [2], "refunds")
            await send(producer, [3], "orders")
            assert (await client.next())["payload"] == 3
            await client.ask(op="subscribe", id="b", stream="refunds", from_="beginning")
            assert await client.messages(2) == [1, 2]
            await reaches(server, "subscriptions", 2)
        assert server.process.poll() is not None

    run(scenario())


def test_payloads_that_are_no_json_for_everybody_arrive_as_they_are(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as client:
            await client.ask(op="subscribe", id="a", stream="orders")
            texts = [
                "NaN", '{"a": Infinity}', "", '"text"', "[" * 50_000, '{"a": "\\ud800"}', "[1e999]",
            ]  # fmt: skip
            for payload in (b"\xff\x00", *texts, '["\\ud83d\\udeb2"]'):
                await producer.send_to("orders", payload)
            frames = [await client.next() for _ in range(len(texts) + 2)]
            assert frames[0]["payload_base64"] == "/wA="
            assert [frame["payload"] for frame in frames[1:]] == [*texts, ["\U0001f6b2"]]

    run(scenario())


BAD = {
    "no JSON": "subscribe",
    "no object": "[]",
    "no op": '{"id": "a"}',
    "another op": '{"op": "publish", "id": "a"}',
    "another field": '{"op": "unsubscribe", "id": "a", "extra": 1}',
    "no id": '{"op": "subscribe", "stream": "orders"}',
    "an empty id": '{"op": "subscribe", "id": "", "stream": "orders"}',
    "a long id": json.dumps({"op": "unsubscribe", "id": "a" * 65}),
    "deep": "[" * 60_000,
    "deep in a filter": '{"op":"subscribe","id":"a","stream":"orders","filter":'
    + '{"":' * 12_000 + "1" + "}" * 12_001,
    "binary": b'{"op": "unsubscribe", "id": "a"}',
    "half a letter": '{"op": "\\ud800"}',
}  # fmt: skip
REFUSED = {
    "unknown subscription": ({"op": "unsubscribe", "id": "b"}, "BIC-2511"),
    "taken": ({"op": "subscribe", "id": "a", "stream": "orders"}, "BIC-2512"),
    "unknown stream": ({"op": "subscribe", "id": "b", "stream": "../etc/passwd"}, "BIC-2514"),
    "filter": ({"op": "subscribe", "id": "b", "stream": "orders", "filter": {}}, "BIC-2516"),
    **{
        f"position {begin}": (
            {"op": "subscribe", "id": "b", "stream": "orders", "from": begin},
            "BIC-2510",
        )
        for begin in (
            7, None, "middle", {}, {"sequence": -1}, {"sequence": "x"}, {"time": "noon"},
            {"after": {}}, {"after": {"x": 1}}, {"sequence": 1 << 64}, {"time": 7},
            {"sequence": 1, "time": "2026-01-01T00:00:00"}, {"sequence": True},
        )
    },
}  # fmt: skip


def test_requests_that_cannot_be_done_are_told_and_change_nothing(tmp_path):
    async def scenario():
        limit = f"bad_frames_max={len(BAD) + len(REFUSED)}"
        async with served(tmp_path, "--limit", limit) as (producer, server):
            async with client_of(server) as client:
                await client.ask(op="subscribe", id="a", stream="orders")
                for name, frame in BAD.items():
                    await client.connection.send(frame)
                    answer = await client.next()
                    assert (answer["op"], answer["error"]["code"]) == ("error", "BIC-2510"), name
                for name, (request, code) in REFUSED.items():
                    answer = await client.ask(**request)
                    assert (answer["op"], answer["error"]["code"]) == ("error", code), name
                    assert answer["error"]["fix"]
                await send(producer, [1])
                assert await client.messages(1) == [1]
                # It was the last one that is borne with.
                await client.connection.send("again")
                with pytest.raises(ConnectionClosed) as closing:
                    await client.until("message")
                assert closing.value.rcvd.code == 1008
            assert await figure(server, 'clients_dropped_total{reason="bad frames"}') == 1
            assert await figure(server, "subscriptions") == 0

    run(scenario())


def test_a_frame_that_is_too_large_ends_its_connection_alone(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server), client_of(server) as other:
            await other.ask(op="subscribe", id="a", stream="orders")
            async with client_of(server) as client:
                await client.connection.send("x" * 70_000)
                with pytest.raises(ConnectionClosed) as closing:
                    await client.next()
                assert closing.value.rcvd.code == 1009
            await send(producer, [1])
            assert await other.messages(1) == [1]

    run(scenario())


def test_nobody_has_more_subscriptions_or_connections_than_there_may_be(tmp_path):
    async def scenario():
        words = ("--limit", "subscriptions_max=2", "--limit", "clients_max=1")
        async with served(tmp_path, *words) as (producer, server):
            async with client_of(server) as client:
                for name in ("a", "b"):
                    await client.ask(op="subscribe", id=name, stream="orders")
                answer = await client.ask(op="subscribe", id="c", stream="orders")
                assert answer["error"]["code"] == "BIC-2513"
                with pytest.raises(InvalidStatus) as refusing:
                    async with client_of(server):
                        pass
                assert refusing.value.response.status_code == 503
                assert json.loads(refusing.value.response.body)["code"] == "BIC-2517"
                await client.ask(op="unsubscribe", id="a")
                await client.ask(op="subscribe", id="c", stream="orders")
                await send(producer, [1])
                assert [(await client.next())["id"] for _ in range(2)] == ["b", "c"]
            await reaches(server, "clients", 0)
            async with client_of(server) as client:
                assert (await client.ask(op="subscribe", id="a", stream="orders"))["id"] == "a"

    run(scenario())


BIG = "x" * 10_000


async def overrun(server, producer, slow):
    """Send more than a client that reads nothing can have in queues and sockets."""
    await slow.send(op="subscribe", id="a", stream="orders")
    await reaches(server, "subscriptions", 1)
    count = 2_000
    for begin in range(0, count, 100):
        await send(producer, [{"n": n, "fill": BIG} for n in range(begin, begin + 100)])
    return count


SMALL_QUEUE = ("--limit", "queue_messages=50")


def test_a_slow_client_lags_and_misses_nothing(tmp_path):
    async def scenario():
        async with served(tmp_path, *SMALL_QUEUE) as (producer, server), client_of(server) as quick:
            async with client_of(server, max_queue=1) as slow:
                count = await overrun(server, producer, slow)
                await reaches(server, 'messages_read_total{stream="orders"}', count)
                await quick.ask(op="subscribe", id="q", stream="orders")
                # Others are served meanwhile.
                await send(producer, [{"n": count}])
                assert [each["n"] for each in await quick.messages(1)] == [count]
                found, notes = [], set()
                while len(found) <= count:
                    frame = await slow.next()
                    notes.add(frame["op"])
                    if frame["op"] == "message":
                        found.append(frame["payload"]["n"])
                assert found == list(range(count + 1))
                assert "lagging" in notes
                await slow.until("live")
                await send(producer, [{"n": -1}])
                assert (await slow.next())["payload"]["n"] == -1
            assert await figure(server, 'lags_total{stream="orders"}') >= 1
            assert await figure(server, 'messages_skipped_total{stream="orders"}') == 0

    run(scenario())


def test_a_slow_client_that_may_skip_is_told_how_many(tmp_path):
    async def scenario():
        words = (*SMALL_QUEUE, "--limit", "slow=skip")
        async with served(tmp_path, *words) as (producer, server):
            async with client_of(server, max_queue=1) as slow:
                count = await overrun(server, producer, slow)
                await reaches(server, 'messages_read_total{stream="orders"}', count)
                following, skipped = 0, 0
                while following < count:
                    frame = await slow.next()
                    if frame["op"] == "skipped":
                        following += frame["count"]
                        skipped += frame["count"]
                    elif frame["op"] == "message":
                        assert frame["payload"]["n"] == following
                        following += 1
                assert 0 < skipped < count
            assert await figure(server, 'messages_skipped_total{stream="orders"}') == skipped

    run(scenario())


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("slow=disconnect", "slow"), ("send_timeout_ms=200", "stalled")],
)
def test_a_client_that_takes_nothing_is_cut_off_and_counted(tmp_path, limit, reason):
    async def scenario():
        async with served(tmp_path, *SMALL_QUEUE, "--limit", limit) as (producer, server):
            async with client_of(server, max_queue=1) as slow:
                await overrun(server, producer, slow)
                await reaches(server, f'clients_dropped_total{{reason="{reason}"}}', 1)
                await reaches(server, "clients", 0)
                assert await figure(server, "subscriptions") == 0
                with pytest.raises(ConnectionClosed):
                    await slow.messages(2_000)
            async with client_of(server) as client:
                assert (await client.ask(op="subscribe", id="a", stream="orders"))["id"] == "a"

    run(scenario())


def test_a_client_that_vanishes_is_forgotten(tmp_path):
    async def scenario():
        async with served(tmp_path) as (producer, server):
            async with client_of(server) as client:
                await client.ask(op="subscribe", id="a", stream="orders", from_="beginning")
                client.connection.transport.abort()
                await reaches(server, "clients", 0)
            await send(producer, [1])
            await reaches(server, 'messages_read_total{stream="orders"}', 1)
            assert await figure(server, "subscriptions") == 0
        assert "broke" not in server.log.read_text()

    run(scenario())


def test_a_client_that_answers_no_ping_is_forgotten(tmp_path):
    async def scenario():
        words = ("--limit", "ping_interval_ms=50", "--limit", "ping_timeout_ms=50")
        async with served(tmp_path, *words) as (_, server):
            place = urlsplit(server.url)
            with socket.create_connection((place.hostname, place.port)) as silent:
                silent.sendall(
                    f"GET /v1 HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
                )
                assert b" 101 " in await asyncio.to_thread(silent.recv, 1 << 16)
                await reaches(server, "clients", 1)
                await reaches(server, "clients", 0)

    run(scenario())


def test_sigterm_tells_clients_and_waits_for_none_that_is_stuck(tmp_path):
    async def scenario():
        async with served(tmp_path, *SMALL_QUEUE) as (producer, server), client_of(server) as quick:
            await quick.ask(op="subscribe", id="a", stream="refunds")
            async with client_of(server, max_queue=1) as slow:
                await slow.send(op="subscribe", id="a", stream="orders")
                await reaches(server, "subscriptions", 2)
                await send(producer, [{"fill": BIG}] * 2_000)
                await reaches(server, 'lags_total{stream="orders"}', 1)
                ending = asyncio.create_task(asyncio.to_thread(server.end))
                with pytest.raises(ConnectionClosed) as closing:
                    await quick.next()
                assert closing.value.rcvd.code == 1001
                assert await ending == 0
        assert "Traceback" not in server.log.read_text()

    run(scenario())


def test_a_stream_that_is_lost_ends_its_subscriptions_and_is_opened_again(tmp_path):
    async def scenario():
        words = ("--set", "create=if-missing", "--limit", "bad_frames_max=1000000")
        async with served(tmp_path, *words) as (producer, server), client_of(server) as client:
            await send(producer, [1])
            await client.ask(op="subscribe", id="a", stream="orders", from_="beginning")
            await client.until("live")
            (tmp_path / "events.ss").unlink()
            ended = await client.next()
            assert (ended["op"], ended["error"]["code"]) == ("ended", "BIC-2640")
            answer = {"op": "error"}
            while answer["op"] == "error":
                answer = await client.ask(op="subscribe", id="a", stream="orders")
            async with connect(f"file://{tmp_path}/events.ss") as streamer:
                again = await streamer.create_producer("orders")
                await again.send("2")
                assert await client.messages(1) == [2]

    run(scenario())


def test_subscriptions_end_with_their_stream(tmp_path):
    async def scenario():
        uri = f"file://{tmp_path}/events.ss"
        options = {"create": "if-missing", "end_with_eos": True}
        async with connect(uri, options) as streamer:
            producer = await streamer.create_producer("orders")
            await producer.send("1")
            with SubscriberServer(tmp_path, f"{uri}/orders") as server:
                async with client_of(server) as client:
                    await client.ask(op="subscribe", id="a", stream="orders", from_="beginning")
                    await client.until("live")
                    await streamer.disconnect()
                    assert await client.next() == {"op": "ended", "id": "a"}
                    await client.send(op="subscribe", id="b", stream="orders", from_="beginning")
                    ops = [frame["op"] for frame in await client.until("ended")]
                    assert ops == ["subscribed", "message", "live", "ended"]

    run(scenario())


def test_pages_of_other_origins_may_not_connect(tmp_path):
    async def scenario():
        async with served(tmp_path, "--origin", "https://shop.example") as (_, server):
            own = f"http://{urlsplit(server.url).netloc}"
            for origin in (own, "https://shop.example", None):
                async with connect_websocket(server.url, origin=origin):
                    pass
            for origin in ("https://evil.example", "null", f"{own}0"):
                with pytest.raises(InvalidStatus) as refusing:
                    async with connect_websocket(server.url, origin=origin):
                        pass
                assert refusing.value.response.status_code == 403
            # A foreign name that leads here is none of ours, whatever its origin is.
            code, _ = await asyncio.to_thread(ask, server, "/metrics", Host="evil.example")
            assert code == 403

    run(scenario())


def test_other_paths_and_methods_are_refused(tmp_path):
    async def scenario():
        async with served(tmp_path) as (_, server):
            assert await asyncio.to_thread(ask, server, "/health") == (200, "ok\n")
            _, figures = await asyncio.to_thread(ask, server, "/metrics")
            assert "bicycle_subscriber_clients 0" in figures and "_created" not in figures
            for path, code in (("/", 404), ("/v1/x", 404), ("/v1", 426)):
                assert (await asyncio.to_thread(ask, server, path))[0] == code

    run(scenario())


class Read:
    """A consumer of some messages, and a recipient of their sequences."""

    def __init__(self, messages=()):
        self.batches = [messages] if messages else []
        self.sequences = []

    async def next_batch(self, _count_max):
        if not self.batches:
            raise StreamEndedError(address="ws://a")
        return self.batches.pop()

    def offer(self, item):
        self.sequences.append(item.sequence)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("orders,refunds", ([0, 1], [0])), ("orders,broadcast", ([1], [0]))],
)
def test_a_message_without_a_stream_is_for_all_clients(keys, expected):
    """Of a stream that is named so, the messages are for its own clients."""
    feed = Feed(StreamUrl.parse(f"ws://127.0.0.1:1/{keys}"), {}, SubscriberFigures())
    recipients = [Read(), Read()]
    for key, recipient in zip(feed.url.stream_keys, recipients, strict=True):
        feed.join(key, recipient)
    messages = [Message(BROADCAST, 0, 0, 1, b"a"), Message(StreamKey("orders"), 0, 1, 1, b"b")]

    asyncio.run(feed._read(Read(messages)))

    assert tuple(each.sequences for each in recipients) == expected
