"""Formats without a schema: JSON, MessagePack, text and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from bicycle_runtime.formats.frame_codec import DecodeBatch, FrameCodec
from bicycle_runtime.formats.json_frames import JsonFrames, gives_frames
from bicycle_runtime.formats.record_types import encode_model
from bicycle_runtime.formats.typed_values import json_decoder, msgpack_decoder
from bicycle_runtime.frames.record_fields import without_none

_to_json = msgspec.json.Encoder(enc_hook=encode_model).encode
_to_msgpack = msgspec.msgpack.Encoder(enc_hook=encode_model).encode


def refuse_options(options: Mapping[str, Any], known: frozenset[str] = frozenset()) -> None:
    """Refuse options that a format does not have.

    Raises:
        ValueError: there are such.
    """
    unknown = sorted(options.keys() - known)
    if unknown:
        has = f"its options are {', '.join(sorted(known))}" if known else "it has no options"
        raise ValueError(f"unknown option {', '.join(map(repr, unknown))}; {has}")


class _Typed:
    """The base of typed formats: the decoder is created on use, and not pickled."""

    _new_decoder: Callable[[Any], Any]

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options)
        self._type = Any if record_type is None else record_type
        self._new_decoder(self._type)  # Refuses a type that has no decoder, before a job starts.

    def __getstate__(self) -> Any:
        return self._type

    def __setstate__(self, state: Any) -> None:
        self._type = state

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        """The decoder of one value."""
        decode: Callable[[bytes], Any] = self._new_decoder(self._type).decode
        return decode


class JsonCodec(_Typed, FrameCodec):
    """One JSON document for each value, checked against the declared type."""

    _new_decoder = staticmethod(json_decoder)

    def _find_decoder(self) -> DecodeBatch | None:
        return JsonFrames(self._type).decode if gives_frames(self._type) else None

    def encode(self, value: Any) -> bytes:
        """Return the value as JSON."""
        return _to_json(value)


class MsgpackCodec(_Typed):
    """One MessagePack object for each value, checked against the declared type."""

    _new_decoder = staticmethod(msgpack_decoder)

    def encode(self, value: Any) -> bytes:
        """Return the value as MessagePack."""
        return _to_msgpack(value)


class TextCodec:
    """Text in UTF-8."""

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options)
        _require(record_type, str)

    # hot path: 79 ns a value; raises UnicodeDecodeError if it is not UTF-8.
    decode = staticmethod(bytes.decode)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a text.

        Raises:
            TypeError: the value is no text.
        """
        if not isinstance(value, str):
            raise TypeError(f"a text is expected, found {type(value).__qualname__}")
        return value.encode()


class BytesCodec:
    """Bytes as they are."""

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options)
        _require(record_type, bytes)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes."""
        return bytes(data)

    def encode(self, value: Any) -> bytes:
        """Return the bytes.

        Raises:
            TypeError: the value is none that has bytes.
        """
        return value if type(value) is bytes else bytes(memoryview(value))


def _require(record_type: Any, given: type) -> None:
    if without_none(record_type)[0] not in (None, Any, object, given):
        raise ValueError(f"it returns {given.__name__}, but the declared type is {record_type!r}")
