"""Pickling by value of classes and functions that no module of the workers has.

A class that msgspec has decoded objects of holds its notes, which cannot be pickled. They are
removed before the class is; msgspec makes them again when it next needs them.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle

__all__ = ["forget_decoding", "pickle_by_value"]

_PROTOCOL = 5
_NOTES = "__msgspec_cache__"


def pickle_by_value(value: Any) -> bytes:
    """Pickle a value as cloudpickle does, classes that were decoded included."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=_PROTOCOL).dump(value)
    return stream.getvalue()


def forget_decoding(part: Any) -> None:
    """Remove what msgspec has noted in a class, if it is one and has any."""
    if isinstance(part, type) and _NOTES in vars(part):
        delattr(part, _NOTES)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types.
    def reducer_override(self, obj: Any) -> Any:
        forget_decoding(obj)
        return super().reducer_override(obj)
