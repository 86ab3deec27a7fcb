"""Requests of clients: one JSON object in each text frame, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

from bicycle_streams import BEGINNING, END, At, SeqPos, StreamError, Timestamp
from bicycle_streams.subscriber_server.errors import FRAME_UNREADABLE

ID_LENGTH_MAX = 64
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_LENGTH_MAX)]


class Subscribe(
    msgspec.Struct, frozen=True, tag_field="op", tag="subscribe", forbid_unknown_fields=True
):
    """A client wants the messages of a stream."""

    id: _Id
    stream: str
    begin: Any = msgspec.field(name="from", default="end")
    filter: dict[str, Any] | None = None


class Unsubscribe(
    msgspec.Struct, frozen=True, tag_field="op", tag="unsubscribe", forbid_unknown_fields=True
):
    """A client wants no more of a subscription."""

    id: _Id


class Login(msgspec.Struct, frozen=True, tag_field="op", tag="login", forbid_unknown_fields=True):
    """The login of a client that cannot send headers."""

    token: str


@dataclass(frozen=True, slots=True)
class After:
    """The position behind the last message that a client has of each shard it names."""

    sequences: Mapping[int, int]


Begin: TypeAlias = SeqPos | Timestamp | After
_Request: TypeAlias = Subscribe | Unsubscribe | Login
_DECODER: msgspec.json.Decoder[_Request] = msgspec.json.Decoder(_Request)


def read_request(frame: str | bytes) -> _Request:
    """Return the request of a frame.

    Raises:
        FRAME_UNREADABLE: it is none.
    """
    if isinstance(frame, bytes):
        raise FRAME_UNREADABLE(reason="it is binary")
    try:
        return _DECODER.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FRAME_UNREADABLE(reason=str(error)) from None


def begin_of(value: Any) -> Begin:
    """Return where a subscription begins.

    Args:
        value: ``"beginning"``, ``"end"``, ``{"sequence": n}``, ``{"time": text}`` or ``{"after":
            {shard: n}}``; a number may be a text, since those of JavaScript end at 2^53.

    Raises:
        FRAME_UNREADABLE: it is none of these.

    Example:
        >>> begin_of("end"), begin_of({"sequence": "7"}), begin_of({"after": {"0": 6}}).sequences
        (<_Edge.END: 'end'>, At(sequence=7), {0: 6})
    """
    # An unreadable message is rejected below, like a message of another shape.
    with suppress(ValueError, StreamError):
        match value:
            case "beginning":
                return BEGINNING
            case "end":
                return END
            case {"sequence": number} if len(value) == 1:
                return At(_number(number))
            case {"time": str(text)} if len(value) == 1:
                return Timestamp.parse(text)
            case {"after": {**shards}} if len(value) == 1 and shards:
                return After({_number(shard): _number(number) for shard, number in shards.items()})
    raise FRAME_UNREADABLE(reason=f'"from" is not a position: {str(value)[:80]!r}')


def _number(value: Any) -> int:
    """Return a number of 64 bits, given as a number or a text of digits."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError(value)
    return value
