"""The subscriber server on Redis: shards, slow clients, a server that is killed, and webhooks."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bicycle_streams import connect
from tests.unit.streams.subscriber_server.subscribed import (
    SubscriberServer,
    client_of,
    figure,
    reaches,
    run,
)
from tests.unit.streams.subscriber_server.test_webhooks import SECRET

QUICK = ("--set", "block_ms=50", "--set", "discovery_interval_ms=50")


def by_shard(frames):
    """Return the payloads of messages by their shards, in the order in which they came."""
    found = {}
    for frame in frames:
        found.setdefault(frame["header"]["shard_id"], []).append(frame["payload"])
    return found


async def take(client, count):
    frames = []
    while len(frames) < count:
        frame = await client.next()
        if frame["op"] == "message":
            frames.append(frame)
    return frames


@pytest.mark.core
def test_shards_are_read_from_the_past_on_and_resumed_by_positions(server, tmp_path):
    async def scenario():
        async with connect(server.uri) as streamer:
            producer = await streamer.create_producer("orders", shard_count=3)
            await producer.send_many(str(n) for n in range(300))
            with SubscriberServer(tmp_path, f"{server.uri}/orders", *QUICK) as subscribers:
                async with client_of(subscribers) as client:
                    await client.ask(op="subscribe", id="a", stream="orders", from_="beginning")
                    past = await take(client, 300)
                    await client.until("live")
                    await producer.send_many(str(n) for n in range(300, 600))
                    new = await take(client, 300)
                found = by_shard([*past, *new])
                assert sorted(n for each in found.values() for n in each) == list(range(600))
                assert all(each == sorted(each) for each in found.values())
                # The positions are larger than the numbers of JavaScript, so that they are texts.
                after = {str(f["header"]["shard_id"]): f["header"]["position"] for f in past}
                assert len(after) == 3
                assert min(map(int, after.values())) > 2**53
                async with client_of(subscribers) as client:
                    begin = {"after": after}
                    await client.ask(op="subscribe", id="b", stream="orders", from_=begin)
                    again = by_shard(await take(client, 300))
                assert sorted(n for each in again.values() for n in each) == list(range(300, 600))

    run(scenario())


def test_a_client_that_lags_over_several_shards_misses_nothing(server, tmp_path):
    async def scenario():
        words = (*QUICK, "--limit", "queue_messages=20")
        async with connect(server.uri) as streamer:
            producer = await streamer.create_producer("orders", shard_count=3)
            with SubscriberServer(tmp_path, f"{server.uri}/orders", *words) as subscribers:
                async with client_of(subscribers, max_queue=1) as client:
                    await client.send(op="subscribe", id="a", stream="orders")
                    await reaches(subscribers, "subscriptions", 1)
                    fill = "x" * 10_000
                    for begin in range(0, 2_000, 100):
                        await producer.send_many(
                            json.dumps({"n": n, "fill": fill}) for n in range(begin, begin + 100)
                        )
                    await reaches(subscribers, 'messages_read_total{stream="orders"}', 2_000)
                    assert await figure(subscribers, 'lags_total{stream="orders"}') >= 1
                    found = by_shard(await take(client, 2_000))
                    for each in found.values():
                        numbers = [payload["n"] for payload in each]
                        assert numbers == sorted(numbers)
                    sent = sorted(p["n"] for each in found.values() for p in each)
                    assert sent == list(range(2_000))

    run(scenario())


def test_subscriptions_go_on_when_redis_was_killed(server, tmp_path):
    async def scenario():
        async with connect(server.uri) as streamer:
            producer = await streamer.create_producer("orders")
            await producer.send("0")
            with SubscriberServer(tmp_path, f"{server.uri}/orders", *QUICK) as subscribers:
                async with client_of(subscribers) as client:
                    await client.ask(op="subscribe", id="a", stream="orders", from_="beginning")
                    await client.until("live")
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                    for n in range(1, 4):
                        await producer.send(str(n))
                    assert [f["payload"] for f in await take(client, 3)] == [1, 2, 3]

    run(scenario())


class Hook(BaseHTTPRequestHandler):
    """Takes what is posted."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append(json.loads(body)["payload"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *args):
        """Say nothing."""


def test_clients_and_webhooks_go_on_behind_messages_that_cannot_be_read(server, tmp_path):
    receiver = HTTPServer(("127.0.0.1", 0), Hook)
    receiver.taken = []
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    path = tmp_path / "webhooks.toml"
    path.write_text(
        f'[[webhook]]\nname = "billing"\nstream = "{server.uri}/refunds"\n'
        f'url = "http://127.0.0.1:{receiver.server_port}/"\nsecret = "env:HOOK_SECRET"\n'
        f'dead_letters = "{server.uri}/dead"\n'
    )

    async def scenario():
        words = (f"{server.uri}/refunds", *QUICK, "--webhooks", str(path))
        with SubscriberServer(tmp_path, *words, HOOK_SECRET=SECRET) as subscribers:
            async with client_of(subscribers) as client, connect(server.uri) as streamer:
                await client.ask(op="subscribe", id="a", stream="refunds")
                with server.client as redis:
                    for _ in range(3):
                        redis.xadd("refunds", {"other": "x"})
                await (await streamer.create_producer("refunds")).send("7")
                assert (await client.next())["payload"] == 7
                while receiver.taken != [7]:
                    await asyncio.sleep(0.02)

    try:
        run(scenario())
    finally:
        receiver.shutdown()
        receiver.server_close()
        thread.join()


def test_a_webhook_goes_on_where_it_was_when_nobody_served(server, tmp_path):
    receiver = HTTPServer(("127.0.0.1", 0), Hook)
    receiver.taken = []
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    path = tmp_path / "webhooks.toml"
    path.write_text(
        f'[[webhook]]\nname = "billing"\nstream = "{server.uri}/refunds"\n'
        f'url = "http://127.0.0.1:{receiver.server_port}/"\nsecret = "env:HOOK_SECRET"\n'
        f'dead_letters = "{server.uri}/dead"\n'
    )

    async def scenario():
        async with connect(server.uri) as streamer:
            producer = await streamer.create_producer("refunds")
            for part in range(3):
                await producer.send(str(2 * part))  # Nobody serves, but for the first time.
                words = ("--webhooks", str(path))
                with SubscriberServer(tmp_path, *words, HOOK_SECRET=SECRET) as subscribers:
                    await producer.send(str(2 * part + 1))
                    while 2 * part + 1 not in receiver.taken:
                        await asyncio.sleep(0.02)
                    assert await asyncio.to_thread(subscribers.end) == 0

    try:
        run(scenario())
    finally:
        receiver.shutdown()
        receiver.server_close()
        thread.join()
    # The last one before an end may come again: its position may not have been kept.
    assert sorted(set(receiver.taken)) == [1, 2, 3, 4, 5]
