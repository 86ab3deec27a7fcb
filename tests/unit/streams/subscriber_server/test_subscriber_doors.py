"""Who may connect to the subscriber server: tokens, certificates, addresses for others."""

import json
import socket
import ssl
import subprocess
import sys
import urllib.request
from contextlib import AsyncExitStack, contextmanager
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from bicycle_runtime.base.environment import environment_for_python
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.connections import ConnectionOptions
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.unit.streams.subscriber_server.subscribed import MAIN, SubscriberServer, client_of, run

STREAMS = ("--set", "create=if-missing")


@contextmanager
def guarded(folder, *words):
    """Give a server that asks for a token, one that it takes, and what revokes it."""
    with tokens_of(folder / "home", SystemClock()) as tokens:
        entry, token = tokens.create("bob", role=Role.VIEWER, lifetime_ms=10**8, by="test")
        with SubscriberServer(folder, f"file://{folder}/events.ss/orders", *STREAMS, *words) as it:
            yield it, token, lambda: tokens.revoke(entry.id, by="test")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_a_token_is_needed_where_it_is_asked_for_and_taken_in_two_ways(tmp_path):
    async def scenario():
        with guarded(tmp_path, "--require-auth") as (server, token, _):
            async with client_of(server, additional_headers=bearer(token)) as client:
                assert (await client.ask(op="subscribe", id="a", stream="orders"))["id"] == "a"
            async with client_of(server) as client:
                assert await client.ask(op="login", token=token) == {"op": "welcome", "name": "bob"}
                assert (await client.ask(op="subscribe", id="a", stream="orders"))["id"] == "a"
            for frame in ({"op": "subscribe", "id": "a", "stream": "orders"}, {"op": "x"}):
                async with client_of(server) as client:
                    await client.send(**frame)
                    with pytest.raises(ConnectionClosed) as closing:
                        await client.next()
                    assert closing.value.rcvd.code == 1008

    run(scenario())


def test_tokens_that_are_none_are_refused_and_not_guessed_for_long(tmp_path):
    async def scenario():
        with guarded(tmp_path, "--require-auth") as (server, token, _):
            wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
            async with client_of(server) as client:
                await client.send(op="login", token=wrong)
                with pytest.raises(ConnectionClosed) as closing:
                    await client.next()
                assert closing.value.rcvd.reason.startswith("BIC-2321")
            codes = []
            for _ in range(12):
                with pytest.raises(InvalidStatus) as refusing:
                    async with client_of(server, additional_headers=bearer(wrong)):
                        pass
                codes.append(refusing.value.response.status_code)
            assert codes[0] == 401
            assert codes[-1] == 429
            # Who has the right one comes in from the same address.
            async with client_of(server, additional_headers=bearer(token)) as client:
                assert (await client.ask(op="subscribe", id="a", stream="orders"))["id"] == "a"

    run(scenario())


def test_who_does_not_say_who_it_is_does_not_stay(tmp_path):
    async def scenario():
        limit = ("--limit", "login_timeout_ms=100")
        with guarded(tmp_path, "--require-auth", *limit) as (server, _, _):
            async with client_of(server) as client:
                with pytest.raises(ConnectionClosed) as closing:
                    await client.next()
                assert closing.value.rcvd.reason.startswith("BIC-2320")

    run(scenario())


def test_connections_of_strangers_keep_no_client_out(tmp_path):
    async def scenario():
        with guarded(tmp_path, "--require-auth", "--limit", "clients_max=20") as (server, token, _):
            port = urlsplit(server.url).port
            async with AsyncExitStack() as held:
                for _ in range(2 * ConnectionOptions().strangers_per_address):
                    line = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                    line.sendall(b"GET /v1 HT")
                for _ in range(40):  # They say nothing, and may for ten seconds.
                    await held.enter_async_context(client_of(server))
                client = await held.enter_async_context(
                    client_of(server, additional_headers=bearer(token))
                )
                frame = await client.ask(op="subscribe", id="a", stream="orders")
                assert frame["op"] == "subscribed"

    run(scenario())


def test_clients_of_one_token_are_bounded(tmp_path):
    async def scenario():
        words = ("--require-auth", "--limit", "clients_per_token_max=2")
        with (
            guarded(tmp_path, *words) as (server, token, _),
            tokens_of(tmp_path / "home", SystemClock()) as tokens,
        ):
            other = tokens.create("eve", role=Role.VIEWER, lifetime_ms=10**8, by="test")[1]
            async with AsyncExitStack() as held:
                for _ in range(2):
                    words = {"additional_headers": bearer(token)}
                    await held.enter_async_context(client_of(server, **words))
                with pytest.raises(InvalidStatus) as refusing:
                    await held.enter_async_context(client_of(server, **words))
                late = await held.enter_async_context(client_of(server))
                await late.send(op="login", token=token)
                with pytest.raises(ConnectionClosed) as closing:
                    await late.next()
                eve = await held.enter_async_context(client_of(server))
                assert (await eve.ask(op="login", token=other))["op"] == "welcome"
            assert json.loads(refusing.value.response.body)["code"] == "BIC-2330"
            assert closing.value.rcvd.reason.startswith("BIC-2330")

    run(scenario())


def test_a_token_that_is_revoked_ends_its_connections(tmp_path):
    async def scenario():
        with guarded(tmp_path, "--require-auth") as (server, token, revoke):
            async with client_of(server, additional_headers=bearer(token)) as client:
                await client.ask(op="subscribe", id="a", stream="orders")
                revoke()
                with pytest.raises(ConnectionClosed) as closing:
                    await client.next()
                assert closing.value.rcvd.code == 1008

    run(scenario())


def test_figures_are_for_those_who_may_connect(tmp_path):
    with guarded(tmp_path, "--require-auth") as (server, token, _):
        url = f"http://{urlsplit(server.url).netloc}"
        with pytest.raises(HTTPError) as refusing:
            urllib.request.urlopen(f"{url}/metrics")
        with refusing.value as answer:
            assert (answer.code, json.loads(answer.read())["code"]) == (401, "BIC-2320")
        asking = urllib.request.Request(f"{url}/metrics", headers=bearer(token))
        with urllib.request.urlopen(asking) as answer:
            assert b"bicycle_subscriber_clients 0.0" in answer.read()
        with urllib.request.urlopen(f"{url}/health") as answer:
            assert answer.read() == b"ok\n"


def started(folder, *words):
    """Return the error with which the command ends."""
    words = [*words, "--home", str(folder / "home"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "stream", "serve", *words],
        capture_output=True, text=True, env=environment_for_python(), check=False,
    )  # fmt: skip
    assert done.returncode not in (0, None), done.stdout
    return json.loads(done.stdout)["code"]


def test_an_address_that_others_reach_needs_a_certificate_and_a_token(tmp_path, certificates):
    url = f"file://{tmp_path}/events.ss/orders"
    pem = ("--tls-cert", str(certificates / "service.pem"))
    key = ("--tls-key", str(certificates / "service.key"))

    assert started(tmp_path, url, "--listen", "0.0.0.0:0") == "BIC-2501"
    assert started(tmp_path, url, "--listen", "0.0.0.0:0", *pem, *key) == "BIC-2501"
    assert started(tmp_path, url, *pem) == "BIC-2503"
    assert started(tmp_path, "--listen", "127.0.0.1:0") == "BIC-2520"
    assert started(tmp_path, url, f"{url},x", *STREAMS) == "BIC-2518"
    every = f"file://{tmp_path}/events.ss/SEA_STREAMER_WILDCARD"
    assert started(tmp_path, every, "--listen", "127.0.0.1:0") == "BIC-2618"
    assert started(tmp_path, url, "--listen", "127.0.0.1:0") == "BIC-2630"


def test_over_tls_a_token_or_a_certificate_lets_a_client_in(tmp_path, certificates):
    tls = (
        "--listen", "0.0.0.0:0", "--name", "localhost",
        "--tls-cert", str(certificates / "service.pem"),
        "--tls-key", str(certificates / "service.key"),
        "--tls-client-ca", str(certificates / "ca.pem"), "--client-role", "ada=viewer",
    )  # fmt: skip

    def context(client=None):
        found = ssl.create_default_context(cafile=str(certificates / "service.pem"))
        if client is not None:
            found.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
        return found

    async def subscribe(client):
        return (await client.ask(op="subscribe", id="a", stream="orders"))["op"]

    async def scenario():
        with guarded(tmp_path, *tls) as (server, token, _):
            assert server.url.startswith("wss://localhost:")
            async with client_of(server, ssl=context(), additional_headers=bearer(token)) as client:
                assert await subscribe(client) == "subscribed"
            async with client_of(server, ssl=context("ada")) as client:
                assert await subscribe(client) == "subscribed"
            for stranger in (None, "eve"):
                async with client_of(server, ssl=context(stranger)) as client:
                    await client.send(op="subscribe", id="a", stream="orders")
                    with pytest.raises(ConnectionClosed):
                        await client.next()
            with pytest.raises((ssl.SSLError, OSError, InvalidHandshake)):
                async with client_of(server, ssl=context("stranger")) as client:
                    await client.next()

    run(scenario())
