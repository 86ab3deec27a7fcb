"""Clients of the subscriber server: subscriptions, and a queue for each client.

A subscription is *live*, and gets what its feed reads, or *behind*: it reads what is past by
itself, at the pace of its client. It becomes live when it has read to the end, and falls behind
when the queue of its client is full. Nothing is lost in between: while it is behind it notes the
first message of each shard that the feed gave to others, and reads on from there.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from prometheus_client import Counter

from bicycle_sdk.errors import BicycleError
from bicycle_streams import END, At, StreamError, StreamKey
from bicycle_streams.access.answers import plain_answer
from bicycle_streams.subscriber_server.errors import (
    PAST_NOT_KEPT,
    STREAM_NOT_SERVED,
    SUBSCRIPTION_TAKEN,
    SUBSCRIPTION_UNKNOWN,
    SUBSCRIPTIONS_TOO_MANY,
)
from bicycle_streams.subscriber_server.feeds import Feed, Item, batches_past_damage
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.subscriber_server.filters import SubscriptionFilter
from bicycle_streams.subscriber_server.options import SubscriberOptions
from bicycle_streams.subscriber_server.requests import After, Begin, Subscribe, begin_of

_REPLIES_MAX = 100
_YIELD_EVERY = 100


class ClientConnection(Protocol):
    """The connection to a client."""

    async def send(self, message: bytes, *, text: bool) -> None:
        """Send a frame, once there is room for it; raise when the client is gone."""


class ClientSubscription:
    """A client's subscription to one stream.

    Args:
        client: Whose it is.
        request: What was asked for.
        feed: Who reads the stream.
        key: The stream.
        begin: Where it begins.
        sent: Counts the messages that were sent.

    Attributes:
        is_over: Nothing more is read for it; what is queued is sent.
        is_muted: That is not sent, either.
    """

    def __init__(
        self, client: Client, request: Subscribe, *, feed: Feed, key: StreamKey, begin: Begin,
        sent: Counter,
    ) -> None:  # fmt: skip
        self.sent = sent
        self.id = request.id
        self.feed = feed
        self.key = key
        self.head = b'{"op":"message","id":%s,' % json.dumps(request.id).encode()
        self.filter = SubscriptionFilter.of(request.filter)
        self.is_over = False
        self.is_muted = False
        self.skipped_count = 0
        # Shard -> the first message that is still to be read there; None while it is live.
        self.missed: dict[int, int] | None = None
        self.begin: Begin | None = None
        self._client = client
        self._next: dict[int, int] = {}
        if isinstance(begin, After):
            self.missed = {shard: last + 1 for shard, last in begin.sequences.items()}
        elif begin is not END:
            self.missed, self.begin = {}, begin

    def offer(self, item: Item) -> None:
        """Take a message of the feed."""
        if self.missed is not None:
            self.missed.setdefault(item.shard_id, item.sequence)
            return
        if self._next:
            # The feed may still be where this subscription has read already.
            following = self._next.get(item.shard_id)
            if following is not None:
                if item.sequence < following:
                    return
                del self._next[item.shard_id]
        if self.filter is None or self.filter.passes(item.payload):
            self._client.put(self, item)

    def feed_ended(self, error: StreamError | None) -> None:
        """End with the feed, after reading past messages if possible."""
        if self.missed is None or error is not None:
            self._client.end(self, error)

    def fall_behind(self, item: Item) -> None:
        """Read by itself from a message on."""
        self.missed = {item.shard_id: item.sequence}

    def to_read(self) -> list[tuple[Any, int | None]]:
        """Return the positions and shards from which to read past messages.

        It is empty when nothing is missed: then the subscription is live from this call on.
        """
        if self.begin is not None:
            begin, self.begin = self.begin, None
            return [(begin, None)]
        missed = self.missed or {}
        self.missed = {} if missed else None
        return [
            (At(max(sequence, self._next.get(shard, 0))), shard)
            for shard, sequence in missed.items()
        ]

    def is_new(self, item: Item) -> bool:
        """Return whether a message of the past was not read before, and note that it was."""
        if item.sequence < self._next.get(item.shard_id, 0):
            return False
        self._next[item.shard_id] = item.sequence + 1
        return True


class Client:
    """One client, and its queue of messages.

    Args:
        connection: The way to it.
        feeds: Stream -> who reads it.
        options: Limits.
        figures: Are told what happens.
        turns: Lets few clients at once read what is past.
    """

    def __init__(
        self, connection: ClientConnection, feeds: Mapping[str, Feed],
        *, options: SubscriberOptions, figures: SubscriberFigures, turns: asyncio.Semaphore,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._feeds = feeds
        self._options = options
        self._figures = figures
        self._turns = turns
        self._subscriptions: dict[str, ClientSubscription] = {}
        self._queue: deque[tuple[ClientSubscription, Item] | bytes] = deque()
        self._message_count = 0
        self._byte_count = 0
        self._behind: deque[ClientSubscription] = deque()
        self._skipping: set[ClientSubscription] = set()
        self._wake = asyncio.Event()
        self._sent = asyncio.Event()
        # Time since which the last frame waits for space; None while no frame waits.
        self.waits_since_s: float | None = None
        # The reason to disconnect the client; read by the owner of the connection.
        self.drop_reason = ""

    def subscribe(self, request: Subscribe) -> None:
        """Start a subscription; its reply precedes its first message.

        Raises:
            BicycleError: it cannot begin.
        """
        if request.id in self._subscriptions:
            raise SUBSCRIPTION_TAKEN(id=request.id)
        if len(self._subscriptions) >= self._options.subscriptions_max:
            raise SUBSCRIPTIONS_TOO_MANY(count_max=self._options.subscriptions_max)
        feed = self._feeds.get(request.stream)
        if feed is None:
            known = ", ".join(self._feeds) or "none"
            raise STREAM_NOT_SERVED(stream=request.stream[:100], known_text=known)
        begin = begin_of(request.begin)
        if begin is not END and not feed.keeps:
            raise PAST_NOT_KEPT(stream=request.stream)
        if feed.end_error is not None:
            raise feed.end_error
        key = StreamKey(request.stream)
        sent = self._figures.sent.labels(key)
        subscription = ClientSubscription(self, request, feed=feed, key=key, begin=begin, sent=sent)
        self._subscriptions[request.id] = subscription
        self._figures.subscriptions.inc()
        self.reply({"op": "subscribed", "id": request.id, "stream": key})
        feed.join(key, subscription)
        if subscription.missed is not None:
            self._behind.append(subscription)
        elif feed.has_ended:
            self.end(subscription, None)

    def unsubscribe(self, name: str) -> None:
        """End a subscription: no message of it follows the reply.

        Raises:
            SUBSCRIPTION_UNKNOWN: the client has none of this id.
        """
        subscription = self._subscriptions.get(name)
        if subscription is None:
            raise SUBSCRIPTION_UNKNOWN(id=name)
        subscription.is_muted = True
        self._forget(subscription)
        self.reply({"op": "unsubscribed", "id": name})

    def end(self, subscription: ClientSubscription, error: BicycleError | None) -> None:
        """End a subscription after its queued messages, with the reason."""
        if subscription.is_over:
            return
        self._forget(subscription)
        shown = {} if error is None else {"error": plain_answer(error)}
        self.reply({"op": "ended", "id": subscription.id, **shown})

    def leave(self) -> None:
        """End all subscriptions of a client that is gone."""
        for subscription in list(self._subscriptions.values()):
            self._forget(subscription)
        self._queue.clear()

    def put(self, subscription: ClientSubscription, item: Item) -> None:
        """Queue a message, or apply the policy for slow clients."""
        options = self._options
        size = len(item.body)
        if self._message_count and (
            self._message_count >= options.queue_messages
            or self._byte_count + size > options.queue_bytes
        ):
            self._overflow(subscription, item)
            return
        if subscription.skipped_count:
            self._tell_skipped(subscription)
        self._message_count += 1
        self._byte_count += size
        self._queue.append((subscription, item))
        self._wake.set()

    def reply(self, shown: Mapping[str, Any]) -> None:
        """Queue a reply, which is not a message."""
        self._queue.append(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode())
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Wait until the client has received most replies, as a limit on requests."""
        while len(self._queue) - self._message_count >= _REPLIES_MAX:
            self._sent.clear()
            await self._sent.wait()

    async def write(self) -> None:
        """Send queued and past messages forever; raise an error if the client leaves."""
        while True:
            await self._send_queue()
            if self._behind:
                await self._catch_up(self._behind.popleft())
            elif self._skipping:
                for subscription in tuple(self._skipping):
                    self._tell_skipped(subscription)
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _send_queue(self) -> None:
        queue = self._queue
        while queue:
            entry = queue.popleft()
            if isinstance(entry, bytes):
                await self._send(entry)
                self._sent.set()
                continue
            subscription, item = entry
            self._message_count -= 1
            self._byte_count -= len(item.body)
            if not subscription.is_muted:
                await self._send(subscription.head + item.body)
                subscription.sent.inc()

    async def _send(self, frame: bytes) -> None:
        self.waits_since_s = asyncio.get_running_loop().time()
        await self._connection.send(frame, text=True)
        self.waits_since_s = None

    async def _catch_up(self, subscription: ClientSubscription) -> None:
        """Send past messages, and newer ones, until the client has caught up."""
        await self._take_turn()
        self._figures.catching_up.inc()
        try:
            while not subscription.is_over and (positions := subscription.to_read()):
                for begin, shard_id in positions:
                    await self._send_past(subscription, begin, shard_id)
        except StreamError as error:
            self.end(subscription, error)
        finally:
            self._figures.catching_up.dec()
            self._turns.release()
        if subscription.is_over:
            return
        self.reply({"op": "live", "id": subscription.id})
        if subscription.feed.has_ended:
            self.end(subscription, subscription.feed.end_error)

    async def _take_turn(self) -> None:
        """Wait for permission to read past messages, and send new ones meanwhile."""
        taking = asyncio.ensure_future(self._turns.acquire())
        try:
            while not taking.done():
                self._wake.clear()
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({taking, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                await self._send_queue()
        except BaseException:
            if not taking.cancel():
                self._turns.release()
            raise

    async def _send_past(
        self, subscription: ClientSubscription, begin: Any, shard_id: int | None
    ) -> None:
        async with subscription.feed.past(subscription.key, begin, shard_id) as consumer:
            if consumer is None:
                return
            async for batch in batches_past_damage(consumer):
                for number, message in enumerate(batch):
                    if subscription.is_over:
                        return
                    item = Item(message)
                    wanted = subscription.filter
                    if subscription.is_new(item) and (
                        wanted is None or wanted.passes(item.payload)
                    ):
                        await self._send(subscription.head + item.body)
                        subscription.sent.inc()
                    if number % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                # Other subscriptions of this client do not wait for this one.
                await self._send_queue()

    def _overflow(self, subscription: ClientSubscription, item: Item) -> None:
        slow = self._options.slow
        if slow == "disconnect":
            self.drop_reason = self.drop_reason or "slow"
        elif slow == "lag" and subscription.feed.keeps:
            subscription.fall_behind(item)
            self._figures.lagged.labels(subscription.key).inc()
            self._behind.append(subscription)
            self.reply({"op": "lagging", "id": subscription.id})
        else:
            subscription.skipped_count += 1
            self._skipping.add(subscription)
            self._figures.skipped.labels(subscription.key).inc()

    def _tell_skipped(self, subscription: ClientSubscription) -> None:
        count, subscription.skipped_count = subscription.skipped_count, 0
        self._skipping.discard(subscription)
        if not subscription.is_over:
            self.reply({"op": "skipped", "id": subscription.id, "count": count})

    def _forget(self, subscription: ClientSubscription) -> None:
        if not subscription.is_over:
            subscription.is_over = True
            del self._subscriptions[subscription.id]
            self._figures.subscriptions.dec()
            self._skipping.discard(subscription)
            subscription.feed.leave(subscription.key, subscription)
