"""Messages and their positions: key, shard, sequence and time, for all backends.

A message is known by its stream, its shard and its sequence number. ``Message`` is made once per
message read and ``OutgoingMessage`` once per message sent, so each is a ``msgspec.Struct``:
0.15 µs against 0.9 µs for a frozen dataclass.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import MOMENT_UNREADABLE, PayloadEncodingError

if TYPE_CHECKING:
    from bicycle_sdk.formats import Codec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar repeats after this time; moments that ``datetime`` has no room for are moved by it.
_CYCLE_YEARS, _CYCLE_MS = 400, 146_097 * 86_400_000
_FAR = re.compile(r"([+-]\d{6,})(-.*)")


class Timestamp(int):
    """A moment in milliseconds since 1970-01-01 UTC, shown in ISO format.

    Years before 1 and after 9999, as damage to a file makes them, have a sign and six digits.

    Example:
        >>> str(Timestamp(1_694_767_177_437))
        '2023-09-15T08:39:37.437'
        >>> Timestamp.parse("2023-09-15T08:39:37.437") == 1_694_767_177_437
        True
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the moment that a text in ISO 8601 means; without a zone it is UTC.

        Raises:
            MOMENT_UNREADABLE: the text is no moment.
        """
        cycle, near = 0, text
        if found := _FAR.fullmatch(text):
            cycle, years = divmod(int(found[1]) - _EPOCH.year, _CYCLE_YEARS)
            near = f"{_EPOCH.year + years}{found[2]}"
        try:
            moment = datetime.fromisoformat(near)
        except ValueError as error:
            raise MOMENT_UNREADABLE(text=text, reason=str(error)) from None
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return cls((zoned - _EPOCH) // timedelta(milliseconds=1) + cycle * _CYCLE_MS)

    def __str__(self) -> str:
        try:
            return _text(_EPOCH + timedelta(milliseconds=int(self)))
        except OverflowError:
            cycle, rest = divmod(int(self), _CYCLE_MS)
        near = _EPOCH + timedelta(milliseconds=rest)
        return f"{near.year + cycle * _CYCLE_YEARS:+07d}{_text(near)[4:]}"

    def __repr__(self) -> str:
        return f"Timestamp({int(self)})"


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds")


class _Edge(enum.Enum):
    """The two positions that every stream has."""

    BEGINNING = "beginning"
    END = "end"


BEGINNING = _Edge.BEGINNING
END = _Edge.END


@dataclass(frozen=True, slots=True)
class At:
    """The position of the message with this sequence number: that message comes next."""

    sequence: int

    def __str__(self) -> str:
        return f"sequence {self.sequence}"


SeqPos = _Edge | At


# Names and values in the order in which they were sent; a name may come again. A header may have no
# value (None), which differs from an empty one.
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class MessageHeader(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a message, without its payload."""

    stream_key: StreamKey
    shard_id: int
    sequence: int
    timestamp_ms: int

    @property
    def timestamp(self) -> Timestamp:
        """The time at which the message was sent."""
        return Timestamp(self.timestamp_ms)


class Receipt(MessageHeader, frozen=True, gc=False):
    """A backend's confirmation of a message, with its position."""


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message from a producer; with a shard of None, the backend chooses the shard.

    A time of None is the time at which it is sent, in ms since 1970 otherwise.
    """

    stream_key: StreamKey
    payload: bytes
    shard_id: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    headers: Headers = ()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a consumer gets it.

    ``key`` and ``headers`` are set by its producer, and empty in backends without them.

    Example:
        >>> message = Message(StreamKey("orders"), 0, 1, 1_694_767_177_437, b'{"id": 7}')
        >>> message.json()["id"], message.size, str(message.header.timestamp)
        (7, 9, '2023-09-15T08:39:37.437')
    """

    stream_key: StreamKey
    shard_id: int
    sequence: int
    timestamp_ms: int
    payload: bytes
    key: bytes | None = None
    headers: Headers = ()

    @property
    def header(self) -> MessageHeader:
        """The metadata of the message, without its payload."""
        return MessageHeader(self.stream_key, self.shard_id, self.sequence, self.timestamp_ms)

    @property
    def timestamp(self) -> Timestamp:
        """The time at which the message was sent."""
        return Timestamp(self.timestamp_ms)

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.payload)

    @property
    def is_empty(self) -> bool:
        """Return whether the payload has no bytes."""
        return not self.payload

    def as_bytes(self) -> bytes:
        """Return the payload as it is."""
        return self.payload

    def as_str(self) -> str:
        """Return the payload as text.

        Raises:
            PayloadEncodingError: it is not UTF-8.
        """
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            raise self._refusal("UTF-8", error) from None

    def json(self) -> Any:
        """Return the value that the payload means as JSON.

        Raises:
            PayloadEncodingError: it is no JSON.
        """
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise self._refusal("JSON", error) from None

    def decode(self, codec: Codec) -> Any:
        """Return the value that a codec makes of the payload.

        Args:
            codec: A codec of a format, as returned by
                ``bicycle_runtime.formats.registry.make_codec("msgpack")``.

        Raises:
            PayloadEncodingError: it is no payload of that format.
        """
        try:
            return codec.decode(self.payload)
        except Exception as error:
            raise self._refusal("valid for its format", error) from error

    def _refusal(self, expected: str, error: Exception) -> PayloadEncodingError:
        return PayloadEncodingError(
            sequence=self.sequence, key=self.stream_key, expected=expected, reason=str(error)
        )
