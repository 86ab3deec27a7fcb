"""When a topic that brokers do not know is taken for gone, so that a publication gives up."""

import pytest
from confluent_kafka import KafkaError

from bicycle_runtime.connectors.kafka.transactions import TopicDoubt
from bicycle_sdk.clock import ManualClock

UNKNOWN = [
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
]


@pytest.mark.parametrize("code", UNKNOWN)
def test_a_topic_is_gone_when_brokers_do_not_know_it_for_more_than_ten_seconds(code):
    clock = ManualClock()
    doubt = TopicDoubt(clock)

    assert not doubt.is_gone(code)
    clock.advance(10_000)
    assert not doubt.is_gone(code)
    clock.advance(1)
    assert doubt.is_gone(code)


def test_a_topic_that_is_unknown_right_after_a_long_outage_is_not_gone():
    clock = ManualClock()
    doubt = TopicDoubt(clock)

    assert not doubt.is_gone(KafkaError._TIMED_OUT)
    clock.advance(600_000)
    assert not doubt.is_gone(KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_another_error_in_between_begins_the_wait_anew():
    clock = ManualClock()
    doubt = TopicDoubt(clock)

    assert not doubt.is_gone(KafkaError.UNKNOWN_TOPIC_OR_PART)
    clock.advance(8_000)
    assert not doubt.is_gone(KafkaError._TIMED_OUT)
    clock.advance(8_000)
    assert not doubt.is_gone(KafkaError.UNKNOWN_TOPIC_OR_PART)
