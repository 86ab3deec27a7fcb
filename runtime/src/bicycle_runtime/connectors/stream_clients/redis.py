"""Redis streams as sources and sinks; an epoch is a transaction with its number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import msgspec
from redis.exceptions import RedisError, ResponseError, WatchError

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.stream_clients.addressing import Server, url_of
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
from bicycle_runtime.connectors.stream_clients.sink import StreamSink
from bicycle_runtime.connectors.stream_clients.source import StreamSource
from bicycle_runtime.contract import BadRecord
from bicycle_sdk.stream_options import (
    PublishedOptions,
    RedisSinkOptions,
    RedisSourceOptions,
    StreamSourceOptions,
)
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import ConnectionLostError, StreamError
from bicycle_streams.messages import Message
from bicycle_streams.redis.connection import LOST, Connection
from bicycle_streams.redis.ids import SEQUENCE_MAX, Timestamps, id_of, sequence_behind, shard_of
from bicycle_streams.redis.sending import add_command, script_command
from bicycle_streams.redis.shards import entry_message

_PROTOCOLS = ("redis", "rediss")
_BATCH = 1_000
_CUT_MAX = 50_000
_CONNECT_MS, _ANSWER_MS = 5_000, 25_000
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
        server = Server.of(self.spec, url, options, tls_protocol="rediss")
        return RedisInput(server, options.group)


class RedisStreamSink(StreamSink):
    """Writes one stream of a server."""

    options_class = RedisSinkOptions

    def make_output(self, options: PublishedOptions) -> StreamOutput:
        """Return the output."""
        assert isinstance(options, RedisSinkOptions), "as options_class says"
        url = url_of(self.spec, options.address, _PROTOCOLS, is_one=True)
        return RedisOutput(Server.of(self.spec, url, options, tls_protocol="rediss"))


class _Client:
    """A connection to a server, opened at the first use, without patience."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._opened: Connection | None = None

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            options = self._server.options(
                connect_timeout_ms=_CONNECT_MS, block_ms=_ANSWER_MS, retry_timeout_ms=0
            )
            self._opened = Connection(self._server.url.streamer, options)
        return self._opened

    def close(self) -> None:
        """Release the connection; the next use opens another one."""
        if self._opened is not None:
            self._opened.close()


class RedisInput(_Client):
    """Streams of a Redis server.

    Args:
        server: The server.
        group: The group whose position shows the progress; empty for none.
    """

    def __init__(self, server: Server, group: str) -> None:
        super().__init__(server)
        self._group = group
        self._keys = server.url.stream_keys
        self._timestamps: Timestamps = server.words["timestamps"]
        self._shards: dict[bytes, tuple[StreamKey, int]] = {}
        self._next_look_s = 0.0

    def __reduce__(self) -> Any:
        return RedisInput, (self._server, self._group)

    def extents(self, now_s: float) -> Mapping[str, Extent]:
        with self._away():
            if now_s >= self._next_look_s:
                self._shards = self._connection.shards(self._keys)
                self._next_look_s = now_s + _LOOK_S
            found = {name.decode(): self._extent_of(name) for name in self._shards}
        return {name: extent for name, extent in found.items() if extent is not None}

    def _extent_of(self, name: bytes) -> Extent | None:
        try:
            facts = self._connection.facts(name)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                kind = self._connection.call("TYPE", name).decode()
                raise KeyTypeError(name.decode(), kind) from None
            raise AwayError(f"{name.decode()}: {error}") from None
        if facts is None:
            return None
        first, last = facts["first-entry"], facts["last-entry"]
        return Extent(
            end=sequence_behind(last[0], self._timestamps) if last else 0,
            first=sequence_behind(first[0], self._timestamps) - 1 if first else 0,
            last_end=sequence_behind(facts["last-generated-id"], self._timestamps),
            count=facts["length"],
            added_count=facts.get("entries-added"),  # Redis returns it from version 7 on.
            deletion=facts.get("max-deleted-entry-id", b"").decode(),
        )

    def cut(self, shard: str, start: int, end: int, *, size: tuple[int, int], parts: int) -> Cut:
        words = (*self._range(start, end), min(size[0], _CUT_MAX), size[1])
        with self._away():
            ids = self._connection.call("EVAL", _IDS, 1, shard, *words)
        behind = [sequence_behind(entry_id, self._timestamps) for entry_id in ids]
        return cut_of([sequence - 1 for sequence in behind], parts)

    def _range(self, start: int, end: int) -> tuple[bytes, bytes]:
        """Return the ids of a range as ``XRANGE`` takes them, without the end."""
        last = b"+" if end >= SEQUENCE_MAX else b"(" + id_of(end, self._timestamps)
        return id_of(start, self._timestamps), last

    def read(self, shard: str, start: int, end: int) -> Iterator[list[Message | BadRecord]]:
        name = shard.encode()
        [key] = [key for key in self._keys if shard_of(name, key) is not None]
        shard_id = shard_of(name, key) or 0
        words = (self._server.words["message_field"].encode(), str(self._server.url.streamer))
        retry_ms = self._server.words["retry_timeout_ms"]
        first, last = self._range(start, end)
        entries: list[Any] = []
        while not entries or len(entries) == _BATCH:
            with self._away():
                command = ("XRANGE", name, first, last, "COUNT", _BATCH)
                entries = self._connection.call(*command, retry_ms=retry_ms)
            if not entries:
                return
            items: list[Message | BadRecord] = []
            for entry in entries:
                found = entry_message(entry, (key, shard_id), *words, timestamps=self._timestamps)
                if isinstance(found, StreamError):
                    items.append(_bad_record(entry, found, self._timestamps))
                elif found is not None:
                    items.append(found)
            yield items
            first = b"(" + entries[-1][0]

    def keep(self, positions: Mapping[str, int]) -> None:
        """Move the group, created if missing; an unavailable server is updated later."""
        try:
            for shard, position in positions.items() if self._group else ():
                last_id = id_of(position - 1, self._timestamps)
                self._connection.move_group(shard, self._group, last_id)
        except (RedisError, StreamError):
            self.close()  # Whatever is wrong, the positions that count are in the manifest.

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Close the connection after an error, which means that the server is unavailable."""
        try:
            yield
            return
        except StreamError as error:
            reason = error.facts.get("reason", error.summary)
        except RedisError as error:  # The next look at the extents finds a key of another type.
            reason = str(error)
        self.close()
        raise AwayError(reason)


def _bad_record(entry: Any, error: StreamError, timestamps: Timestamps) -> BadRecord:
    """Return an entry that cannot be used; its fields are shown as JSON."""
    entry_id, fields = entry
    texts = [text.decode(errors="backslashreplace") for text in fields or ()]
    raw = msgspec.json.encode(dict(zip(texts[::2], texts[1::2], strict=True)))
    # An id without a sequence counts as the last one before the next id with a sequence.
    return BadRecord(
        offset=sequence_behind(entry_id, timestamps) - 1, raw=raw, reason=error.summary
    )


class RedisOutput(_Client):
    """A stream of Redis; an epoch is one transaction that also sets its number."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._key = server.url.stream_key

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
            return self._connection.call(*words)

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Write an epoch.

        1. The number is watched, and shows whether the epoch is written.
        2. The messages and the number are put into one transaction.
        3. The server takes all of it, or nothing where the number has changed.
        4. A key that is no stream any more takes no message: the number is unchanged.
        """
        self.check()
        with self._errors(), self._connection.redis.pipeline(transaction=True) as pipeline:
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
        options = self._connection.options
        if options.timestamps == "ms":
            for payload in payloads:
                pipeline.execute_command(*add_command(options, self._key, None, payload))
            return
        while batch := [(None, payload) for payload in islice(payloads, _BATCH)]:
            pipeline.execute_command(*script_command(options, self._key, batch))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Close the connection after an error, and convert the error."""
        try:
            yield
            return
        except (*LOST, WatchError) as error:
            found: Exception = AwayError(str(error))
        except ConnectionLostError as error:
            found = AwayError(error.facts["reason"])
        except StreamError as error:
            found = RefusedError(error.summary)
        except RedisError as error:
            found = RefusedError(str(error))
        self.close()
        raise found

    def _marker_name(self, run: str) -> str:
        """Return the key of the epoch number, in the stream's slot of a cluster."""
        if self._connection.is_cluster:
            return f"bicycle:epoch:{{{self._key}}}:{run}"
        return f"bicycle:epoch:{run}"


def _of_messages(answer: Any) -> list[Any]:
    """Return the responses for single messages from a script's list."""
    return answer if isinstance(answer, list) else [answer]
