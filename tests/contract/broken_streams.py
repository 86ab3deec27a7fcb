"""Backends of streams with one mistake each, all of them the file backend otherwise."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace

from bicycle_streams import At, Receipt
from bicycle_streams.file.consuming import FileConsumer
from bicycle_streams.file.sending import FileSender
from bicycle_streams.file.streamer import FileStreamer
from bicycle_streams.messages import END
from bicycle_streams.testing import StreamCase


class Flawless(FileStreamer):
    """A backend without a mistake: a consumer from the beginning ends, so that no test waits."""

    consumer_type = FileConsumer
    sender_type = FileSender

    async def _make_consumer(self, subscription):
        if subscription.start == "earliest":
            subscription = replace(subscription, is_live=False)
        consumer = await super()._make_consumer(subscription)
        consumer.__class__ = self.consumer_type
        return consumer

    async def _make_sender(self, *, durability, shard_count):
        sender = await super()._make_sender(durability=durability, shard_count=shard_count)
        sender.__class__ = self.sender_type
        return sender


class LosesAMessage(Flawless):
    class consumer_type(FileConsumer):
        async def _fetch(self, count_max):
            return [m for m in await super()._fetch(count_max) if m.payload != b"7"]


class RepeatsAMessage(Flawless):
    class consumer_type(FileConsumer):
        async def _fetch(self, count_max):
            found = await super()._fetch(count_max)
            return [m for m in found for _ in range(2 if m.payload == b"7" else 1)]


class SwapsMessages(Flawless):
    class consumer_type(FileConsumer):
        async def _fetch(self, count_max):
            return (await super()._fetch(count_max))[::-1]


class GivesAnotherReceipt(Flawless):
    class sender_type(FileSender):
        def send(self, message):
            return self._wrong(super().send(message))

        async def _wrong(self, sent):
            found = await sent
            place = (found.stream_key, found.shard_id, found.sequence + 1, found.timestamp_ms)
            return Receipt(*place)


class DropsKeys(Flawless):
    class sender_type(FileSender):
        has_headers = True  # It takes them, and the file has no room for them.


class BoastsOfHeaders(DropsKeys):
    capabilities = replace(FileStreamer.capabilities, has_headers=True)


class CountsNothingInFlight(Flawless):
    class sender_type(FileSender):
        in_flight_count = 0


class BoastsOfTransactions(Flawless):
    capabilities = replace(FileStreamer.capabilities, has_transactions=True)


class CommitsMessageByMessage(Flawless):
    class sender_type(FileSender):
        def transaction(self, consumer):
            return nullcontext()


class RewindsBehindTheMessage(Flawless):
    class consumer_type(FileConsumer):
        async def _go_to(self, target):
            return await super()._go_to(
                At(target.sequence + 1) if isinstance(target, At) else target
            )


class SeeksLaterTimes(Flawless):
    class consumer_type(FileConsumer):
        async def _go_to(self, target):
            return await super()._go_to(target + 1 if isinstance(target, int) else target)


class MovesWhereNothingIs(Flawless):
    class consumer_type(FileConsumer):
        async def _go_to(self, target):
            return await super()._go_to(target) or (await super()._go_to(END) and False)


class ForgetsTheCommit(Flawless):
    class consumer_type(FileConsumer):
        async def _commit(self):
            """Keep nothing."""


class CommitsWhatItGives(Flawless):
    class consumer_type(FileConsumer):
        async def _fetch(self, count_max):
            found = await super()._fetch(count_max)
            if self.subscription.mode != "real-time":
                for message in found[:2]:
                    self._ack(message)
                await self._commit()
            return found


class ForgetsWhereItBegan(Flawless):
    async def _make_consumer(self, subscription):
        if subscription.mode == "resumable" and subscription.start == "latest":
            subscription = replace(subscription, mode="real-time", group=None)
        return await super()._make_consumer(subscription)


class SharesNothing(Flawless):
    async def _make_consumer(self, subscription):
        if subscription.mode == "load-balanced":
            subscription = replace(subscription, mode="real-time", group=None)
        return await super()._make_consumer(subscription)


class LosesWhatIsCancelled(Flawless):
    class consumer_type(FileConsumer):
        async def _fetch(self, count_max):
            found = await super()._fetch(count_max)
            await asyncio.sleep(0.2)  # Who is cancelled here has taken them.
            return found


# The rule that a backend breaks; what other rules it breaks is not asked.
BROKEN = {
    LosesAMessage: "test_a_consumer_of_what_is_there_ends",
    RepeatsAMessage: "test_a_consumer_of_what_is_there_ends",
    SwapsMessages: "test_a_consumer_of_what_is_there_ends",
    GivesAnotherReceipt: "test_a_message_arrives_with_what_its_receipt_says",
    DropsKeys: "test_keys_and_headers_arrive_or_are_refused",
    BoastsOfHeaders: "test_keys_and_headers_arrive_or_are_refused",
    CountsNothingInFlight: "test_what_is_in_flight_is_counted_until_the_flush",
    BoastsOfTransactions: "test_a_transaction_is_seen_at_its_end_with_its_positions",
    CommitsMessageByMessage: "test_a_transaction_is_seen_at_its_end_with_its_positions",
    RewindsBehindTheMessage: "test_rewinding_gives_the_rest_that_message_included",
    SeeksLaterTimes: "test_seeking_gives_the_earliest_message_of_that_time_or_later",
    MovesWhereNothingIs: "test_a_position_beyond_the_end_is_refused_and_nothing_moves",
    ForgetsTheCommit: "test_a_resumed_consumer_goes_on_behind_the_committed_message",
    CommitsWhatItGives: "test_a_resumed_consumer_goes_on_behind_the_committed_message",
    ForgetsWhereItBegan: "test_a_resumed_consumer_goes_on_where_it_began",
    SharesNothing: "test_the_members_of_a_group_share_the_messages",
    LosesWhatIsCancelled: "test_a_cancelled_call_loses_nothing",
}


class BrokenCase(StreamCase):
    word = "broken"
    patience_s = 5.0

    @property
    def uri(self):
        return f"broken://{self.folder}/events.ss"

    @property
    def options(self):
        return {"create": "if-missing", "poll_interval_ms": 1}
