"""Redis streams as sources and sinks; an epoch is a transaction with its number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import msgspec
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    ConnectionError,
    RedisError,
    ResponseError,
    TimeoutError,
    WatchError,
)
from redis.retry import Retry

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.stream_clients.addressing import address_error, check_tls, url_of
from bicycle_runtime.connectors.stream_clients.backends import (
    AwayError,
    Cut,
    Extent,
    KeyTypeError,
    RefusedError,
    StreamInput,
    StreamOutput,
    cut_of,
)
from bicycle_runtime.connectors.stream_clients.options import tls_options
from bicycle_runtime.connectors.stream_clients.sink import StreamSink
from bicycle_runtime.connectors.stream_clients.source import StreamSource
from bicycle_runtime.contract import BadRecord, ConnectorSpec
from bicycle_sdk.secrets import Secret
from bicycle_sdk.stream_options import (
    PublishedOptions,
    RedisSinkOptions,
    RedisSourceOptions,
    StreamSourceOptions,
)
from bicycle_streams.addresses import StreamKey, StreamUrl
from bicycle_streams.errors import StreamError, StreamUrlError
from bicycle_streams.messages import Message
from bicycle_streams.redis.connection import (
    LOST,
    PORT,
    facts_of,
    open_client,
    tls_words,
)
from bicycle_streams.redis.ids import SEQUENCE_MAX, Timestamps, id_of, sequence_behind, shard_of
from bicycle_streams.redis.sending import ADD_NS, time_now
from bicycle_streams.redis.shards import entry_message

__all__ = ["RedisStreamSink", "RedisStreamSource"]

_PROTOCOLS = ("redis", "rediss")
_BATCH = 1_000
_CUT_MAX = 50_000
_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0
_LOOK_S = 1.0  # Time between two looks for new shards.
# The ids of entries from one on, up to a number of them and of their bytes.
_IDS = """
local found, bytes, left = {}, 0, tonumber(ARGV[4])
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  for _, text in ipairs(entry[2]) do left = left - #text end
  if left < 0 and #found > 0 then break end
  found[#found + 1] = entry[1]
end
return found
"""


class RedisStreamSource(StreamSource):
    """Reads streams of a server, with all their shards."""

    options_class = RedisSourceOptions

    def make_input(self, options: StreamSourceOptions) -> StreamInput:
        """Return the input."""
        assert isinstance(options, RedisSourceOptions), "as options_class says"
        url = url_of(self.spec, options.address, _PROTOCOLS)
        return RedisInput(
            _server_of(self.spec, url, options),
            url.stream_keys,
            options.message_field,
            options.group,
            options.retry_timeout_ms,
            options.timestamps,
        )


class RedisStreamSink(StreamSink):
    """Writes one stream of a server."""

    options_class = RedisSinkOptions

    def make_output(self, options: PublishedOptions) -> StreamOutput:
        """Return the output."""
        assert isinstance(options, RedisSinkOptions), "as options_class says"
        url = url_of(self.spec, options.address, _PROTOCOLS, is_one=True)
        return RedisOutput(
            _server_of(self.spec, url, options),
            url.stream_key,
            message_field=options.message_field,
            max_length=options.max_length,
            timestamps=options.timestamps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisServer:
    """The connection to a server; picklable, without the password itself."""

    address: str
    nodes: tuple[tuple[str, int], ...]
    tls: Mapping[str, Any]
    db: int
    username: str | None
    secret: Secret | None

    def client(self, *, wait_ms: int) -> Any:
        """Return a client of the server or cluster, with a waiting time for outages.

        Raises:
            StreamUrlError: several nodes are named, and they are no cluster.
        """
        retries = int(wait_ms / 1_000 / _PAUSE_MAX_S) + 5 if wait_ms else 0
        words: dict[str, Any] = {
            "username": self.username or None,
            "password": None if self.secret is None else self.secret.reveal(),
            "protocol": 2,
            "socket_connect_timeout": 5,
            "socket_timeout": 30,
            "retry": Retry(ExponentialBackoff(_PAUSE_MAX_S, _PAUSE_S), retries),
            **self.tls,
        }
        repeated = [ConnectionError, TimeoutError]
        return open_client(self.address, self.nodes, words, db=self.db, retry_on_error=repeated)


@dataclass(slots=True)
class RedisInput:
    """Streams of a Redis server."""

    server: RedisServer
    keys: tuple[StreamKey, ...]
    message_field: str
    group: str
    wait_ms: int
    timestamps: Timestamps
    _client: Any = None
    _names: set[bytes] = field(default_factory=set)
    _next_look_s: float = 0.0

    def __getstate__(self) -> Any:
        words = (self.message_field, self.group, self.wait_ms, self.timestamps)
        return (self.server, self.keys, *words)

    def __setstate__(self, state: Any) -> None:
        self.server, self.keys, self.message_field, self.group, self.wait_ms, self.timestamps = (
            state
        )
        self._client, self._names, self._next_look_s = None, set(), 0.0

    def extents(self, now_s: float) -> Mapping[str, Extent]:
        try:
            if now_s >= self._next_look_s:
                self._names = {key.encode() for key in self.keys} | set(self._shards())
                self._next_look_s = now_s + _LOOK_S
            return {
                name.decode(): extent
                for name in sorted(self._names)
                if (extent := self._extent_of(name)) is not None
            }
        except LOST as error:
            self.close()
            raise AwayError(str(error)) from None

    def _shards(self) -> Iterator[bytes]:
        for key in self.keys:
            for name in self._open().scan_iter(f"{key}:*", 1_000, _type="stream"):
                if shard_of(name, key) is not None:
                    yield name

    def _extent_of(self, name: bytes) -> Extent | None:
        try:
            info = self._call("XINFO", "STREAM", name)
        except ResponseError as error:
            if "no such key" in str(error):
                return None
            if "WRONGTYPE" in str(error):
                raise KeyTypeError(name.decode(), self._call("TYPE", name).decode()) from None
            raise AwayError(f"{name.decode()}: {error}") from None  # A right is missing.
        facts = facts_of(info)
        first, last = facts["first-entry"], facts["last-entry"]
        return Extent(
            end=sequence_behind(last[0], self.timestamps) if last else 0,
            first=sequence_behind(first[0], self.timestamps) - 1 if first else 0,
            last_end=sequence_behind(facts["last-generated-id"], self.timestamps),
            count=facts["length"],
            added_count=facts.get("entries-added"),  # Redis returns it from version 7 on.
            deletion=facts.get("max-deleted-entry-id", b"").decode(),
        )

    def cut(self, shard: str, start: int, end: int, *, size: tuple[int, int], parts: int) -> Cut:
        count = min(size[0], _CUT_MAX)
        try:
            ids = self._call("EVAL", _IDS, 1, shard, *self._range(start, end), count, size[1])
        except LOST as error:
            self.close()
            raise AwayError(str(error)) from None
        behind = [sequence_behind(entry_id, self.timestamps) for entry_id in ids]
        return cut_of([sequence - 1 for sequence in behind], parts)

    def _range(self, start: int, end: int) -> tuple[bytes, bytes]:
        """Return the ids of a range as ``XRANGE`` takes them, without the end."""
        last = b"+" if end >= SEQUENCE_MAX else b"(" + id_of(end, self.timestamps)
        return id_of(start, self.timestamps), last

    def read(self, shard: str, start: int, end: int) -> Iterator[list[Message | BadRecord]]:
        name = shard.encode()
        [key] = [key for key in self.keys if shard_of(name, key) is not None]
        shard_id = shard_of(name, key) or 0
        words = (self.message_field.encode(), self.server.address)
        first, last = self._range(start, end)
        entries: list[Any] = []
        while not entries or len(entries) == _BATCH:
            try:
                entries = self._call("XRANGE", name, first, last, "COUNT", _BATCH, waits=True)
            except LOST as error:
                self.close()
                raise AwayError(str(error)) from None
            if not entries:
                return
            items: list[Message | BadRecord] = []
            for entry in entries:
                found = entry_message(entry, (key, shard_id), *words, timestamps=self.timestamps)
                if isinstance(found, StreamError):
                    items.append(_bad_record(entry, found, self.timestamps))
                elif found is not None:
                    items.append(found)
            yield items
            first = b"(" + entries[-1][0]

    def keep(self, positions: Mapping[str, int]) -> None:
        """Move the group, created if missing; an unavailable server is updated later."""
        try:
            for shard, position in positions.items() if self.group else ():
                last_id = id_of(position - 1, self.timestamps)
                try:
                    self._call("XGROUP", "SETID", shard, self.group, last_id)
                except ResponseError:
                    self._call("XGROUP", "CREATE", shard, self.group, last_id, "MKSTREAM")
        except RedisError:
            self.close()  # Whatever is wrong, the positions that count are in the manifest.

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, *words: Any, waits: bool = False) -> Any:
        return self._open(waits=waits).execute_command(*words)

    def _open(self, *, waits: bool = False) -> Any:
        if self._client is None:
            self._client = self.server.client(wait_ms=self.wait_ms if waits else 0)
        return self._client


def _bad_record(entry: Any, error: StreamError, timestamps: Timestamps) -> BadRecord:
    """Return an entry that cannot be used; its fields are shown as JSON."""
    entry_id, fields = entry
    texts = [text.decode(errors="backslashreplace") for text in fields or ()]
    raw = msgspec.json.encode(dict(zip(texts[::2], texts[1::2], strict=True)))
    # An id without a sequence counts as the last one before the next id with a sequence.
    return BadRecord(
        offset=sequence_behind(entry_id, timestamps) - 1, raw=raw, reason=error.summary
    )


class RedisOutput:
    """A stream of Redis; an epoch is one transaction that also sets its number.

    Args:
        server: The server.
        key: The stream.
        message_field: The field with the payload.
        max_length: About how many messages are kept; None: all.
        timestamps: The unit of the times in ids.
    """

    def __init__(
        self,
        server: RedisServer,
        key: StreamKey,
        *,
        message_field: str,
        max_length: int | None,
        timestamps: Timestamps,
    ) -> None:
        self._server = server
        self._key = key
        self._field = message_field
        self._max_length = max_length
        self._is_ns = timestamps == "ns"
        self._client: Any = None

    def open(self, now_ms: int) -> None:
        """Check the server: the first message creates the stream."""
        self.check()

    def check(self) -> None:
        """Look whether the server answers, and the key is a stream if it exists."""
        kind = self._ask("TYPE", self._key)
        if kind not in (b"stream", b"none"):
            raise RefusedError(f"the key {self._key!r} is a {kind.decode()}")

    def written(self, run: str) -> int | None:
        found = self._ask("GET", self._marker_name(run))
        return None if found is None else int(found)

    def _ask(self, *words: Any) -> Any:
        with self._errors():
            return self._open().execute_command(*words)

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Write an epoch.

        1. The number is watched, and shows whether the epoch is written.
        2. The messages and the number are put into one transaction.
        3. The server takes all of it, or nothing where the number has changed.
        4. A key that is no stream any more takes no message: the number is unchanged.
        """
        self.check()
        with self._errors(), self._open().pipeline(transaction=True) as pipeline:
            # 1. The number is watched, and shows whether the epoch is written.
            fault_point("transaction_begun")
            marker = self._marker_name(run)
            pipeline.watch(marker)
            found = pipeline.execute_command("GET", marker)
            if found is not None and int(found) >= epoch:
                return
            # 2. The messages and the number are put into one transaction.
            pipeline.multi()
            self._add(pipeline, payloads)
            fault_point("transaction_produced")
            pipeline.execute_command("SET", marker, epoch)
            fault_point("transaction_marked")
            # 3. The server takes all of it, or nothing where the number has changed.
            *answers, marked = pipeline.execute(raise_on_error=False)
            # 4. A key that is no stream any more takes no message: the number is unchanged.
            taken = list(chain.from_iterable(map(_of_messages, answers)))
            errors = [each for each in taken if isinstance(each, RedisError)]
            if errors:
                if len(errors) == len(taken):
                    self._ask(*(("DEL", marker) if found is None else ("SET", marker, found)))
                raise errors[0]
            if isinstance(marked, RedisError):
                raise marked
        fault_point("transaction_committed")

    def _add(self, pipeline: Any, payloads: Iterator[bytes]) -> None:
        """Add messages to a transaction; with nanoseconds, a script sets their ids."""
        if not self._is_ns:
            trim = () if self._max_length is None else ("MAXLEN", "~", self._max_length)
            for payload in payloads:
                pipeline.execute_command("XADD", self._key, *trim, "*", self._field, payload)
            return
        while batch := list(islice(payloads, _BATCH)):
            words = [word for payload in batch for word in (*time_now(), payload)]
            head = (self._field, self._max_length or "")
            pipeline.execute_command("EVAL", ADD_NS, 1, self._key, *head, *words)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Close the connection after an error, and convert the error."""
        try:
            yield
        except (*LOST, WatchError) as error:
            self.close()
            raise AwayError(str(error)) from None
        except StreamUrlError as error:  # Several nodes, and no cluster.
            raise RefusedError(error.summary) from None
        except RedisError as error:
            self.close()
            raise RefusedError(str(error)) from None

    def _open(self) -> Any:
        if self._client is None:
            self._client = self._server.client(wait_ms=0)
        return self._client

    def _marker_name(self, run: str) -> str:
        """Return the key of the epoch number, in the stream's slot of a cluster."""
        if isinstance(self._open(), RedisCluster):
            return f"bicycle:epoch:{{{self._key}}}:{run}"
        return f"bicycle:epoch:{run}"

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _of_messages(answer: Any) -> list[Any]:
    """Return the responses for single messages from a script's list."""
    return answer if isinstance(answer, list) else [answer]


def _server_of(
    spec: ConnectorSpec, url: StreamUrl, options: RedisSourceOptions | RedisSinkOptions
) -> RedisServer:
    """Return how a server of Redis is reached."""
    try:
        nodes = tuple(url.streamer.hosts(PORT))
    except StreamUrlError as error:
        raise address_error(spec, options.address, error.facts["problem"]) from None
    check_tls(spec, options, url, "rediss")
    return RedisServer(
        address=str(url.streamer),
        nodes=nodes,
        tls=tls_words(url.streamer, tls_options(options), is_verified=True),
        db=options.db,
        username=options.username,
        secret=options.password,
    )
