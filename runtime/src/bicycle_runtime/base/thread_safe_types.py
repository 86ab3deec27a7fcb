"""Types that any number of threads decode.

msgspec describes a type at its first use. A second thread that uses the type meanwhile reads the
unfinished description, which ends the process with a segmentation fault.
"""

from __future__ import annotations

from functools import lru_cache
from threading import RLock
from typing import TypeVar

import msgspec

T = TypeVar("T")
_TYPES_MAX = 4_096  # Types that pipelines make at run time are not kept forever.
_LOCK = RLock()
_describe = lru_cache(_TYPES_MAX)(msgspec.msgpack.Decoder)


def prepare_type(kind: T) -> T:
    """Return a type, of which msgspec has a finished description by now.

    Args:
        kind: The type of a ``decode`` or ``convert`` of msgspec, or of one of its decoders.

    Raises:
        TypeError: nothing can be decoded to the type.

    Example:
        >>> msgspec.convert(["1"], prepare_type(list[int]), strict=False)
        [1]
    """
    with _LOCK:
        try:
            _describe(kind)
        except TypeError:  # It may only have no hash, as an annotation that holds a list.
            msgspec.msgpack.Decoder(kind)
    return kind
