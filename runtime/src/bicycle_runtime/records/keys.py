"""Keys as bytes, and the key group of a key.

Both mappings are part of the checkpoint format: they must give the same answer in every process,
on every platform, forever. Equal keys (``1 == True == 1.0 == Decimal(1)``) have equal bytes, and
the bytes of strings, of bytes, of ints, and of tuples of one of these sort as the keys do. This
module knows nothing of tasks or state.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, get_args, get_origin
from zlib import crc32

from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_sdk.key_types import PLAIN_KEYS, key_problem
from bicycle_sdk.state.part_order import PartOrder

# One byte before each value is its type; part of the checkpoint format, never changed.
_NONE, _BYTES, _STR, _TUPLE, _INT, _FLOAT, _OBJECT = 0x01, 0x02, 0x03, 0x05, 0x14, 0x21, 0x30
_END = b"\x00"
_FLOAT_SIGN = 1 << 63
_INT_BYTES_MAX = 64
_SHORT_INT_END = 1 << 64
_INT_STARTS = [bytes([_INT + 64 + size]) for size in range(9)]
_FLOAT_AS_INT_MAX = 2.0**512  # larger floats have no int of equal value among the keys
_DECIMAL_AS_INT_DIGITS = 154
_CACHE_ENTRIES_MAX = 1 << 20
_BYTES_CACHE_ENTRIES_MAX = 1 << 16
_ORDERED_TYPES = frozenset({int, str, bytes})


def encode_key(key: Any) -> bytes:
    """Return the stable, order-preserving bytes of a key.

    Args:
        key: ``None``, bool, int, float, str, bytes, Enum, date, datetime, UUID, Decimal,
            frozenset, a dataclass, or a tuple of these, at any depth.

    Returns:
        At least one byte.

    Raises:
        KeyEncodingError: the key (or a part of it) has another type.

    Example:
        >>> encode_key("ada") < encode_key("bob"), encode_key(1) == encode_key(True)
        (True, True)

    Source: ADR-0004 (key groups).
    """
    # hot path: 140 ns an int, 550 a pair of them; subclasses of these take the longer way.
    kind = type(key)
    if kind is int and 0 <= key < _SHORT_INT_END:
        size = (key.bit_length() + 7) >> 3
        data: bytes = _INT_STARTS[size] + key.to_bytes(size, "big")
        return data
    if kind is tuple:
        return b"\x05%b\x00" % b"".join([encode_key(part) for part in key])
    if isinstance(key, str):
        return _encode_text(key)
    if isinstance(key, int):
        return _encode_int(int(key))
    if isinstance(key, tuple):
        return b"\x05" + b"".join(map(encode_key, key)) + _END
    return _encode_other(key)


def _encode_text(key: str) -> bytes:
    # hot path: 280 ns a new key; most keys have no NUL to escape.
    data = key.encode("utf-8", "surrogatepass")
    if b"\x00" in data:
        data = data.replace(b"\x00", b"\x00\xff")
    return b"\x03" + data + _END


def _encode_other(key: Any) -> bytes:
    if key is None:
        return bytes([_NONE])
    if isinstance(key, bytes):
        return bytes([_BYTES]) + key.replace(b"\x00", b"\x00\xff") + _END
    if isinstance(key, float):
        return _encode_float(key)
    if isinstance(key, Decimal):
        return _encode_decimal(key)
    parts = _object_parts(key)
    if parts is None:
        raise _unencodable(key)
    return bytes([_OBJECT]) + b"".join(map(encode_key, parts)) + _END


def _unencodable(key: Any) -> KeyEncodingError:
    kind = type(key)
    if kind.__module__ == "numpy" and hasattr(key, "item"):
        plain = type(key.item())
        call = f"{plain.__name__}(key)" if plain in (bool, int, float) else "key.item()"
        return KeyEncodingError(
            type_name=f"numpy.{kind.__name__}",
            reason=f"it is a scalar of numpy; convert it with {call}",
        )
    return KeyEncodingError(type_name=kind.__qualname__, reason="the type has no stable encoding")


def _encode_int(value: int) -> bytes:
    if value >= 0:
        size = (value.bit_length() + 7) // 8
        if size > _INT_BYTES_MAX:
            raise KeyEncodingError(type_name="int", reason=f"more than {_INT_BYTES_MAX} bytes")
        return bytes([_INT + 64 + size]) + value.to_bytes(size, "big")
    size = ((-value).bit_length() + 7) // 8
    if size > 64:
        raise KeyEncodingError(type_name="int", reason="more than 64 bytes and negative")
    return bytes([_INT + 64 - size]) + ((1 << (8 * size)) - 1 + value).to_bytes(size, "big")


def _encode_float(value: float) -> bytes:
    if value.is_integer() and -_FLOAT_AS_INT_MAX < value < _FLOAT_AS_INT_MAX:
        return _encode_int(int(value))
    if math.isnan(value):
        raise KeyEncodingError(type_name="float", reason="NaN does not equal itself")
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    ordered = bits ^ ((1 << 64) - 1) if bits & _FLOAT_SIGN else bits | _FLOAT_SIGN
    return bytes([_FLOAT]) + struct.pack(">Q", ordered)


def _encode_decimal(value: Decimal) -> bytes:
    """Return the bytes of the equal float or int, else the bytes of the digits."""
    if value.is_nan():
        raise KeyEncodingError(type_name="Decimal", reason="NaN does not equal itself")
    if float(value) == value:
        return _encode_float(float(value))
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    exponent += len(text) - len(kept)
    if exponent >= 0 and len(kept) + exponent <= _DECIMAL_AS_INT_DIGITS:
        return _encode_int(int(value))
    parts = ("decimal", sign, kept, exponent)
    return bytes([_OBJECT]) + b"".join(map(encode_key, parts)) + _END


def _object_parts(key: Any) -> tuple[Any, ...] | None:
    for kind, parts in _OBJECT_PARTS:
        if isinstance(key, kind):
            return parts(key)
    if dataclasses.is_dataclass(key):
        values = (getattr(key, f.name) for f in dataclasses.fields(key) if f.compare)
        return ("dataclass", type(key).__qualname__, *values)
    return None


def _datetime_parts(key: datetime.datetime) -> tuple[Any, ...]:
    moment = key.astimezone(datetime.UTC) if key.tzinfo else key
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return ("datetime", key.tzinfo is not None, text)


# A datetime is a date too, so the order matters; words and order are part of the checkpoint format.
_OBJECT_PARTS: tuple[tuple[type, Callable[[Any], tuple[Any, ...]]], ...] = (
    (Enum, lambda key: ("enum", type(key).__qualname__, key.name)),
    (datetime.datetime, _datetime_parts),
    (datetime.date, lambda key: ("date", key.isoformat())),
    (uuid.UUID, lambda key: ("uuid", key.bytes)),
    (frozenset, lambda key: ("frozenset", *sorted(map(encode_key, key)))),
)


def key_group(key: bytes, *, group_count: int) -> int:
    """Return the key group of an encoded key.

    The mapping is part of the checkpoint format. It must return the same result in every process
    and on every platform, so it does not use ``hash()``.

    Args:
        key: Encoded key, at least one byte.
        group_count: Key groups of the operator, 1 to 32_768.

    Returns:
        Group index, ``0 <= index < group_count``.

    Example:
        >>> key_group(b"ada", group_count=128)
        104

    Source: ADR-0004 (key groups).
    """
    return crc32(key) % group_count


def task_of(group: int, *, group_count: int, parallelism: int) -> int:
    """Return the subtask of a key group: contiguous ranges that differ by at most one."""
    return group * parallelism // group_count


def range_of(subtask: int, *, group_count: int, parallelism: int) -> range:
    """Return the key groups that a subtask owns; the inverse of ``task_of``."""
    start = -(-subtask * group_count // parallelism)
    end = -(-(subtask + 1) * group_count // parallelism)
    return range(start, end)


class GroupCache(dict[Any, int]):
    """Key -> key group, computed once per key and cached.

    Use it by indexing, on keys that are hashable: ``groups[key]``.

    Args:
        group_count: Key groups of the operator.
        of_records: Whether keys come from records. Then a key whose equality is not that of its
            bytes is refused with a ``KeyEncodingError``. Keys of stored state are not refused.
    """

    # hot path: 38 ns a record against 250 ns for encoding and hashing the key each time.
    __slots__ = ("group_count", "of_records")

    def __init__(self, group_count: int, *, of_records: bool = False) -> None:
        super().__init__()
        self.group_count = group_count
        self.of_records = of_records

    def __missing__(self, key: Any) -> int:
        kind, has_time = type(key), False
        if kind is str:
            data = _encode_text(key)
        else:
            if self.of_records and kind is not int:
                for part in key if kind is tuple else (key,):
                    if type(part) not in PLAIN_KEYS:
                        _require_plain_key(part)
                        has_time |= isinstance(part, datetime.datetime)
            data = encode_key(key)
        group = crc32(data) % self.group_count
        if has_time:  # An equal time of another zone may be refused.
            return group
        if len(self) >= _CACHE_ENTRIES_MAX:
            self.clear()
        self[key] = group
        return group


def _require_plain_key(key: Any) -> None:
    problem = key_problem(key)
    if problem is not None:
        raise KeyEncodingError(type_name=problem.type_name, reason=problem.reason)


class KeyBytes(dict[Any, bytes]):
    """Key -> its bytes, encoded once per key and cached: for keys that repeat."""

    __slots__ = ()

    def __missing__(self, key: Any) -> bytes:
        data = encode_key(key)
        if len(self) >= _BYTES_CACHE_ENTRIES_MAX:
            self.clear()
        self[key] = data
        return data


class _Encoded:
    """A key among others of another type, in the order of bytes."""

    __slots__ = ("data", "key")
    __hash__ = None  # type: ignore[assignment]  # it is compared, never looked up

    def __init__(self, key: Any) -> None:
        self.data = encode_key(key)
        self.key = key

    def __eq__(self, other: object) -> bool:
        return self.data == _bytes_of(other)

    def __lt__(self, other: object) -> bool:
        return self.data < _bytes_of(other)

    def __gt__(self, other: object) -> bool:
        return self.data > _bytes_of(other)


def _bytes_of(key: object) -> bytes:
    return key.data if type(key) is _Encoded else encode_key(key)


def part_order(key_type: Any) -> PartOrder:
    """Return the order of map keys: that of their bytes.

    Keys of the declared type are compared directly if this results in the same order: ints, texts,
    bytes, and tuples of a fixed number of these. Other keys are compared by their bytes.

    Args:
        key_type: The type that most keys have; None when unknown.

    Example:
        >>> sort_key, parts = part_order(tuple[int, str])
        >>> parts(sorted(map(sort_key, [(2, "a"), (1, "b"), (1,), (1.5, "a")])))
        [(1.5, 'a'), (1,), (1, 'b'), (2, 'a')]
    """
    if key_type in _ORDERED_TYPES:
        return PartOrder(partial(_plain, kind=key_type), _parts_at)
    parts = get_args(key_type) if get_origin(key_type) is tuple else ()
    if parts and all(part in _ORDERED_TYPES for part in parts):
        return PartOrder(_plain_tuple(parts), _parts_at)
    return PartOrder(
        lambda key: (encode_key(key), key), lambda sort_keys: [key for _, key in sort_keys]
    )


def _plain(key: Any, kind: type) -> Any:
    return key if type(key) is kind else _Encoded(key)


def _plain_tuple(kinds: tuple[type, ...]) -> Callable[[Any], Any]:
    shapes = frozenset(kinds[:size] for size in range(len(kinds) + 1))
    first, last = kinds[0], kinds[-1]

    def sort_key(key: Any) -> Any:
        # hot path: 110 ns for a pair, 300 for others; their bytes take 1,200.
        if type(key) is tuple and (
            (len(key) == 2 == len(kinds) and type(key[0]) is first and type(key[1]) is last)
            or tuple(map(type, key)) in shapes
        ):
            return key
        return _Encoded(key)

    return sort_key


def _parts_at(sort_keys: list[Any]) -> list[Any]:
    return [sort_key.key if type(sort_key) is _Encoded else sort_key for sort_key in sort_keys]
