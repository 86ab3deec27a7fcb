"""How values of state become bytes: by their declared type where there is one, else as they are.

Each encoded value tells by itself how it was written, because files of several epochs are merged
without knowing types: what the declared type can not hold exactly is written as an extension, like
undeclared values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from bicycle_runtime.records.codecs import AnyCodec, RecordCodec

__all__ = ["ValueCodec"]

_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ARRAY_OF_ONE = b"\x91"
_FLAT = frozenset({str, int, float, bool, bytes})


class ValueCodec:
    """Encodes lists of values of one declared type, or of any; the two methods are inverse."""

    __slots__ = ("_any", "_is_flat", "_typed")

    def __init__(self, declared: Any = None) -> None:
        self._any = AnyCodec()
        self._typed = RecordCodec(declared)
        self._is_flat = declared in _FLAT

    @property
    def is_typed(self) -> bool:
        """Tell whether values are stored by a declared type instead of by pickle."""
        return self._typed.name == "typed"

    def encode_list(self, values: Sequence[Any]) -> bytes:
        """Return a MessagePack array of the values."""
        if not self.is_typed:
            return self._any.encode_list(values)
        listed = list(values)
        name, data = self._typed.encode(listed)
        if name != "typed" or not (self._is_flat or self._reads_back(data, listed)):
            return self._any.encode_list(listed)
        return data

    def decode_list(self, data: bytes | memoryview | msgspec.Raw) -> list[Any]:
        """Return the values."""
        raw = bytes(data)
        if not self.is_typed:
            return self._any.decode_list(raw)
        try:
            return self._typed.decode("typed", raw)
        except Exception:  # noqa: BLE001  # a mixed list: each value is tried by itself
            return [self.decode_one(bytes(item)) for item in _RAW_LIST.decode(raw)]

    def decode_one(self, item: bytes) -> Any:
        """Return a value from its own bytes, an element of what ``encode_list`` returned."""
        array = _ARRAY_OF_ONE + item
        if not self.is_typed:
            return self._any.decode_list(array)[0]
        try:
            return self._typed.decode("typed", array)[0]
        except Exception:  # noqa: BLE001  # not of the declared type: it was written as it is
            return self._any.decode_list(array)[0]

    def _reads_back(self, data: bytes, values: list[Any]) -> bool:
        """Tell whether nested parts survive; an annotation that lies must not cost the state."""
        try:
            decoded = self._typed.decode("typed", data)
        except Exception:  # noqa: BLE001  # any failure means: not of the declared type
            return False
        return decoded == values or all(map(_is_same, decoded, values))


def _is_same(one: Any, other: Any) -> bool:
    """Compare by fields what has no equality of its own."""
    if not dataclasses.is_dataclass(one) or type(one) is not type(other):
        return bool(one == other)
    names = [part.name for part in dataclasses.fields(one)]
    return all(_is_same(getattr(one, name), getattr(other, name)) for name in names)
