"""Quix Streams: the jobs of ``kafka_jobs.py``, one process of a consumer group.

``python quix_kafka.py JOB BROKERS SOURCE TARGET GUARANTEE COMMIT_S STATE``; it ends by SIGTERM.
Counting uses the state of the message's key, so nothing is exchanged: the input is keyed by user.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State


def to_order(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": event["id"],
        "user": event["user"],
        "total": event["cents"] * event["quantity"],
        "at": event["at"],
    }


def count_of_user(event: dict[str, Any], state: State) -> dict[str, Any]:
    count = state.get("count", 0) + 1
    state.set("count", count)
    return {"user": event["user"], "count": count}


def main() -> None:
    job, brokers, source, target, guarantee, commit_s, folder = sys.argv[1:]
    app = Application(
        broker_address=brokers,
        consumer_group=target,
        auto_offset_reset="earliest",
        commit_interval=float(commit_s),
        processing_guarantee=guarantee,
        state_dir=folder,
        loglevel="WARNING",
        # As ours: the client's own are eight times slower under backlog.
        consumer_extra_config={"fetch.queue.backoff.ms": 1, "queued.min.messages": 20_000},
    )
    events = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="json"))
    if job == "kafka_map":
        records = events.apply(to_order)
    else:
        records = events.apply(count_of_user, stateful=True)
    records.to_topic(app.topic(target, key_serializer="str", value_serializer="json"))
    app.run()


if __name__ == "__main__":
    main()
