"""A check that brokers know a partition, bypassing the client's cache.

A partition without a leader is unknown to the client, like a removed one; it would believe so for
minutes. A request for the topic by name makes it look again.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

__all__ = ["is_known"]


def is_known(client: Consumer, topic_partition: TopicPartition, *, timeout_s: float) -> bool:
    """Return whether the brokers know a partition, with or without a leader.

    Raises:
        KafkaException: no broker answers in time.
    """
    topic = client.list_topics(topic_partition.topic, timeout=timeout_s).topics[
        topic_partition.topic
    ]
    return topic_partition.partition in topic.partitions
