"""PyFlink: JSON events parsed, filtered, mapped, written as JSON lines.

``python flink_events.py INPUT OUTPUT SETTINGS``: one function of Python does all three, which
saves two hand-overs of each record.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from flink_runs import FirstRecord, lines_of, setup, started, write
from pyflink.common import Types
from pyflink.datastream import FlatMapFunction

_BOUGHT = ("cart", "buy")


class ToOrders(FlatMapFunction):
    """Gives an order for an event, or nothing."""

    def __init__(self, times: str) -> None:
        self._first = FirstRecord(times)

    def flat_map(self, value: str) -> Iterator[str]:
        self._first.note()
        event = orjson.loads(value)
        if event["kind"] in _BOUGHT:
            total = event["cents"] * event["quantity"]
            order = {"id": event["id"], "user": event["user"], "total": total}
            yield orjson.dumps(order).decode()


def main() -> None:
    env, source, output, settings = setup()
    orders = lines_of(env, source).flat_map(ToOrders(settings["times"]), Types.STRING())
    write(orders, output)
    started(env)


if __name__ == "__main__":
    main()
