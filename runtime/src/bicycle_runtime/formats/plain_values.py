"""Values as the plain types of a schema have them: numbers and texts for times.

Avro and Protobuf write the same: a time is a number in ms, or its text. The readers of
``typed_values`` convert both to the declared type.
"""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_TEXTS = (date, time, timedelta, Decimal, UUID)


def as_text(value: Any) -> Any:
    """Return a time, a decimal or a UUID as text; anything else as it is.

    Example:
        >>> as_text(timedelta(seconds=1)), as_text(Decimal("1.50")), as_text(b"x")
        ('PT1S', '1.50', b'x')
    """
    return msgspec.to_builtins(value) if isinstance(value, _TEXTS) else value
