"""Values as the plain types of a schema have them: numbers and texts for times.

Avro and Protobuf write the same: a time is a number in ms, or its text. The readers of
``typed_values`` convert both to the declared type.
"""

from __future__ import annotations

import struct
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_SINGLE = struct.Struct("<f")  # The native format does not check the size.
_TEXTS = (date, time, timedelta, Decimal, UUID)


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
