"""The jobs of the Kafka benchmarks, written as a job author would.

The module is found on the import path of the workers, like that of an installed plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicycle_sdk import (
    DataStream,
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    StreamEnvironment,
    bicycle_plugin,
)

__all__ = ["TopicParams", "kafka_count", "kafka_map"]

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TopicParams:
    """Where a job reads and writes, and with which promise."""

    brokers: str
    source: str
    target: str
    guarantee: str
    bounded: bool = True


def user_of(event: Event) -> str:
    return event["user"]


def to_order(event: Event) -> Event:
    return {
        "id": event["id"],
        "user": event["user"],
        "total": event["cents"] * event["quantity"],
        "at": event["at"],
    }


def itself(user: str) -> str:
    return user


def to_count(counted: tuple[str, int]) -> Event:
    return {"user": counted[0], "count": counted[1]}


@bicycle_plugin(name="kafka_map", version="1")
def kafka_map(env: StreamEnvironment, params: TopicParams) -> None:
    """Events to orders, one for one."""
    _write(_read(env, params).map(to_order).uid("orders"), params)


@bicycle_plugin(name="kafka_count", version="1")
def kafka_count(env: StreamEnvironment, params: TopicParams) -> None:
    """A running count of each user's events."""
    users = _read(env, params).map(user_of).uid("users")
    _write(users.key_by(itself).count().uid("counts").map(to_count).uid("records"), params)


def _read(env: StreamEnvironment, params: TopicParams) -> DataStream[Event]:
    source = KafkaSourceBuilder[Event](params.brokers, params.source).group_id(params.target)
    return env.add_source(source.bounded() if params.bounded else source).uid("events")


def _write(records: DataStream[Event], params: TopicParams) -> None:
    sink = KafkaSinkBuilder[Event](params.brokers, params.target).key(user_of)
    sink.delivery_guarantee(DeliveryGuarantee(params.guarantee))
    records.sink_to(sink.transactional_id_prefix(params.target)).uid("out")
