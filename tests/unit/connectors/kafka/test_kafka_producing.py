"""Handing messages to the real client. No broker: what it took is told when it is purged."""

import pytest
from confluent_kafka import Producer

from bicycle_runtime.connectors.kafka.encoding import columns_of
from bicycle_streams.kafka.producing import DeliveryFailures, produce_messages


class Taken(DeliveryFailures):
    """Notes what the client gives back."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def __call__(self, error, message, headers=None):
        self.messages.append(message)


@pytest.fixture
def producer():
    # Quiet: it would tell of the broker that is not there behind the last line of the tests.
    client = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 10, "log_level": 0}
    )
    yield client
    client.purge()
    assert client.flush(10) == 0


def taken_of(producer, messages):
    """Hand over messages to a client whose queue is emptied whenever it is full."""
    taken = Taken()
    produce_messages(
        lambda: producer, "t", columns_of(messages), failures=taken, wait=producer.purge
    )
    producer.purge()
    producer.flush(10)
    return taken.messages


def test_a_queue_that_is_full_again_and_again_loses_nothing_and_keeps_the_order(producer):
    taken = taken_of(producer, [{"value": b"%d" % number} for number in range(95)])

    assert [message.value() for message in taken] == [b"%d" % number for number in range(95)]


def test_a_message_without_key_value_or_partition_may_stand_beside_one_that_has_them(producer):
    whole = {"key": b"k", "value": b"v", "partition": 3}

    first, second = taken_of(producer, [whole, dict.fromkeys(whole)])

    assert (first.key(), first.value(), first.partition()) == (b"k", b"v", 3)
    assert (second.key(), second.value()) == (None, None)
    assert second.partition() is None


def test_the_one_who_waits_may_give_up(producer):
    def give_up():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        produce_messages(
            lambda: producer,
            "t",
            columns_of([{"value": b"v"}] * 11),
            failures=Taken(),
            wait=give_up,
        )
