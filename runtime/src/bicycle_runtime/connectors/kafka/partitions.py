"""A check that brokers know a partition, past what the client remembers of it.

A partition that nobody leads is unknown to the client, as one that is gone; it would believe so for
minutes. Asking for the topic by name makes it look again.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

__all__ = ["is_known"]


def is_known(client: Consumer, place: TopicPartition, *, timeout_s: float) -> bool:
    """Tell whether the brokers know a partition, led by somebody or not.

    Raises:
        KafkaException: none answers in time.
    """
    topic = client.list_topics(place.topic, timeout=timeout_s).topics[place.topic]
    return place.partition in topic.partitions
