"""Streams of Pulsar as sources and sinks of jobs.

A source reads by positions, which the manifest holds, and has a subscription beside them: without
one, Pulsar deletes unread messages. A sink sends an epoch at least once: brokers know for hours
which messages of a producer they have, and not for as long as a job may rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pulsar

from bicycle_runtime.connectors.settings import option_error
from bicycle_runtime.connectors.stream_clients.addressing import Server, url_of
from bicycle_runtime.connectors.stream_clients.backends import (
    AwayError,
    Cut,
    Extent,
    StreamInput,
    StreamOutput,
    cut_of,
    shard_name,
    stream_in,
)
from bicycle_runtime.connectors.stream_clients.sent import SentOutput, SentSink
from bicycle_runtime.connectors.stream_clients.source import StreamSource
from bicycle_runtime.contract import BadRecord, ConnectorSpec
from bicycle_sdk.stream_options import PulsarSinkOptions, PulsarSourceOptions, StreamSourceOptions
from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.connecting import connect
from bicycle_streams.errors import StreamError
from bicycle_streams.messages import Message
from bicycle_streams.pulsar.cluster import TLS_PROTOCOL, Cluster, last_id_of, message_of
from bicycle_streams.pulsar.errors import POSITION_UNUSABLE
from bicycle_streams.pulsar.positions import entry_before, sequence_of

_PROTOCOLS = ("pulsar", TLS_PROTOCOL)
_NAMESPACE = re.compile(r"[\w.=:-]+/[\w.=:-]+")
_BATCH = 1_000
_CUT_MAX = 50_000
_LOOK_S = 10.0  # Time between two looks for new partitions.
_CONNECT_MS = 10_000


class PulsarStreamSource(StreamSource):
    """Reads topics of a cluster, with all their partitions."""

    options_class = PulsarSourceOptions

    def make_input(self, options: StreamSourceOptions) -> StreamInput:
        """Return the input."""
        assert isinstance(options, PulsarSourceOptions), "as options_class says"
        url = url_of(self.spec, options.address, _PROTOCOLS)
        if not options.group:
            raise option_error(self.spec, "group", "it is empty", "name a subscription")
        return PulsarInput(_server_of(self.spec, url, options), options.group)


class PulsarStreamSink(SentSink):
    """Sends messages to one topic."""

    options_class = PulsarSinkOptions

    def make_output(self, options: PulsarSinkOptions) -> StreamOutput:
        """Return the output."""
        url = url_of(self.spec, options.address, _PROTOCOLS, is_one=True)
        server = _server_of(self.spec, url, options)
        words = server.options(connect_timeout_ms=_CONNECT_MS)
        self._sent_to = SentOutput(url, partial(connect, url, words))
        return self._sent_to


class PulsarInput:
    """The topics of a cluster; subscriptions in ``_kept`` retain unread messages."""

    def __init__(self, server: Server, group: str) -> None:
        self.server = server
        self.group = group
        self._cluster: Cluster | None = None
        self._kept: dict[str, Any] = {}
        self._next_look_s = 0.0
        self._pid = 0

    def __reduce__(self) -> Any:
        return PulsarInput, (self.server, self.group)

    def extents(self, now_s: float) -> Mapping[str, Extent]:
        with self._away():
            if now_s >= self._next_look_s:
                self._subscribe()
                self._next_look_s = now_s + _LOOK_S
            found = {shard: last_id_of(each) for shard, each in self._kept.items()}
        return {
            shard: Extent(end=0 if last is None else self._sequence_of(last, shard) + 1)
            for shard, last in found.items()
        }

    def _subscribe(self) -> None:
        """Create missing subscriptions of all partitions, from the earliest message on."""
        cluster = self._open_cluster()
        for key in self.server.url.stream_keys:
            for number, topic in enumerate(cluster.partitions(key)):
                if shard_name(key, number) not in self._kept:
                    edge = pulsar.InitialPosition.Earliest
                    consumer = cluster.subscribe(topic, self.group, initial_position=edge)
                    self._kept[shard_name(key, number)] = consumer

    def cut(self, shard: str, start: int, end: int, *, size: tuple[int, int], parts: int) -> Cut:
        found: list[int] = []
        left = size[1]
        for items in self.read(shard, start, end):
            for item in items:
                assert isinstance(item, Message), "others have no place"
                left -= item.size
                if (left < 0 and found) or len(found) >= min(size[0], _CUT_MAX):
                    return cut_of(found, parts)
                found.append(item.sequence)
        return cut_of(found, parts)

    def read(self, shard: str, start: int, end: int) -> Iterator[list[Message | BadRecord]]:
        key, number = stream_in(shard)
        with self._away():
            cluster = self._open_cluster()
            topic = cluster.partitions(key, number + 1)[number]
            reader = cluster.open_reader(topic, start, queue_size=_BATCH)
        try:
            behind = start
            while behind < end:
                with self._away():
                    batch = self._some(reader, (key, number), behind, end)
                if not batch:
                    return
                yield list(batch)
                behind = batch[-1].sequence + 1
        finally:
            with self._away():
                reader.close()

    def _some(
        self, reader: Any, stream: tuple[StreamKey, int], start: int, end: int
    ) -> list[Message]:
        """Return messages of a range, in order, or an empty list at its end."""
        batch: list[Message] = []
        while len(batch) < _BATCH and reader.has_message_available():
            found = reader.read_next(_CONNECT_MS)
            sequence = self._sequence_of(found.message_id(), stream[0])
            if sequence >= end:
                break
            if sequence >= start:
                batch.append(message_of(found, stream, sequence))
                start = sequence + 1
                if start >= end:
                    break
        return batch

    def _sequence_of(self, message_id: Any, key: str) -> int:
        return sequence_of(message_id, str(self.server.url.streamer), key)

    def keep(self, positions: Mapping[str, int]) -> None:
        """Acknowledge read messages up to the entry of the next one, so Pulsar drops them."""
        try:
            for shard, position in positions.items():
                if (kept := self._kept.get(shard)) is not None:
                    kept.acknowledge_cumulative(entry_before(position))
        except pulsar.PulsarException:
            # Whatever is wrong, the positions that count are in the manifest.
            self._next_look_s = 0.0

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        self._kept, self._next_look_s = {}, 0.0
        if cluster is not None and self._pid == os.getpid():
            cluster.close()

    def _open_cluster(self) -> Cluster:
        if self._cluster is None:
            options = self.server.options(connect_timeout_ms=_CONNECT_MS)
            cluster = Cluster(self.server.url.streamer, options)
            cluster.open()
            self._cluster, self._pid = cluster, os.getpid()
        return self._cluster

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Close resources after an error, which means that the cluster is unavailable."""
        try:
            yield
        except pulsar.PulsarException as error:
            self.close()
            raise AwayError(str(error)) from None
        except StreamError as error:
            self.close()
            if error.code == POSITION_UNUSABLE.code:
                raise
            raise AwayError(error.summary) from None


def _server_of(
    spec: ConnectorSpec, url: StreamUrl, options: PulsarSourceOptions | PulsarSinkOptions
) -> Server:
    """Return how a cluster is reached."""
    server = Server.of(spec, url, options, tls_protocol=TLS_PROTOCOL)
    if _NAMESPACE.fullmatch(options.namespace) is None:
        problem = f"it is {options.namespace!r}"
        raise option_error(spec, "namespace", problem, "write TENANT/NAMESPACE")
    return server
