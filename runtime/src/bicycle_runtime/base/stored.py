"""Small JSON files with a format version, which is checked first.

A file without a version has version 1: earlier releases wrote no version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.base.thread_safe_types import prepare_type

STORED_VERSION = 1  # Of every file written by ``encode_stored``; all are at their first version.
VERSION_FIELD = "format_version"
_T = TypeVar("_T")


class _Version(msgspec.Struct, frozen=True):
    format_version: int = STORED_VERSION


def encode_stored(value: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """Return a struct or a mapping, which has a field, with its version as JSON.

    Example:
        >>> encode_stored({"epoch": 3})
        b'{"format_version":1,"epoch":3}'
    """
    return b'{"%b":%d,' % (VERSION_FIELD.encode(), STORED_VERSION) + msgspec.json.encode(value)[1:]


def decode_stored(data: bytes, kind: type[_T], *, path: str) -> _T:
    """Return a struct that ``encode_stored`` has written.

    Args:
        data: The content of a file, or one of its lines.
        kind: The struct.
        path: The file, for the error.

    Raises:
        STORED_NEWER: a newer version of the runtime wrote it.
        msgspec.MsgspecError: the data is damaged.
    """
    found = msgspec.json.decode(data, type=prepare_type(_Version)).format_version
    refuse_newer(found, path=path)
    return msgspec.json.decode(data, type=prepare_type(kind))


def refuse_newer(found: int, *, path: str) -> None:
    """Check the format version of a file.

    Raises:
        STORED_NEWER: a newer version of the runtime wrote it.
    """
    if found > STORED_VERSION:
        raise STORED_NEWER(path=path, found=found, known=STORED_VERSION)
