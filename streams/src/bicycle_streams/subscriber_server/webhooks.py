"""Webhooks: each message of a stream is posted to an address, signed, in order.

It is for streams in which little happens. Requests are those of *Standard Webhooks*: libraries of
many languages check their signatures. A message is done when the receiver has taken it, or when it
lies in the stream of dead letters; only then is the position kept, so that a crash repeats it under
the same id, and loses nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event
from bicycle_sdk.options import CheckedOptions, option
from bicycle_sdk.random_source import system_random
from bicycle_sdk.secrets import Secret
from bicycle_streams import (
    Consumer,
    Message,
    Producer,
    Streamer,
    StreamError,
    StreamKey,
    StreamUrl,
    connect,
)
from bicycle_streams.backoff import Backoff
from bicycle_streams.connecting import backend_of
from bicycle_streams.options import Start, read_options
from bicycle_streams.subscriber_server.errors import SUBSCRIBER_EXTRA_MISSING, WEBHOOKS_UNREADABLE
from bicycle_streams.subscriber_server.feeds import batches_past_damage
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.subscriber_server.filters import SubscriptionFilter
from bicycle_streams.texts import message_json

if TYPE_CHECKING:
    import httpx

_LOG = logging.getLogger(__name__)
# With these answers the receiver rejects this message for good; any other error may pass.
_FINAL = frozenset({400, 410, 413, 422})
_SECRET = "whsec_"
_SECRET_BYTES_MIN = 16
_ANSWER_BYTES_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions(CheckedOptions):
    """One table ``[[webhook]]`` of the file of webhooks."""

    name: str = option(doc="Name of the webhook, under which its position in the stream is stored.")
    stream: str = option(doc="Address of the stream, such as redis://127.0.0.1:6379/refunds.")
    options: object = option(None, doc="{name: value} of the backend of the stream.")
    url: str = option(doc="URL to which messages are posted: https://…, or http://….")
    secret: str = option(
        doc=(
            "Location of the secret for signatures: env:NAME or file:PATH. The secret is whsec_ "
            "and at least 16 bytes in base64."
        )
    )
    filter: object = option(None, doc="Filter of the posted messages, as for subscriptions.")
    dead_letters: str = option(
        doc="Address of the stream for messages whose delivery failed permanently."
    )
    start: Start = option("latest", doc="Start position of the first run.")
    request_timeout_ms: int = option(
        10_000, low=100, high=600_000, doc="Time limit for a response."
    )
    retry_timeout_ms: int = option(
        3_600_000, low=0, high=604_800_000, doc="Time for which a message is retried."
    )
    retry_delay_ms: int = option(
        500, low=1, high=600_000, doc="First delay before a retry.", aliases=("pause_ms",)
    )
    retry_delay_max_ms: int = option(
        300_000,
        low=1,
        high=3_600_000,
        doc="Maximum delay before a retry.",
        aliases=("pause_max_ms",),
    )


def read_webhooks(path: Path) -> list[WebhookOptions]:
    """Return the webhooks of a file, with checked names, addresses and filters.

    Raises:
        SUBSCRIBER_EXTRA_MISSING: httpx is not installed.
        WEBHOOKS_UNREADABLE: the file cannot be read, or its content is invalid.
        BicycleError: an option, address, filter or secret is invalid.
    """
    if find_spec("httpx") is None:
        raise SUBSCRIBER_EXTRA_MISSING(missing_text="httpx")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WEBHOOKS_UNREADABLE(path=str(path), problem=str(error)) from None
    tables = found.pop("webhook", None)
    if found or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        problem = f"it has {', '.join(found)}" if found else "it has no tables [[webhook]]"
        raise WEBHOOKS_UNREADABLE(path=str(path), problem=problem)
    webhooks = [read_options(WebhookOptions, table, file=str(path)) for table in tables]
    names = [webhook.name for webhook in webhooks]
    if len(set(names)) < len(names):
        raise WEBHOOKS_UNREADABLE(path=str(path), problem="two webhooks have the same name")
    for webhook in webhooks:
        if problem := _problem(webhook):
            raise WEBHOOKS_UNREADABLE(path=str(path), problem=f"{webhook.name}: {problem}")
        _check_addresses(webhook)
    return webhooks


def _problem(webhook: WebhookOptions) -> str:
    """Return the problem of a webhook, or an empty text."""
    target = urlsplit(webhook.url)
    if target.scheme not in ("http", "https") or not target.hostname:
        return "url is not an http or https URL"
    if target.username is not None or target.password is not None:
        return "url contains a password; verify signatures in the receiver instead"
    if not isinstance(webhook.options, dict | None):
        return "options must be a table"
    if not isinstance(webhook.filter, dict | None):
        return "filter must be a table"
    try:
        key_of(Secret.parse(webhook.secret).reveal())
    except ValueError as error:
        return f"secret: {error}"
    return ""


def _check_addresses(webhook: WebhookOptions) -> None:
    StreamKey(webhook.name)
    SubscriptionFilter.of(webhook.filter)  # type: ignore[arg-type]  # It was looked at.
    for text in (webhook.stream, webhook.dead_letters):
        url = StreamUrl.parse(text)
        assert url.stream_key
        backend_of(url.streamer)


def key_of(secret: str) -> bytes:
    """Return the key that a secret means.

    Raises:
        ValueError: it is none; the message does not have it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET) or len(key) < _SECRET_BYTES_MIN:
        raise ValueError(f"it must be {_SECRET} and at least {_SECRET_BYTES_MIN} bytes in base64")
    return key


def signature_of(key: bytes, name: str, second: int, body: bytes) -> str:
    """Return the signature of a request as Standard Webhooks writes it.

    Example:
        >>> signature_of(b"secret", "msg_1", 1_674_087_231, b"{}")
        'v1,299AHAFlDdA/rU0aTOq+IJEc1vm5uzOXtMuTIv0RYbo='
    """
    signed = hmac.digest(key, f"{name}.{second}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


class Webhook:
    """A poster of one stream's messages.

    Args:
        options: What, where, and how patiently.
        figures: Are told what happens.
        clock: The time of day, for signatures.
    """

    def __init__(self, options: WebhookOptions, figures: SubscriberFigures, clock: Clock) -> None:
        self._options = options
        self._figures = figures
        self._clock = clock
        self._url = StreamUrl.parse(options.stream)
        self._letters_url = StreamUrl.parse(options.dead_letters)
        self._filter = SubscriptionFilter.of(options.filter)  # type: ignore[arg-type]  # It was looked at.
        self._key = key_of(Secret.parse(options.secret).reveal())

    async def run(self, opened: asyncio.Event) -> None:
        """Post forever; streams that break are opened again.

        Args:
            opened: Set once the streams are open.

        Raises:
            StreamError: they could not be opened for the first time.
        """
        pauses = self._pauses()
        while True:
            try:
                await self._post_all(opened, pauses)
                await asyncio.Event().wait()  # Others are served on, as by a feed that ended.
            except StreamError as error:
                if not opened.is_set():
                    raise
                self._figures.broken.labels(str(self._url.streamer)).inc()
                log_event(
                    _LOG, "webhook_waiting", level=logging.WARNING, error=error,
                    webhook=self._options.name,
                )  # fmt: skip
            await asyncio.sleep(pauses.next_s())

    async def _post_all(self, opened: asyncio.Event, pauses: Backoff) -> None:
        import httpx  # An extra.

        words: Any = self._options.options or {}
        timeout_s = self._options.request_timeout_ms / 1_000
        letters = self._letters_url
        async with (
            connect(self._url, words) as streamer,
            connect(letters, backend_of(letters.streamer).words_to_write) as dead,
            httpx.AsyncClient(timeout=timeout_s, follow_redirects=False) as client,
        ):
            producer = await dead.create_producer(letters.stream_key)
            consumer, keeps = await self._consumer(streamer)
            opened.set()
            async for batch in batches_past_damage(consumer):
                pauses.reset()
                for message in batch:
                    shown = message_json(message)
                    if self._filter is None or self._filter.passes(shown.get("payload")):
                        await self._deliver(client, producer, message, shown)
                    if keeps:
                        consumer.ack(message)
                        await consumer.commit()

    async def _consumer(self, streamer: Streamer) -> tuple[Consumer, bool]:
        """Return the consumer, and whether its position is kept."""
        start = self._options.start
        if "resumable" not in streamer.capabilities.modes:
            return await streamer.create_consumer(self._url.stream_key), False
        consumer = await streamer.create_consumer(
            self._url.stream_key,
            mode="resumable",
            group=f"webhook-{self._options.name}",
            start=start,
        )
        return consumer, True

    async def _deliver(
        self, client: httpx.AsyncClient, letters: Producer, message: Message, shown: dict[str, Any]
    ) -> None:
        """Return once the receiver has a message, or the stream of dead letters."""
        name = self._id_of(message)
        body = json.dumps(shown, ensure_ascii=False).encode()
        loop, pauses = asyncio.get_running_loop(), self._pauses()
        deadline, attempts = loop.time() + self._options.retry_timeout_ms / 1_000, 0
        while True:
            attempts += 1
            problem, is_final, wait_s = await self._post(client, name, body)
            if not problem:
                return
            pause_s = max(pauses.next_s(), min(wait_s, self._options.retry_delay_max_ms / 1_000))
            if is_final or loop.time() + pause_s > deadline:
                break
            await asyncio.sleep(pause_s)
        self._figures.dead_letters.labels(self._options.name).inc()
        log_event(
            _LOG, "webhook_gave_up", level=logging.WARNING, webhook=self._options.name,
            id=name, attempts=attempts, problem=problem,
        )  # fmt: skip
        facts = {"webhook": self._options.name, "id": name, "attempts": attempts}
        letter = {**shown, **facts, "problem": problem}
        await letters.send(json.dumps(letter, ensure_ascii=False))

    async def _post(
        self, client: httpx.AsyncClient, name: str, body: bytes
    ) -> tuple[str, bool, float]:
        """Send one request; return its problem, whether it is final, and the time to wait."""
        import httpx  # An extra.

        second = self._clock.now_ms() // 1_000
        headers = {
            "content-type": "application/json",
            "webhook-id": name,
            "webhook-timestamp": str(second),
            "webhook-signature": signature_of(self._key, name, second, body),
        }
        count = self._figures.webhooks
        try:
            async with (
                asyncio.timeout(self._options.request_timeout_ms / 1_000),
                client.stream("POST", self._options.url, content=body, headers=headers) as answer,
            ):
                if answer.is_success:
                    count.labels(self._options.name, "taken").inc()
                    return "", True, 0.0
                said = await anext(answer.aiter_bytes(_ANSWER_BYTES_MAX), b"")
        except (httpx.HTTPError, TimeoutError) as error:
            count.labels(self._options.name, "unreachable").inc()
            return f"{type(error).__name__}: {error}", False, 0.0
        count.labels(self._options.name, "refused").inc()
        problem = f"{answer.status_code}: {said[:_ANSWER_BYTES_MAX].decode(errors='replace')}"
        return problem, answer.status_code in _FINAL, _seconds_of(answer.headers)

    def _id_of(self, message: Message) -> str:
        """Return the id of a message: the same whenever it is sent."""
        target = f"{self._url}|{message.shard_id}|{message.sequence}|{self._options.name}"
        return f"msg_{hashlib.sha256(target.encode()).hexdigest()[:32]}"

    def _pauses(self) -> Backoff:
        return Backoff(
            first_ms=self._options.retry_delay_ms,
            longest_ms=self._options.retry_delay_max_ms,
            source=system_random(),
        )


def _seconds_of(headers: Mapping[str, str]) -> float:
    """Return a response's retry time in seconds, 0 without one, or with a date."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0.0
