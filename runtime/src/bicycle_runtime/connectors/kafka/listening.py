"""A client of the driver that waits for the first message while a job is idle.

Reading end offsets a hundred times a second costs a broker a sixth of a core. A fetch that waits on
the broker costs two requests a second, and is answered when a message can be read. The listener
fetches from the job's position; the first message ends the pause of the epoch loop, and is dropped:
tasks read it. Other changes (markers of transactions, new partitions, an outage) the source finds
by requests, less often.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Condition, Thread
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bicycle_runtime.connectors.kafka.reader import partition_of
from bicycle_runtime.connectors.kafka.settings import ClientProperties

_WAIT_S = 1.0
_CLOSE_S = 2.0
_FIXED: Final = {
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": "500",
    "fetch.min.bytes": "1",
    "fetch.message.max.bytes": "1",  # A broker sends one batch of a partition at least.
    "queued.min.messages": "1",
    "log_level": "2",
}


class Listener:
    """Waits for the first message in some partitions.

    Args:
        properties: Of the vertex, with brokers and group.
        wake: Called from another thread when a message can be read.
    """

    def __init__(self, properties: ClientProperties, wake: Callable[[], None]) -> None:
        self._properties = properties.with_defaults({"isolation.level": "read_committed"}).bound()
        self._wake = wake
        self._thread: _ListenerThread | None = None

    def is_waiting_in(self, shards: Collection[str]) -> bool:
        """Return whether a message that comes in any of these partitions ends the pause."""
        wanted = None if self._thread is None else self._thread.wanted
        return wanted is not None and wanted.keys() >= set(shards)

    def listen(self, positions: Mapping[str, int]) -> None:
        """Wait for a message at or after these offsets."""
        if self._thread is None:
            client = self._properties.open(Consumer, _FIXED)
            self._thread = _ListenerThread(client, self._wake)
            self._thread.start()
        self._thread.listen(positions)

    def leave(self) -> Thread | None:
        """Stop waiting; the client is closed on its thread. ``listen`` opens another one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        return thread

    def close(self) -> None:
        """Stop waiting, and close the client with a time limit."""
        thread = self.leave()
        if thread is not None:
            thread.join(_CLOSE_S)  # One that hangs without a broker ends with the process.


class _ListenerThread(Thread):
    def __init__(self, client: Consumer, wake: Callable[[], None]) -> None:
        super().__init__(name="kafka-listener", daemon=True)
        self._client = client
        self._wake = wake
        self._changed = Condition()
        self._is_closing = False
        self.wanted: dict[str, int] | None = None

    def listen(self, positions: Mapping[str, int]) -> None:
        with self._changed:
            self.wanted = dict(positions)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self.wanted, self._is_closing = None, True
            self._changed.notify()

    def run(self) -> None:
        try:
            while (wanted := self._next()) is not None:
                self._client.assign(
                    [TopicPartition(*partition_of(s), at) for s, at in wanted.items()]
                )
                self._hear(wanted)
                self._client.unassign()
        finally:
            self._client.close()

    def _next(self) -> dict[str, int] | None:
        with self._changed:
            while self.wanted is None and not self._is_closing:
                self._changed.wait()
            return self.wanted

    def _hear(self, wanted: dict[str, int]) -> None:
        """Wait for a message, or for a change of the request."""
        while self.wanted is wanted:
            event = self._client.poll(_WAIT_S)
            if event is None or event.error() is not None:
                continue
            with self._changed:
                if self.wanted is wanted:
                    self.wanted = None
            self._wake()
            return
