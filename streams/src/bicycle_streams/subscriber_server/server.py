"""The process of ``bicycle stream serve``: the subscriber server behind one port.

``/v1`` is the WebSocket of clients; ``/metrics`` and ``/health`` answer as those of the service.
Who may connect is what the service asks, too: loopback addresses are open, others need TLS and a
token or a client's certificate. Pages of other origins may not connect, since browsers let them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import configure, log_event
from bicycle_sdk.options import from_mapping
from bicycle_streams import StreamUnsupportedError, StreamUrl
from bicycle_streams.access.accepting import ListeningSocket
from bicycle_streams.access.addresses import hosts_of, is_loopback, listen
from bicycle_streams.access.answers import answer_code, plain_answer
from bicycle_streams.access.authentication import Authenticator, require_somebody
from bicycle_streams.access.connections import ConnectionOptions, Connections
from bicycle_streams.access.doors import Doors, common_name, missing_of
from bicycle_streams.access.errors import CONNECTIONS_EXHAUSTED, LOGIN_NEEDED
from bicycle_streams.access.identities import identify, is_still
from bicycle_streams.access.limits import LimitOptions, Limits
from bicycle_streams.access.roles import NOBODY, Identity, require_all_owners
from bicycle_streams.access.tokens import tokens_of
from bicycle_streams.addresses import WILDCARD
from bicycle_streams.subscriber_server.clients import Client
from bicycle_streams.subscriber_server.errors import (
    CLIENTS_TOO_MANY,
    NOTHING_SERVED,
    ORIGIN_REFUSED,
    STREAM_SERVED_TWICE,
)
from bicycle_streams.subscriber_server.feeds import Feed
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.subscriber_server.options import SubscriberOptions
from bicycle_streams.subscriber_server.requests import Login, Subscribe, read_request
from bicycle_streams.subscriber_server.webhooks import Webhook, WebhookOptions, read_webhooks

_LOG = logging.getLogger(__name__)
_PATH = "/v1"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_SWEEP_S = 1.0
_CLOSE_S = 2.0
_CHECK_EVERY = 10  # The time between two looks at tokens, in sweeps.
_POLICY, _BROKEN, _TRY_LATER = 1008, 1011, 1013
_REASON_BYTES_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribing:
    """The configuration of the subscriber server.

    Attributes:
        urls: Streams for clients, by their addresses.
        words: Options of the backends of all addresses.
        webhooks: What is posted where.
        doors: What is asked of who connects.
        origins: Origins of pages that may connect, beside those of the server itself.
        options: Limits.
    """

    urls: Sequence[StreamUrl]
    words: Mapping[str, object]
    webhooks: Sequence[WebhookOptions]
    doors: Doors
    origins: Sequence[str]
    options: SubscriberOptions


def subscribing_of(
    urls: Sequence[StreamUrl], words: Mapping[str, object], *, limits: Mapping[str, object],
    webhooks_path: Path | None, origins: Sequence[str], doors: Mapping[str, Any],
) -> Subscribing:  # fmt: skip
    """Return the configuration from the words of a command.

    Raises:
        OptionError: a limit is out of bounds, or none.
        BicycleError: a webhook cannot be used as it is written.
    """
    configure(sys.stderr)
    return Subscribing(
        urls=urls, words=words, options=from_mapping(SubscriberOptions, limits),
        webhooks=read_webhooks(webhooks_path) if webhooks_path is not None else (),
        doors=Doors(**doors), origins=[origin.lower() for origin in origins],
    )  # fmt: skip


def serve_subscribers(
    home: Path, host: str, port: int, *, what: Subscribing, on_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends at once.

    Args:
        home: The directory whose tokens are accepted.
        host: The address to listen on.
        port: 0 to 65,535; 0 takes any that is free.
        what: Streams, webhooks and limits.
        on_ready: Called with the URL once clients may connect.

    Raises:
        NOTHING_SERVED: there is neither a stream nor a webhook.
        STREAM_SERVED_TWICE: two streams have the same key.
        ADDRESS_REFUSED: others could reach an address; nothing was started.
        ADDRESS_TAKEN: the address cannot be listened on.
        StreamError: a stream cannot be read.
    """
    if not what.urls and not what.webhooks:
        raise NOTHING_SERVED()
    figures = SubscriberFigures()
    feeds = _feeds(what, figures)
    context = what.doors.context()
    needs_login = what.doors.needs_login or not is_loopback(host, port)
    with (
        _listen(host, port, home, what) as listener,
        tokens_of(home, SystemClock(), what.doors.database_server) as tokens,
    ):
        authenticator = Authenticator(
            tokens, None, needs_login=needs_login, clients=what.doors.clients
        )
        hosts = hosts_of(listener, host, names=what.doors.names, is_tls=context is not None)
        server = _SubscriberServer(
            feeds, figures, listener, what=what, authenticator=authenticator, hosts=hosts
        )
        asyncio.run(server.run(on_ready=on_ready))


def _listen(host: str, port: int, home: Path, what: Subscribing) -> ListeningSocket:
    listener = listen(host, port, missing=missing_of(home, what.doors))
    listener.connections = Connections(
        ConnectionOptions(
            known=what.options.clients_max, known_per_identity=what.options.clients_per_token_max
        )
    )
    return listener


def _feeds(what: Subscribing, figures: SubscriberFigures) -> dict[str, Feed]:
    """Return the feed of each stream."""
    feeds: dict[str, Feed] = {}
    for url in what.urls:
        if WILDCARD in url.stream_keys:
            raise StreamUnsupportedError(
                backend="the subscriber server",
                action=f"serve all streams of {url}",
                reason="clients select a stream by its key",
                hint="name the streams",
            )
        feed = Feed(url, what.words, figures)
        for key in url.stream_keys:
            if key in feeds:
                first = str(feeds[key].url)
                raise STREAM_SERVED_TWICE(stream=key, first=first, second=str(url))
            feeds[key] = feed
    return feeds


class _SubscriberServer:
    """The server, while it runs."""

    def __init__(
        self, feeds: Mapping[str, Feed], figures: SubscriberFigures, listener: ListeningSocket,
        *, what: Subscribing, authenticator: Authenticator, hosts: Collection[str],
    ) -> None:  # fmt: skip
        self._feeds = feeds
        self._figures = figures
        self._listener = listener
        self._what = what
        self._options = what.options
        self._authenticator = authenticator
        self._limits = Limits(LimitOptions())
        self._context = what.doors.context()
        self._scheme = "http" if self._context is None else "https"
        self._hosts = frozenset(hosts)
        self._url = f"{self._scheme.replace('http', 'ws')}://{next(iter(hosts))}{_PATH}"
        self._turns = asyncio.Semaphore(self._options.catching_up_max)
        self._known: weakref.WeakKeyDictionary[ServerConnection, Identity] = (
            weakref.WeakKeyDictionary()
        )
        self._clients: dict[ServerConnection, Client] = {}

    async def run(self, *, on_ready: Callable[[str], None]) -> None:
        """Serve until a signal."""
        closing = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)  # A second signal ends the process at once.
            closing.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        tasks: set[asyncio.Future[Any]] = {asyncio.ensure_future(closing.wait())}
        try:
            await self._start_readers(tasks)
            async with self._listening():
                tasks |= {*map(asyncio.ensure_future, (self._sweep(), self._check_tokens()))}
                on_ready(self._url)
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _start_readers(self, tasks: set[asyncio.Future[Any]]) -> None:
        """Open all streams concurrently; raise the error of one that fails."""
        clock = SystemClock()
        runs: list[Feed | Webhook] = list(dict.fromkeys(self._feeds.values()))
        runs += [Webhook(options, self._figures, clock) for options in self._what.webhooks]
        for run in runs:
            opened = asyncio.Event()
            task = asyncio.ensure_future(run.run(opened))
            tasks.add(task)
            opening = asyncio.ensure_future(opened.wait())
            await asyncio.wait({task, opening}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            if task.done():
                task.result()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Accept clients inside the block; unresponsive ones do not delay the end."""
        options = self._options
        # Messages of unknown clients are not logged as events.
        quiet = logging.getLogger("bicycle_streams.websockets")
        quiet.setLevel(logging.CRITICAL)
        server = await serve(
            self._serve_one, sock=self._listener, ssl=self._context, process_request=self._look_at,
            # It costs 300 KB of memory for each client, and most of the processor.
            compression=None,
            max_size=options.frame_bytes_max, server_header=None, logger=quiet,
            open_timeout=options.login_timeout_ms / 1_000,
            ping_interval=options.ping_interval_ms / 1_000,
            ping_timeout=options.ping_timeout_ms / 1_000, close_timeout=_CLOSE_S,
        )  # fmt: skip
        try:
            yield
        finally:
            server.close()
            closing = asyncio.ensure_future(server.wait_closed())
            await asyncio.wait({closing}, timeout=_CLOSE_S)
            for connection in list(self._clients):
                connection.transport.abort()
            # A client that has sent no request is not answered.
            await asyncio.wait({closing}, timeout=_CLOSE_S)

    async def _look_at(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request over HTTP, or return None to accept a client."""
        path = request.path.partition("?")[0]
        headers = {name.lower(): value for name, value in reversed([*request.headers.raw_items()])}
        try:
            if path == "/health":
                return connection.respond(HTTPStatus.OK, "ok\n")
            self._refuse_foreign(headers)
            client = common_name(connection.transport.get_extra_info("peercert"))
            identity = await self._check(connection, headers, client)
            if path == "/metrics":
                require_somebody(identity, path)
                answer = connection.respond(HTTPStatus.OK, self._figures.text().decode())
                del answer.headers["Content-Type"]
                answer.headers["Content-Type"] = _TEXT
                return answer
        except BicycleError as error:
            return self._refusal(connection, error)
        if path != _PATH:
            text = "there are /v1 for WebSockets, /metrics and /health here\n"
            return connection.respond(HTTPStatus.NOT_FOUND, text)
        try:
            self._admit(connection, identity)
        except BicycleError as error:
            return self._refusal(connection, error)
        return None

    def _admit(self, connection: ServerConnection, identity: Identity) -> None:
        """Count a client for its token; one without is a stranger until it logs in.

        Raises:
            CLIENTS_TOO_MANY: the server has as many clients as it takes.
            CONNECTIONS_TOO_MANY: the token has as many clients as it may.
        """
        counted = self._listener.connection_of(connection.transport.get_extra_info("peername"))
        counted.drop = connection.transport.abort
        try:
            counted.enter(identity)
        except BicycleError as error:
            if error.code == CONNECTIONS_EXHAUSTED.code:
                raise CLIENTS_TOO_MANY(count_max=self._options.clients_max) from None
            raise
        self._known[connection] = identity

    def _refuse_foreign(self, headers: Mapping[str, str]) -> None:
        """Refuse requests from pages of foreign origins, or to foreign hosts."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        allowed = {f"{self._scheme}://{host}", *self._what.origins}
        if host not in self._hosts or (origin is not None and origin.lower() not in allowed):
            raise ORIGIN_REFUSED(origin=(origin or "unknown")[:200], host=host[:100])

    async def _check(
        self, connection: ServerConnection, headers: Mapping[str, str], client: str
    ) -> Identity:
        try:
            identity = await identify(
                self._authenticator, headers, scheme=self._scheme, client=client
            )
        except BicycleError:
            self._limits.fail(str((connection.remote_address or ("",))[0]))
            raise
        require_all_owners(identity)  # Streams have no owner.
        return identity

    def _refusal(self, connection: ServerConnection, error: BicycleError) -> Response:
        self._figures.refused.labels(error.code).inc()
        text = json.dumps(plain_answer(error)) + "\n"
        answer = connection.respond(answer_code(error), text)
        del answer.headers["Content-Type"]
        answer.headers["Content-Type"] = "application/json"
        return answer

    async def _serve_one(self, connection: ServerConnection) -> None:
        """Serve a client until it is gone."""
        identity = self._known.get(connection, NOBODY)
        client = Client(
            connection, self._feeds, options=self._options, figures=self._figures,
            turns=self._turns,
        )  # fmt: skip
        self._clients[connection] = client
        self._figures.clients.inc()
        try:
            if identity == NOBODY and not await self._login(connection):
                return
            await self._until_gone(connection, client)
        except ConnectionClosed:
            return
        except Exception as error:  # noqa: BLE001 - Last handler: an unexpected error is reported as a bug.
            log_event(_LOG, "client_broke", level=logging.ERROR, error=error)
            await _cut_off(connection, _BROKEN, "this is a bug of the server")
        finally:
            client.leave()
            del self._clients[connection]
            self._figures.clients.dec()

    async def _login(self, connection: ServerConnection) -> bool:
        """Read the login in the first frame; return whether it is valid."""
        error = LOGIN_NEEDED(path=_PATH)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.login_timeout_ms / 1_000):
                frame = await connection.recv()
            try:
                request = read_request(frame)
                if isinstance(request, Login):
                    headers = {"authorization": f"Bearer {request.token}"}
                    identity = await self._check(connection, headers, "")
                    self._admit(connection, identity)
                    await connection.send(json.dumps({"op": "welcome", "name": identity.name}))
                    return True
            except BicycleError as refusal:
                error = refusal
        self._figures.refused.labels(error.code).inc()
        await _cut_off(connection, _POLICY, _reason(error))
        return False

    async def _until_gone(self, connection: ServerConnection, client: Client) -> None:
        tasks = {
            asyncio.ensure_future(client.write()),
            asyncio.ensure_future(self._read(connection, client)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _read(self, connection: ServerConnection, client: Client) -> None:
        """Execute the requests of a client until it disconnects."""
        refused_count = 0
        async for frame in connection:
            await client.wait_for_room()
            name: dict[str, str] = {}
            try:
                request = read_request(frame)
                if isinstance(request, Login):
                    headers = {"authorization": f"Bearer {request.token}"}
                    self._admit(connection, await self._check(connection, headers, ""))
                    client.reply({"op": "welcome", "name": self._known[connection].name})
                    continue
                name = {"id": request.id}
                if isinstance(request, Subscribe):
                    client.subscribe(request)
                else:
                    client.unsubscribe(request.id)
            except BicycleError as error:
                self._figures.refused.labels(error.code).inc()
                client.reply({"op": "error", **name, "error": plain_answer(error)})
                refused_count += 1
                if refused_count > self._options.bad_frames_max:
                    self._figures.dropped.labels("bad frames").inc()
                    await _cut_off(connection, _POLICY, _reason(error))
                    return

    async def _sweep(self) -> None:
        """Disconnect clients that are stuck, or have a reason to be dropped."""
        loop = asyncio.get_running_loop()
        timeout_s = self._options.send_timeout_ms / 1_000
        cut_off: weakref.WeakKeyDictionary[ServerConnection, asyncio.Task[None]] = (
            weakref.WeakKeyDictionary()
        )
        while True:
            await asyncio.sleep(min(_SWEEP_S, timeout_s))
            for connection, client in list(self._clients.items()):
                since_s = client.waits_since_s
                reason = client.drop_reason
                if since_s is not None and loop.time() - since_s > timeout_s:
                    reason = "stalled"
                if reason and connection not in cut_off:
                    self._figures.dropped.labels(reason).inc()
                    log_event(_LOG, "client_dropped", reason=reason)
                    if reason == "stalled":
                        connection.transport.abort()
                        continue
                    code = _TRY_LATER if reason == "slow" else _POLICY
                    cut_off[connection] = loop.create_task(
                        _cut_off(connection, code, f"cut off: {reason}")
                    )

    async def _check_tokens(self) -> None:
        """Drop clients whose tokens are no longer valid, as far as their database answers."""
        pause_s = _CHECK_EVERY * min(_SWEEP_S, self._options.send_timeout_ms / 1_000)
        while True:
            await asyncio.sleep(pause_s)
            try:
                for connection, client in list(self._clients.items()):
                    identity = self._known.get(connection, NOBODY)
                    if not await is_still(self._authenticator, identity):
                        client.drop_reason = client.drop_reason or "token"
            except Exception as error:  # noqa: BLE001 - Clients stay until the database is back.
                log_event(_LOG, "tokens_unchecked", level=logging.WARNING, error=error)


async def _cut_off(connection: ServerConnection, code: int, reason: str) -> None:
    """Close a connection, whether or not its client takes that."""
    try:
        # The library waits without end for room in the buffer of a client that takes nothing.
        async with asyncio.timeout(_CLOSE_S):
            await connection.close(code, reason)
    except TimeoutError:
        connection.transport.abort()


def _reason(error: BicycleError) -> str:
    """Return why a connection is closed, no longer than a frame of that kind may be."""
    text = f"{error.code} {error.summary}".encode()[:_REASON_BYTES_MAX]
    return text.decode(errors="ignore")
