"""A database of tokens on a server that is slow or away: clients that are there are served."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from bicycle_streams import StreamUrl
from bicycle_streams.access.addresses import hosts_of
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.doors import Doors
from bicycle_streams.access.errors import DATABASE_SERVER_UNAVAILABLE
from bicycle_streams.access.roles import Identity, Role
from bicycle_streams.subscriber_server import server as serving
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.subscriber_server.options import SubscriberOptions

BOB = Identity(name="bob", role=Role.VIEWER, token="b")
SUBSCRIBE = '{"op": "subscribe", "id": "%s", "stream": "orders"}'


class RemoteTokens:
    """Tokens whose server responds while ``answers`` is set."""

    is_remote = True

    def __init__(self):
        self.answers = threading.Event()
        self.answers.set()
        self.was_asked = threading.Event()
        self.state = "good"

    def holder(self, text):
        self.was_asked.set()
        assert self.answers.wait(60)
        return BOB

    def is_good(self, token):
        self.was_asked.set()
        if self.state == "away":
            raise DATABASE_SERVER_UNAVAILABLE(server="x", reason="connection refused")
        return self.state == "good"


@asynccontextmanager
async def served(folder, tokens):
    what = serving.Subscribing(
        urls=[StreamUrl.parse(f"file://{folder}/events.ss/orders")],
        words={"create": "if-missing"}, webhooks=(), doors=Doors(), origins=(),
        options=SubscriberOptions(send_timeout_ms=60_000),
    )  # fmt: skip
    figures = SubscriberFigures()
    listener = serving._listen("127.0.0.1", 0, folder, what)
    with listener:
        server = serving._SubscriberServer(
            serving._feeds(what, figures), figures, listener, what=what,
            authenticator=Authenticator(tokens, None, needs_login=True, clients={}),
            hosts=hosts_of(listener, "127.0.0.1", names=(), is_tls=False),
        )  # fmt: skip
        ready = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(server.run(on_ready=ready.set_result))
        try:
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            yield await ready, running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def health(url):
    node = urlsplit(url).netloc
    reader, writer = await asyncio.open_connection(*node.split(":"))
    writer.write(f"GET /health HTTP/1.1\r\nHost: {node}\r\n\r\n".encode())
    answer = await reader.readline()
    writer.close()
    return answer


def run(scenario):
    async def bounded():
        async with asyncio.timeout(60):
            return await scenario

    return asyncio.run(bounded())


@pytest.mark.parametrize("is_header", [True, False])
def test_requests_are_answered_while_a_login_waits_for_the_tokens(tmp_path, is_header):
    tokens = RemoteTokens()

    async def log_in(url):
        headers = {"Authorization": "Bearer x"} if is_header else {}
        async with connect(url, additional_headers=headers) as client:
            if not is_header:
                await client.send('{"op": "login", "token": "x"}')
                await client.recv()
            await client.send(SUBSCRIBE % "a")
            return json.loads(await client.recv())["op"]

    async def scenario():
        async with served(tmp_path, tokens) as (url, _):
            tokens.answers.clear()
            waiting = asyncio.ensure_future(log_in(url))
            try:
                await asyncio.to_thread(tokens.was_asked.wait, 60)
                answer = await health(url)
                is_waiting = not waiting.done()
            finally:
                tokens.answers.set()
            return answer, is_waiting, await waiting

    assert run(scenario()) == (b"HTTP/1.1 200 OK\r\n", True, "subscribed")


def test_clients_stay_until_the_tokens_can_be_checked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "_SWEEP_S", 0.001)
    tokens = RemoteTokens()

    async def scenario():
        async with (
            served(tmp_path, tokens) as (url, running),
            connect(url, additional_headers={"Authorization": "Bearer x"}) as client,
        ):
            await client.send(SUBSCRIBE % "a")
            await client.recv()
            tokens.state = "away"
            for _ in range(2):
                tokens.was_asked.clear()
                await asyncio.to_thread(tokens.was_asked.wait, 60)
            await client.send(SUBSCRIBE % "b")
            found = json.loads(await client.recv())["op"], running.done()
            tokens.state = "revoked"
            with pytest.raises(ConnectionClosed):
                await client.recv()
            return found

    assert run(scenario()) == ("subscribed", False)
