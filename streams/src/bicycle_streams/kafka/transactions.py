"""The sender of the Kafka backend with a transactional id, for atomic messages.

Its client's calls wait, so they are made in threads. The one that aborts also tells of purged
messages, and is made on the thread that hears of deliveries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Self

from confluent_kafka import KafkaException

from bicycle_sdk.clock import SystemClock
from bicycle_streams.consuming import Consumer
from bicycle_streams.errors import ProducerEndedError, StreamError, StreamUnsupportedError
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.consuming import KafkaConsumer
from bicycle_streams.kafka.errors import OUTSIDE_TRANSACTION, PRODUCER_FENCED, TRANSACTION_FAILED
from bicycle_streams.kafka.failures import FENCED
from bicycle_streams.kafka.producing import until_done
from bicycle_streams.kafka.sending import KafkaSender


class TransactionalSender(KafkaSender):
    """Sends in transactions, one after the other; made by ``open``.

    Args:
        cluster: The cluster.
        shard_count: Over how many partitions messages without one go, in turns.
        transactional_id: Who sends: a later sender of the same id ends what this one began.
    """

    def __init__(self, cluster: Cluster, shard_count: int, transactional_id: str) -> None:
        self._id = transactional_id
        self._calls: deque[tuple[Future[None], Callable[[], None]]] = deque()
        options = cluster.options
        timeout_ms = options.transaction_timeout_ms
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "delivery.timeout.ms": min(options.delivery_timeout_ms, timeout_ms),
        }
        super().__init__(cluster, "exactly-once", shard_count, own)
        self._timeout_s = timeout_ms / 1_000
        self._is_within = False
        self._running: asyncio.Future[None] | None = None
        self._shut = self._outside()

    @classmethod
    async def open(cls, cluster: Cluster, shard_count: int, transactional_id: str) -> Self:
        """Return a sender, after transactions of an earlier sender of its id are aborted."""
        sender = cls(cluster, shard_count, transactional_id)
        try:
            await sender._do(sender._client.init_transactions)
        except BaseException:
            await sender.close()
            raise
        return sender

    @asynccontextmanager
    async def transaction(self, consumer: Consumer | None) -> AsyncIterator[None]:
        await self._begin(consumer)
        try:
            yield
            await self._commit(consumer)
        except BaseException:
            await self._abort(consumer)
            raise

    async def _begin(self, consumer: Consumer | None) -> None:
        self._refuse_ended()
        if self._is_within:
            raise self._failure_of("another transaction is open")
        self._positions_of(consumer)
        self._is_within = True
        try:
            await self._do(lambda _: self._client.begin_transaction())
        except BaseException:
            await self._abort(None)  # A canceled call may have begun it.
            raise
        self._refuse_ended()  # It may have been meanwhile.
        self._shut = None

    def _refuse_ended(self) -> None:
        if self.has_ended:
            raise ProducerEndedError(address=self.address)

    async def _commit(self, consumer: Consumer | None) -> None:
        self._shut = self._shut or self._outside()  # It may have ended meanwhile.
        try:
            await self.flush()
        except StreamError as error:
            raise await self._explain(error) from error
        reader = self._positions_of(consumer)
        if reader is None:
            await self._do(self._end)
            return
        async with reader.positions_to_commit() as found:
            if found is None:
                raise self._failure_of("other members of the group may now have its messages")
            offsets, member = found
            if offsets:
                await self._do(
                    lambda limit_s: self._client.send_offsets_to_transaction(
                        offsets, member, limit_s
                    )
                )
            await self._do(self._end)

    async def _abort(self, consumer: Consumer | None) -> None:
        self._shut = self._shut or self._outside()
        if self._running is not None:
            await asyncio.wait([self._running])  # A canceled call continues on its thread.
        if not self._is_within:
            return
        if self._tasks:
            await asyncio.wait(self._tasks)
        done: Future[None] = Future()
        self._calls.append((done, self._purge))
        await asyncio.wrap_future(done)
        self._is_within = False
        while self.in_flight_count:
            await self.move()
        self._failure = None
        reader = self._positions_of(consumer)
        if reader is not None and not reader.has_ended:
            await reader.go_back()

    async def close(self) -> None:
        if self._is_within and not self.has_ended:
            await self._abort(None)
        await super().close()

    def _end(self, limit_s: float) -> None:
        self._client.commit_transaction(limit_s)
        self._is_within = False

    def _purge(self) -> None:
        """Abort on the thread of deliveries; if that fails, the cluster aborts later."""
        try:
            self._until_done(self._client.abort_transaction)
        except KafkaException:
            self._client.purge()

    def _poll(self) -> None:
        while not self._has_stopped.is_set():
            while self._calls:
                done, call = self._calls.popleft()
                try:
                    done.set_result(call())
                except Exception as error:  # noqa: BLE001 - raised where it is waited for.
                    done.set_exception(error)
            self._poll_once()

    async def _do(self, call: Callable[[float], None]) -> None:
        """Make a call of the client in a thread, again while it may be repeated."""
        task = asyncio.ensure_future(asyncio.to_thread(self._until_done, call))
        self._running = task
        try:
            await asyncio.shield(task)
        except KafkaException as error:
            raise self._reason(error.args[0]) from None

    def _until_done(self, call: Callable[[float], None]) -> None:
        until_done(call, limit_s=self._timeout_s, clock=SystemClock())

    async def _explain(self, error: StreamError) -> StreamError:
        """Return why messages of the transaction were not taken."""
        try:
            await self._do(lambda _: self._client.begin_transaction())
        except StreamError as reason:  # A fenced client is named in it.
            if reason.code == PRODUCER_FENCED.code:
                return reason
        return error

    def _positions_of(self, consumer: Consumer | None) -> KafkaConsumer | None:
        """Return a consumer whose positions can be committed with the messages."""
        if consumer is None:
            return None
        if not isinstance(consumer, KafkaConsumer) or consumer.address != self.address:
            raise StreamUnsupportedError(
                backend=self.address,
                action=f"commit positions of {consumer.address} in a transaction",
                reason="they are stored elsewhere",
                hint="use a consumer of the same address, or commit its positions afterwards",
            )
        consumer.leave_commits_to_transactions()
        return consumer

    def _outside(self) -> StreamError:
        return OUTSIDE_TRANSACTION(address=self.address, transactional_id=self._id)

    def _failure_of(self, reason: str) -> StreamError:
        return TRANSACTION_FAILED(address=self.address, transactional_id=self._id, reason=reason)

    def _reason(self, error: Any) -> StreamError:
        if error.code() in FENCED:
            return PRODUCER_FENCED(address=self.address, transactional_id=self._id)
        return self._failure_of(self._cluster.redacted(error))
