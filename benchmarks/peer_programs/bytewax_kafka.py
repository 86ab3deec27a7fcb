"""Bytewax: the jobs of ``kafka_jobs.py``, with its recovery, to the topic's end or behind it.

Whole batches go through one step where the job allows it, which is the fastest form of this system.
"""

from __future__ import annotations

import os
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

_BROKERS = [os.environ["BENCH_BROKERS"]]
Message = KafkaSinkMessage[bytes, bytes]


def to_orders(messages: list[KafkaSourceMessage]) -> list[Message]:
    loads, dumps = orjson.loads, orjson.dumps
    orders = []
    for message in messages:
        event = loads(message.value)
        order = {
            "id": event["id"],
            "user": event["user"],
            "total": event["cents"] * event["quantity"],
            "at": event["at"],
        }
        orders.append(KafkaSinkMessage(event["user"].encode(), dumps(order)))
    return orders


def keyed(messages: list[KafkaSourceMessage]) -> list[tuple[str, dict[str, Any]]]:
    events = [orjson.loads(message.value) for message in messages]
    return [(event["user"], event) for event in events]


class Counter(StatefulBatchLogic[dict[str, Any], Message, int]):
    """Counts the events of one user."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[dict[str, Any]]) -> tuple[list[Message], bool]:
        messages = []
        for event in values:
            self.count += 1
            found = orjson.dumps({"user": event["user"], "count": self.count})
            messages.append(KafkaSinkMessage(event["user"].encode(), found))
        return messages, False

    def snapshot(self) -> int:
        return self.count


flow = Dataflow("kafka")
# As ours: the client's own settings are eight times slower under backlog.
settings = {"fetch.queue.backoff.ms": "1", "queued.min.messages": "20000"}
events = op.input(
    "events", flow,
    KafkaSource(
        _BROKERS, [os.environ["BENCH_SOURCE"]],
        tail="BENCH_TAIL" in os.environ, add_config=settings,
    ),
)  # fmt: skip
if os.environ["BENCH_JOB"] == "kafka_map":
    records = op.flat_map_batch("orders", events, to_orders)
else:
    by_user = op.flat_map_batch("users", events, keyed)
    records = op.key_rm("records", op.stateful_batch("counts", by_user, Counter))
sink = KafkaSink(_BROKERS, os.environ["BENCH_TARGET"], {"partitioner": "murmur2_random"})
op.output("out", records, sink)
