import asyncio

import pulsar
import pytest

from bicycle_sdk.clock import SystemClock
from bicycle_streams import Message, StreamError, StreamerUri, StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.pulsar.cluster import Cluster
from bicycle_streams.pulsar.consuming import PulsarConsumer
from bicycle_streams.pulsar.errors import POSITION_UNUSABLE
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.pulsar.positions import id_of, sequence_of
from tests.raising import raises

STREAM = ("pulsar://localhost", "orders")


@pytest.mark.parametrize(
    "place", [(0, 0, 0), (7, 0, 999), (7, 49_999, 4_095), ((1 << 31) - 1, (1 << 20) - 1, 0)]
)
def test_a_sequence_names_the_entry_of_its_message(place):
    ledger, entry, batch = place
    sequence = sequence_of(pulsar.MessageId(-1, ledger, entry, batch), *STREAM)

    found = id_of(sequence)

    assert (found.ledger_id(), found.entry_id(), found.batch_index()) == (ledger, entry, -1)
    assert sequence & 4_095 == batch
    assert sequence < 1 << 63


def test_sequences_grow_as_places_do():
    places = [(1, 0, -1), (1, 0, 1), (1, 1, 0), (1, 49_999, 3), (2, 0, 0), (40, 0, 0)]
    sequences = [sequence_of(pulsar.MessageId(-1, *place), *STREAM) for place in places]

    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize("place", [(1 << 31, 0, 0), (0, 1 << 20, 0), (0, 0, 1 << 12)])
def test_a_place_that_no_sequence_stands_for_is_refused(place):
    with raises(POSITION_UNUSABLE, match=str(max(place))):
        sequence_of(pulsar.MessageId(-1, *place), *STREAM)


def test_a_commit_that_failed_is_repeated_by_the_next():
    class Subscribed:
        def __init__(self):
            self.found = []

        def acknowledge(self, message_id):
            self.found.append(message_id)
            if len(self.found) == 2:
                raise pulsar.Timeout

        def close(self):
            pass

    async def scenario():
        cluster = Cluster(StreamerUri.parse("pulsar://localhost"), PulsarOptions())
        key = StreamKey("orders")
        subscription = Subscription(keys=(key,), mode="load-balanced", group="g")
        consumer = PulsarConsumer(cluster, subscription, SystemClock())
        shard = consumer._shard((key, 0), "orders")
        shard.given, shard._subscribed = {1: "one", 2: "two"}, Subscribed()
        consumer._shards[key, 0] = shard
        for sequence in (1, 2):
            consumer.ack(Message(key, 0, sequence, 0, b""))
        with pytest.raises(StreamError):
            await consumer.commit()
        await consumer.commit()
        await consumer.commit()
        found = shard._subscribed.found
        await consumer.end()
        return found

    assert asyncio.run(scenario()) == ["one", "two", "two"]
