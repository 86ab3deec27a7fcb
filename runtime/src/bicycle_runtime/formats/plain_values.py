"""Records as plain data, and values as plain fields of a schema have them.

Avro and Protobuf write the same: a time is a number in ms, or its text. The readers of
``typed_values`` convert both to the declared type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import msgspec

from bicycle_runtime.formats.record_types import encode_model
from bicycle_runtime.formats.typed_values import Conversion, ConversionFinder

_model_data = partial(encode_model, mode="python")
_SINGLE = struct.Struct("<f")  # The native format does not check the size.
_TEXTS = (date, time, timedelta, Decimal, UUID)


def to_plain(value: Any, record_type: Any, native: Sequence[type]) -> Any:
    """Return a record as plain data, with dicts for named tuples.

    Args:
        value: The record.
        record_type: Its declared type, or None.
        native: The types whose values stay as they are.

    Raises:
        TypeError: the record holds a value that is no data.
    """
    found = msgspec.to_builtins(value, builtin_types=native, enc_hook=_model_data)
    kind: Any = record_type if type(value) in (dict, list) else type(value)
    convert = _names_in(kind)
    return found if convert is None else convert(found)


@lru_cache(1_024)
def _names_in(kind: Any) -> Conversion | None:
    """Return a function that makes dicts of the named tuples in plain data of a type."""
    try:
        info = msgspec.inspect.type_info(kind)
    except (TypeError, NameError):
        return None
    return ConversionFinder({}, is_written=True).find(info)


def as_text(value: Any) -> Any:
    """Return a time, a decimal or a UUID as text; anything else as it is.

    Example:
        >>> as_text(timedelta(seconds=1)), as_text(Decimal("1.50")), as_text(b"x")
        ('PT1S', '1.50', b'x')
    """
    return msgspec.to_builtins(value) if isinstance(value, _TEXTS) else value


def as_single(value: Any) -> Any:
    """Return a value of a float field of 4 bytes; anything but a number as it is.

    Raises:
        ValueError: the number is too large, and would become infinite.
    """
    if isinstance(value, (int, float)):
        try:
            _SINGLE.pack(value)
        except (OverflowError, struct.error):  # The latter is for an int.
            raise ValueError(f"a float of 4 bytes cannot hold {str(value)[:40]}") from None
    return value
