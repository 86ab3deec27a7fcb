"""The sender of the Redis backend: a queue of messages, sent in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from redis.exceptions import NoPermissionError, RedisError

from bicycle_sdk.clock import SystemClock
from bicycle_streams.errors import TARGET_UNUSABLE, StreamError
from bicycle_streams.messages import Receipt
from bicycle_streams.options import Durability
from bicycle_streams.queued_sending import Pending, QueuedSender
from bicycle_streams.redis.connection import LOST, Connection, side_by_side
from bicycle_streams.redis.errors import ID_UNUSABLE, REFUSED
from bicycle_streams.redis.ids import NS_PER_MS, SEQUENCE_MAX, id_of, redis_key, sequence_of
from bicycle_streams.redis.options import RedisOptions

_SCRIPT_BYTES_MAX = 8 << 20
# Adds entries to one stream, and answers for each: an id, or why it was refused.
_ADD = """
local answers, field, length = {}, ARGV[1], ARGV[2]
for at = 3, #ARGV, 2 do
  if length == '' then
    answers[#answers + 1] = redis.pcall('XADD', KEYS[1], ARGV[at], field, ARGV[at + 1])
  else
    answers[#answers + 1] = redis.pcall(
      'XADD', KEYS[1], 'MAXLEN', '~', length, ARGV[at], field, ARGV[at + 1])
  end
end
return answers
"""

# Adds entries with ids in nanoseconds to one stream: each behind the last, within its millisecond
# where it was given one. Times are milliseconds and the rest, since numbers of Lua have 53 bits.
_ADD_NS = """
local answers, field, length = {}, ARGV[1], ARGV[2]
local top_ms, top_rest = 0, 0
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
for at = 1, #info, 2 do
  if info[at] == 'last-generated-id' then
    local time = string.rep('0', 7) .. string.match(info[at + 1], '%d+')
    top_ms, top_rest = tonumber(string.sub(time, 1, -7)), tonumber(string.sub(time, -6))
  end
end
for at = 3, #ARGV, 3 do
  local ms, rest = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local is_given = not rest
  rest = rest or 0
  if (ms == top_ms and rest <= top_rest) or (ms < top_ms and not is_given) then
    ms, rest = top_ms, top_rest + 1
    if rest == 1000000 then
      if is_given then rest = 0 else ms, rest = ms + 1, 0 end
    end
  end
  local id = string.format('%.0f%06d-0', ms, rest)
  local answer
  if length == '' then
    answer = redis.pcall('XADD', KEYS[1], id, field, ARGV[at + 2])
  else
    answer = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', length, id, field, ARGV[at + 2])
  end
  if type(answer) == 'string' then top_ms, top_rest = ms, rest end
  answers[#answers + 1] = answer
end
return answers
"""


class RedisSender(QueuedSender):
    """A sender of batches; unanswered messages are sent again unless it may duplicate.

    Args:
        connection: The server.
        durability: ``at-most-once`` sends nothing twice.
        shard_count: Over how many shards messages without one go, in turns.
    """

    def __init__(self, connection: Connection, durability: Durability, shard_count: int) -> None:
        options = connection.options
        super().__init__(
            connection.address, options, batch_max=options.batch_messages, shard_count=shard_count
        )
        self._connection = connection
        self._retry_ms = 0 if durability == "at-most-once" else None
        last_id = id_of(SEQUENCE_MAX, options.timestamps)
        self._time_max_ms, _ = sequence_of(last_id, options.timestamps)
        self._has_scripts = True
        self._thread = ThreadPoolExecutor(1, f"producer of {connection.address}")

    def _begin(self, pending: Pending) -> None:
        """Refuse a time after which no entry of the stream would have a sequence."""
        time_ms, shard_id = pending.message.timestamp_ms, pending.shard[1]
        if time_ms is not None and time_ms > self._time_max_ms:
            raise TARGET_UNUSABLE(address=self.address, shard_id=shard_id, timestamp_ms=time_ms)

    async def _write(self, batch: list[Pending]) -> None:
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._thread, self._answers, batch)
        for pending, answer in zip(batch, answers, strict=True):
            self._settle(pending, answer)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._thread.shutdown(wait=False)

    def _settle(self, pending: Pending, answer: Any) -> None:
        """Process the server's response."""
        key = pending.message.stream_key
        if isinstance(answer, StreamError):  # Later messages may find the server again.
            self.refuse(pending, answer)
        elif isinstance(answer, RedisError):
            self.refuse(pending, REFUSED(address=self.address, key=key, reason=str(answer)))
        else:
            try:
                time_ms, sequence = sequence_of(answer, self._connection.options.timestamps)
                pending.receipt = Receipt(*pending.shard, sequence, time_ms)
            except ValueError:
                error = ID_UNUSABLE(address=self.address, key=key, id=answer.decode())
                self.refuse(pending, error)

    def _answers(self, batch: list[Pending]) -> list[Any]:
        """Return an answer or an error for each message; on the thread."""
        if not self._connection.is_cluster:
            return self._answers_of(batch)
        # Each stream may be on another node, and accepted messages are not sent again.
        parts = _by_name(batch).values()
        found = side_by_side(
            [partial(self._answers_of, [batch[number] for number in part]) for part in parts]
        )
        return _in_order(parts, found, len(batch))

    def _answers_of(self, batch: list[Pending]) -> list[Any]:
        try:
            return self._connection.again(lambda: self._execute(batch), self._retry_ms)
        except StreamError as error:
            return [error] * len(batch)

    def _execute(self, batch: list[Pending]) -> list[Any]:
        """Return an answer for each message: one call for each stream, whatever it holds."""
        options = self._connection.options
        if options.timestamps == "ns":  # Only a script knows the last id.
            return self._by_script(batch)
        # A script holds all of it once more on the server.
        size_bytes = sum(len(pending.message.payload) for pending in batch)
        if self._has_scripts and size_bytes <= _SCRIPT_BYTES_MAX:
            try:
                return self._by_script(batch)
            except NoPermissionError:
                self._has_scripts = False  # This user may add entries, and not run scripts.
        return self._pipeline(
            add_command(options, redis_key(*pending.shard), *_entry_of(pending))
            for pending in batch
        )

    def _by_script(self, batch: list[Pending]) -> list[Any]:
        """Add the messages of each stream by one call of a script, a quarter of the price."""
        options = self._connection.options
        by_name = _by_name(batch)
        found = self._pipeline(
            script_command(options, name, (_entry_of(batch[number]) for number in numbers))
            for name, numbers in by_name.items()
        )
        for given in found:
            if isinstance(given, NoPermissionError) and options.timestamps != "ns":
                raise given
        return _in_order(by_name.values(), found, len(batch))

    def _pipeline(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return the responses; raise errors of lost connections that clients return."""
        pipeline = self._connection.redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, LOST):
                raise answer
        return answers


def _by_name(batch: list[Pending]) -> dict[bytes, list[int]]:
    """Return the indexes of messages by Redis stream."""
    found: dict[bytes, list[int]] = {}
    for number, pending in enumerate(batch):
        found.setdefault(redis_key(*pending.shard), []).append(number)
    return found


def _in_order(parts: Iterable[list[int]], found: Iterable[Any], count: int) -> list[Any]:
    """Return answers by index; an error of a part is the answer for all its messages."""
    answers: list[Any] = [None] * count
    for part, given in zip(parts, found, strict=True):
        if isinstance(given, BaseException) and not isinstance(given, StreamError | RedisError):
            raise given
        each = [given] * len(part) if isinstance(given, BaseException) else given
        for number, answer in zip(part, each, strict=True):
            answers[number] = answer
    return answers


def _entry_of(pending: Pending) -> tuple[int | None, bytes]:
    return pending.message.timestamp_ms, pending.message.payload


def add_command(
    options: RedisOptions, name: bytes | str, time_ms: int | None, payload: bytes
) -> tuple[Any, ...]:
    """Return the command that adds an entry whose id has milliseconds."""
    trim = () if options.max_length is None else ("MAXLEN", "~", options.max_length)
    return ("XADD", name, *trim, _entry_id(time_ms), options.message_field, payload)


def script_command(
    options: RedisOptions, name: bytes | str, entries: Iterable[tuple[int | None, bytes]]
) -> tuple[Any, ...]:
    """Return the command that adds entries to one stream; its response is a list.

    Args:
        options: Options of the backend.
        name: The Redis stream.
        entries: Time in ms, or None for the present time, and payload.
    """
    is_ns = options.timestamps == "ns"
    words: list[Any] = [options.message_field, options.max_length or ""]
    for time_ms, payload in entries:
        if not is_ns:
            words.append(_entry_id(time_ms))
        elif time_ms is None:
            words += divmod(SystemClock().now_ns(), NS_PER_MS)
        else:
            words += (time_ms, "")
        words.append(payload)
    return ("EVAL", _ADD_NS if is_ns else _ADD, 1, name, *words)


def _entry_id(time_ms: int | None) -> bytes:
    return b"*" if time_ms is None else b"%d-*" % time_ms
