"""The sender of the Redis backend: a queue of messages, sent in batches."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import NoPermissionError, RedisError

from bicycle_sdk.clock import SystemClock
from bicycle_streams.errors import ConnectionLostError, StreamError
from bicycle_streams.messages import OutgoingMessage, Receipt
from bicycle_streams.options import Durability
from bicycle_streams.queued_sending import Pending, QueuedSender
from bicycle_streams.redis.connection import LOST, Connection
from bicycle_streams.redis.errors import REFUSED
from bicycle_streams.redis.ids import NS_PER_MS, redis_key, sequence_of

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
ADD_NS = """
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
        self._repeats = durability != "at-most-once"
        self._has_scripts = True

    async def _write(self, batch: list[Pending]) -> None:
        try:
            answers = await self._answers(batch)
        except StreamError as error:  # Later messages may find the server again.
            answers = [error] * len(batch)
        for pending, answer in zip(batch, answers, strict=True):
            self._settle(pending, answer)

    def _settle(self, pending: Pending, answer: Any) -> None:
        """Process the server's response."""
        if isinstance(answer, StreamError):
            self.refuse(pending, answer)
        elif isinstance(answer, RedisError):
            key = pending.message.stream_key
            self.refuse(pending, REFUSED(address=self.address, key=key, reason=str(answer)))
        else:
            time_ms, sequence = sequence_of(answer, self._connection.options.timestamps)
            pending.receipt = Receipt(*pending.shard, sequence, time_ms)

    async def _answers(self, batch: list[Pending]) -> list[Any]:
        if not self._connection.is_cluster:
            return await self._answers_of(batch)
        # Each stream may be on another node, and accepted messages are not sent again.
        parts: dict[bytes, list[int]] = {}
        for number, pending in enumerate(batch):
            parts.setdefault(redis_key(*pending.shard), []).append(number)
        found = await asyncio.gather(
            *(self._answers_of([batch[number] for number in part]) for part in parts.values()),
            return_exceptions=True,
        )
        answers: list[Any] = [None] * len(batch)
        for part, given in zip(parts.values(), found, strict=True):
            if isinstance(given, BaseException) and not isinstance(given, StreamError):
                raise given
            each = [given] * len(part) if isinstance(given, StreamError) else given
            for number, answer in zip(part, each, strict=True):
                answers[number] = answer
        return answers

    async def _answers_of(self, batch: list[Pending]) -> list[Any]:
        if self._repeats:
            return await self._connection.again(lambda: self._execute(batch))
        try:
            return await self._execute(batch)
        except LOST as error:
            raise ConnectionLostError(address=self.address, reason=str(error)) from None

    async def _execute(self, batch: list[Pending]) -> list[Any]:
        """Return an answer for each message: one call for each stream, whatever it holds."""
        by_name: dict[bytes, list[int]] = {}
        for number, pending in enumerate(batch):
            by_name.setdefault(redis_key(*pending.shard), []).append(number)
        if self._connection.options.timestamps == "ns":  # Only a script knows the last id.
            return await self._by_script(batch, by_name)
        # A script holds all of it once more on the server.
        size_bytes = sum(len(pending.message.payload) for pending in batch)
        if self._has_scripts and size_bytes <= _SCRIPT_BYTES_MAX:
            try:
                return await self._by_script(batch, by_name)
            except NoPermissionError:
                self._has_scripts = False  # This user may add entries, and not run scripts.
        pipeline = self._connection.redis.pipeline(transaction=False)
        for pending in batch:
            pipeline.execute_command(*self._command(pending))
        return await _answers_of_pipeline(pipeline)

    async def _by_script(self, batch: list[Pending], by_name: dict[bytes, list[int]]) -> list[Any]:
        """Add the messages of each stream by one call of a script, a quarter of the price."""
        options = self._connection.options
        is_ns = options.timestamps == "ns"
        answers: list[Any] = [None] * len(batch)
        pipeline = self._connection.redis.pipeline(transaction=False)
        for name, numbers in by_name.items():
            words: list[Any] = [options.message_field, options.max_length or ""]
            for number in numbers:
                message = batch[number].message
                words += _entry_time(message) if is_ns else (_entry_id(message),)
                words.append(message.payload)
            pipeline.execute_command("EVAL", ADD_NS if is_ns else _ADD, 1, name, *words)
        found = await _answers_of_pipeline(pipeline)
        for numbers, given in zip(by_name.values(), found, strict=True):
            if isinstance(given, NoPermissionError) and not is_ns:
                raise given
            each = [given] * len(numbers) if isinstance(given, RedisError) else given
            for number, answer in zip(numbers, each, strict=True):
                answers[number] = answer
        return answers

    def _command(self, pending: Pending) -> tuple[Any, ...]:
        options = self._connection.options
        trim = () if options.max_length is None else ("MAXLEN", "~", options.max_length)
        name = redis_key(*pending.shard)
        message = pending.message
        return ("XADD", name, *trim, _entry_id(message), options.message_field, message.payload)


async def _answers_of_pipeline(pipeline: Any) -> list[Any]:
    """Return the responses; raise errors of lost connections that clients return."""
    answers: list[Any] = await pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, LOST):
            raise answer
    return answers


def _entry_time(message: OutgoingMessage) -> tuple[int, int | str]:
    """Return an entry's time as ms and ns, or without ns if it was set."""
    time_ms = message.timestamp_ms
    return time_now() if time_ms is None else (time_ms, "")


def time_now() -> tuple[int, int]:
    """Return the time as milliseconds and remaining nanoseconds, for ``ADD_NS``."""
    return divmod(SystemClock().now_ns(), NS_PER_MS)


def _entry_id(message: OutgoingMessage) -> bytes:
    time_ms = message.timestamp_ms
    return b"*" if time_ms is None else b"%d-*" % time_ms
