"""The streamer of a Redis server, and its administration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from redis.exceptions import ResponseError

from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.admin import GroupInfo, ShardInfo, StreamAdmin, StreamInfo
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Capabilities, Streamer
from bicycle_streams.errors import (
    ADMIN_REFUSED,
    FEWER_SHARDS,
    STREAM_EXISTS,
    STREAM_UNKNOWN,
    StreamConnectError,
)
from bicycle_streams.options import Durability, StreamerOptions
from bicycle_streams.producing import Sender
from bicycle_streams.redis.connection import PORT, Connection, facts_of
from bicycle_streams.redis.consuming import RedisConsumer
from bicycle_streams.redis.ids import FIRST, Timestamps, redis_key, sequence_of, stream_of
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.redis.sending import RedisSender

T = TypeVar("T")
_COUNTED_MAX = 10_000
_DRAFT_GROUP = "bicycle:create"
_SETTINGS = {"maxlen": "MAXLEN", "minid": "MINID"}  # The strategies of XTRIM.
# The number of entries after an id, up to a maximum; -1: more.
_BEHIND = """
local found, at, most = 0, '(' .. ARGV[1], tonumber(ARGV[2])
while found <= most do
  local entries = redis.call('XRANGE', KEYS[1], at, '+', 'COUNT', 500)
  if #entries == 0 then return found end
  found = found + #entries
  at = '(' .. entries[#entries][1]
end
return -1
"""


class RedisAdmin(StreamAdmin):
    """The streams of a server; settings are options of ``XTRIM``, and trim at once.

    Args:
        connection: The server.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.address)
        self._connection = connection

    async def list_streams(self) -> list[StreamKey]:
        names = await self._run("*", self._connection.names, "*", action="list")
        return sorted({found[0] for found in map(stream_of, names) if found})

    async def describe(self, key: StreamKey) -> StreamInfo:
        form = self._connection.options.timestamps
        infos: dict[int, list[dict[str, Any]]] = {}
        groups = dict[str, tuple[int, dict[int, int | None]]]()
        for name, shard_id in (await self._known_shards(key)).items():
            info = facts_of(await self._ask(key, "XINFO", "STREAM", name))
            infos.setdefault(shard_id, []).append(info)
            for facts in map(facts_of, await self._ask(key, "XINFO", "GROUPS", name)):
                count, lags = groups.get(facts["name"].decode(), (0, {}))
                both = (lags.get(shard_id, 0), await self._lag(key, name, info, facts))
                lags[shard_id] = None if None in both else sum(filter(None, both))
                # Each shard has a group of the same name, and mostly the same members.
                groups[facts["name"].decode()] = (max(count, facts["consumers"]), lags)
        return StreamInfo(
            key=key,
            shards=tuple(_shard_info(*each, form) for each in sorted(infos.items())),
            groups=tuple(
                GroupInfo(name=name, consumer_count=count, lag_by_shard=lags)
                for name, (count, lags) in sorted(groups.items())
            ),
        )

    async def create(
        self, key: StreamKey, *, shard_count: int, settings: Mapping[str, str]
    ) -> None:
        if shards := await self._shards(key):
            shard_count = len(set(shards.values()))
            raise STREAM_EXISTS(address=self.address, key=key, shard_count=shard_count)
        self._trims(key, settings, "create")
        await self._make(key, range(shard_count))

    async def delete(self, key: StreamKey) -> None:
        for name in await self._known_shards(key):
            await self._ask(key, "DEL", name, action="delete")

    async def alter(
        self, key: StreamKey, *, shard_count: int | None, settings: Mapping[str, str]
    ) -> None:
        names = await self._known_shards(key)
        shards = set(names.values())
        if shard_count is not None and shard_count < len(shards):
            raise FEWER_SHARDS(
                address=self.address, key=key, shard_count=len(shards), wanted=shard_count
            )
        trims = self._trims(key, settings, "alter")
        for name in names:
            for word, value in trims.items():
                await self._ask(key, "XTRIM", name, word, value, action="alter")
        await self._make(key, set(range(shard_count or 0)) - shards)

    async def _make(self, key: StreamKey, shard_ids: Iterable[int]) -> None:
        """Make the keys of shards: a stream without entries comes to be with a group."""
        for shard_id in shard_ids:
            name = redis_key(key, shard_id)
            make = ("XGROUP", "CREATE", name, _DRAFT_GROUP, "$", "MKSTREAM")
            await self._ask(key, *make, action="create")
            await self._ask(key, "XGROUP", "DESTROY", name, _DRAFT_GROUP, action="create")

    def _trims(self, key: StreamKey, settings: Mapping[str, str], action: str) -> dict[str, str]:
        """Return the trim options; the server checks the values."""
        if strange := sorted(settings.keys() - _SETTINGS.keys()):
            known = " and ".join(_SETTINGS)
            reason = f"unknown setting {strange[0]!r}; known are {known}"
            raise ADMIN_REFUSED(address=self.address, action=action, key=key, reason=reason)
        if settings and action == "create":
            reason = (
                "settings trim existing messages, but a new stream has no messages: set "
                "max_length of its producers"
            )
            raise ADMIN_REFUSED(address=self.address, action=action, key=key, reason=reason)
        return {_SETTINGS[name]: value for name, value in settings.items()}

    async def _known_shards(self, key: StreamKey) -> dict[bytes, int]:
        """Return the shards of a stream that must exist, by their keys."""
        if found := await self._shards(key):
            return found
        known = ", ".join(await self.list_streams()) or "none"
        raise STREAM_UNKNOWN(address=self.address, key=key, known_text=known)

    async def _shards(self, key: StreamKey) -> dict[bytes, int]:
        found = await self._run(key, self._connection.shards, [key])
        kind = await self._ask(key, "TYPE", key)
        if kind not in (b"none", b"stream"):
            raise ADMIN_REFUSED(
                address=self.address,
                action="know",
                key=key,
                reason=f"the key is a {kind.decode()}, not a stream",
            )
        if kind == b"none":
            found.pop(key.encode())
        return {name: shard_id for name, (_, shard_id) in found.items()}

    async def _lag(
        self, key: StreamKey, name: bytes, info: dict[str, Any], group: dict[str, Any]
    ) -> int | None:
        """Return a group's lag: undelivered entries, and undone ones."""
        waiting: int | None = group.get("lag")
        if waiting is None:
            last_id = group["last-delivered-id"]
            try:
                waiting = await self._ask(key, "EVAL", _BEHIND, 1, name, last_id, _COUNTED_MAX)
            except StreamConnectError:
                return None  # This user may not run scripts.
            if waiting == -1:
                return info["length"] if last_id == FIRST else None
        assert waiting is not None, "the script gives a number"
        return waiting + int(group["pending"])

    async def _ask(self, key: StreamKey, *words: Any, action: str = "describe") -> Any:
        return await self._run(key, self._connection.call, *words, action=action)

    async def _run(
        self, key: str, call: Callable[..., T], *words: Any, action: str = "describe"
    ) -> T:
        """Return the result of a call on a thread.

        Raises:
            ADMIN_REFUSED: the server rejected it.
        """
        try:
            return await asyncio.to_thread(call, *words)
        except ResponseError as error:
            raise ADMIN_REFUSED(
                address=self.address, action=action, key=key, reason=str(error)
            ) from None


def _shard_info(shard_id: int, infos: list[dict[str, Any]], timestamps: Timestamps) -> ShardInfo:
    """Return the numbers of a shard; shard 0 may have two keys."""
    message_count = sum(info["length"] for info in infos)
    ends = [(info["first-entry"], info["last-entry"]) for info in infos if info["last-entry"]]
    firsts = [_position_of(first[0], timestamps)[1] for first, _ in ends]
    lasts = [_position_of(last[0], timestamps) for _, last in ends]
    return ShardInfo(
        shard_id=shard_id,
        message_count=message_count,
        first_sequence=min((each for each in firsts if each is not None), default=None),
        last_sequence=max((each for _, each in lasts if each is not None), default=None),
        last_timestamp_ms=max((each for each, _ in lasts if each is not None), default=None),
    )


def _position_of(entry_id: bytes, timestamps: Timestamps) -> tuple[int | None, int | None]:
    """Return milliseconds and sequence of an entry, or None for an unusable id."""
    try:
        return sequence_of(entry_id, timestamps)
    except ValueError:
        return None, None


class RedisStreamer(Streamer):
    """Streams of one Redis server.

    Args:
        uri: ``redis://host:port``, or ``rediss://`` with TLS.
        options: ``RedisOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        is_replayable=True,
        has_shards=True,
    )
    options_type: ClassVar[type[StreamerOptions]] = RedisOptions
    default_port: ClassVar[int | None] = PORT
    options: RedisOptions

    def __init__(self, uri: StreamerUri, options: RedisOptions) -> None:
        super().__init__(uri, options)
        self._connection = Connection(uri, options)

    @property
    def identity(self) -> Hashable:
        return super().identity, self.options.db

    async def _open(self) -> None:
        await asyncio.to_thread(self._connection.open)

    async def _close(self) -> None:
        self._connection.is_stopping.set()
        await asyncio.to_thread(self._connection.close)

    def admin(self) -> StreamAdmin:
        return RedisAdmin(self._connection)

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        return RedisSender(self._connection, durability, shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return await RedisConsumer.open(self._connection, subscription)
