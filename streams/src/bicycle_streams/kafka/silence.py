"""The renewal of clients that no longer hear from any broker.

A client that is told of no broker at all, as by a single broker during its start, forgets even its
configured brokers and looks for none again (librdkafka issue 5301). A client can also stop fetching
for good when its broker was away and leaders changed. So each user of a client measures the silence
and replaces the client after it: readers, writers and requests, in the toolkit and in jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from confluent_kafka import KafkaException

from bicycle_sdk.clock import Clock

_PROBE_S = 1.0


class Silence:
    """The time since a client heard a broker, for the decision to replace the client.

    Args:
        clock: Measures the time.
        after_s: The silence after which the client is to be replaced.
        most_s: The longest silence: it doubles until then with every new client. Default: it stays.
    """

    def __init__(self, clock: Clock, *, after_s: float, most_s: float | None = None) -> None:
        self._clock = clock
        self._after_s = after_s
        self._most_s = after_s if most_s is None else most_s
        self.end()

    def end(self) -> None:
        """Note that a broker was heard."""
        self._since_s = self._clock.monotonic()
        self._limit_s = self._after_s

    def is_over_limit(self) -> bool:
        """Return whether to replace the client now; then the silence begins again."""
        now_s = self._clock.monotonic()
        if now_s - self._since_s < self._limit_s:
            return False
        self._since_s, self._limit_s = now_s, min(2 * self._limit_s, self._most_s)
        return True


def is_reached(client: Any, *topic: str) -> bool:
    """Return whether a client reaches a broker, to which it describes a topic, or all."""
    try:
        client.list_topics(*topic, timeout=_PROBE_S)
    except KafkaException:
        return False
    return True


def close_behind(close: Callable[[], object]) -> Thread:
    """Close a client in a thread that ends with the process, and return the thread.

    Without a broker, a client waits a minute for the answer to its last request.
    """
    thread = Thread(target=close, name="kafka-close", daemon=True)
    thread.start()
    return thread
