"""Codecs of state values: by declared type if any, else by the value itself.

Each encoded value shows by itself how it was written, because files of several epochs are merged
without knowing types: values that the declared type cannot hold exactly are written as an
extension, like undeclared values. A value of a schema version that is not the state's first is led
by the index of the schema version (see ``schema_versions``), so that values of several schema
versions can share a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.records.codecs import AnyCodec, RecordCodec, same_bytes
from bicycle_runtime.records.errors import RecordDecodingError
from bicycle_runtime.state.values.schemas import describe

_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.msgpack.Encoder()
_ARRAY_OF_ONE = b"\x91"
# A value that is led by its form is an array of two: an extension of type 3 that holds the index in
# two bytes, and the value. No value begins so by itself: extensions of ours are of type 1 and 2.
_FORM_TYPE = 3
_VERSION_LEAD = b"\x92\xd5\x03"
_LEAD_BYTES = len(_VERSION_LEAD) + 2
Reader = Callable[[bytes, Any], Any]
_NO_KEYS: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Evolution:
    """The schema versions of a state of which values may be left.

    Args:
        index: The schema version that values get.
        readers: Readers for values of the other schema versions, by index: each gets a value and
            its key.
        is_first_direct: Whether the declared type reads values of the first schema version as they
            are.
    """

    index: int
    readers: Mapping[int, Reader]
    is_first_direct: bool = False


class ValueCodec:
    """A codec for lists of values of one declared type, or of any type.

    Args:
        declared: The type; None when it is not known.
        evolution: The other schema versions of the state; None while it has had but one.
    """

    __slots__ = (
        "_any",
        "_evolution",
        "_lead",
        "_mark",
        "_marked",
        "_typed",
        "is_typed",
    )

    def __init__(self, declared: Any = None, evolution: Evolution | None = None) -> None:
        self._any = AnyCodec()
        # Whether values are stored by a declared type instead of by pickle.
        self.is_typed = declared is not None and describe(declared) != UNTYPED
        self._typed = RecordCodec(declared if self.is_typed else None)
        self._evolution = evolution
        named = (0 if evolution is None else evolution.index).to_bytes(2, "big")
        self._lead = _VERSION_LEAD + named if any(named) else b""
        self._mark = msgspec.msgpack.Ext(_FORM_TYPE, named)
        self._marked = _marked_decoder(declared) if self._lead and self.is_typed else None

    def encode_list(self, values: Sequence[Any]) -> bytes:
        """Return a MessagePack array of the values."""
        data = self._encode(values)
        if not self._lead:
            return data
        return _ENCODER.encode([(self._mark, item) for item in _RAW_LIST.decode(data)])

    def encode_items(self, values: Sequence[Any]) -> list[msgspec.Raw]:
        """Return the bytes of each value, as ``encode_list`` puts them in a row."""
        return _RAW_LIST.decode(self.encode_list(values))

    def decode_list(
        self, data: bytes | memoryview | msgspec.Raw, keys: Any = _NO_KEYS
    ) -> list[Any]:
        """Return the values.

        Args:
            data: Result of ``encode_list``, or a mix of items of several such.
            keys: The encoded keys that the values belong to, for errors.

        Raises:
            MigrationError: a hook of the job failed for a value of an earlier form.
            STORED_VALUE_UNFIT: a value of an earlier form does not match its schema.
        """
        raw = bytes(data)
        if self._evolution is not None:
            whole = self._decoded_at_once(raw)
            if whole is not None:
                return whole
            items = _RAW_LIST.decode(raw)
            named = [keys] * len(items) if keys is None else _RAW_LIST.decode(bytes(keys))
            return [self._decode(bytes(item), key) for item, key in zip(items, named, strict=True)]
        return self._decoded_list(raw)

    def decode_one(self, item: bytes, key: Any = None) -> Any:
        """Return a value from its bytes, an element of the result of ``encode_list``."""
        if self._evolution is not None:
            return self._decode(item, key)
        return self._own(item)

    def _encode(self, values: Sequence[Any]) -> bytes:
        if not self.is_typed:
            return self._any.encode_list(values)
        listed = list(values)
        data = self._typed.encode_typed(listed)
        if data is None and self._typed.is_partial:
            data = self._proven(listed)
        if data is not None:
            return data
        if len(listed) == 1:
            return self._as_it_is(listed)
        # One value that the type cannot hold must not make pickles of the others.
        return _ENCODER.encode([msgspec.Raw(self._encode([value])[1:]) for value in listed])

    def _proven(self, values: list[Any]) -> bytes | None:
        """Return the values as the type has them if they read back the same; None else.

        Whether a class changes its fields when an object is made, only its code knows.
        """
        try:
            data = _ENCODER.encode(values)
            is_same = same_bytes(self._typed.decode("typed", data)) == same_bytes(values)
        except Exception:  # noqa: BLE001  # any failure means: not of the declared type
            return None
        return data if is_same else None

    def _as_it_is(self, values: list[Any]) -> bytes:
        """Return a value that is not of the type, such that it is not read as one that is."""
        data = self._any.encode_list(values)
        try:
            self._typed.decode("typed", data)
        except Exception:  # noqa: BLE001  # so it will be read as it is
            return data
        return self._any.encode_opaque(values)

    def _decoded_list(self, raw: bytes) -> list[Any]:
        if not self.is_typed:
            return self._any.decode_list(raw)
        try:
            return self._typed.decode("typed", raw)
        except Exception:  # noqa: BLE001  # a mixed list: each value is tried by itself
            return [self._own(bytes(item)) for item in _RAW_LIST.decode(raw)]

    def _decoded_at_once(self, raw: bytes) -> list[Any] | None:
        """Return the values if the declared type reads all their schema versions, or None."""
        # hot path: 150 ns a value instead of 1,300.
        assert self._evolution is not None
        if self._marked is not None:
            # Others may be among them, or all are of the first schema version.
            with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
                pairs = self._marked.decode(raw)
                if all(mark == self._mark for mark, _ in pairs):
                    return [value for _, value in pairs]
        is_readable = self._evolution.index == 0 or self._evolution.is_first_direct
        if not is_readable or not self.is_typed or _VERSION_LEAD in raw:
            return None
        try:
            return self._typed.decode("typed", raw)
        except RecordDecodingError:
            return None

    def _decode(self, item: bytes, key: Any) -> Any:
        """Return a value of any schema version."""
        assert self._evolution is not None
        index = 0
        if item.startswith(_VERSION_LEAD):
            index = int.from_bytes(item[len(_VERSION_LEAD) : _LEAD_BYTES], "big")
            item = item[_LEAD_BYTES:]
        if index == self._evolution.index:
            return self._own(item)
        return self._evolution.readers[index](item, key)

    def _own(self, item: bytes) -> Any:
        """Return a value of the schema version that values get now."""
        array = _ARRAY_OF_ONE + item
        if not self.is_typed:
            return self._any.decode_list(array)[0]
        try:
            return self._typed.decode("typed", array)[0]
        except Exception:  # noqa: BLE001  # not of the declared type: it was written as it is
            return self._any.decode_list(array)[0]


def _marked_decoder(declared: Any) -> msgspec.msgpack.Decoder[list[tuple[Any, Any]]]:
    return msgspec.msgpack.Decoder(prepare_type(list[tuple[msgspec.msgpack.Ext, declared]]))


def without_version(item: bytes) -> bytes:
    """Return an encoded value without the index of its form."""
    return item[_LEAD_BYTES:] if item.startswith(_VERSION_LEAD) else item
