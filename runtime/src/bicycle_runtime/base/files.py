"""Local files: replaced in one step, durable in a power cut; creation times."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTE_COUNT = 256
_MASK_AND_BIRTH = struct.Struct("=I76xqI")


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step; a crash leaves a hidden file that is overwritten.

    Only its owner may read the file, since parameters, addresses and errors are private.
    """
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    temporary.replace(path)


def own_folder(folder: Path) -> None:
    """Create a folder with access for its owner only; an existing one is restricted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably in a power cut."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder, and renames, survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def birth_time_ns(descriptor: int) -> int | None:
    """Return when an open file was created, in ns since 1970, or None if unknown.

    Source: statx(2), which Python does not offer before 3.15; macOS has it in ``fstat``.
    """
    if sys.platform != "linux":
        birth_s = getattr(os.fstat(descriptor), "st_birthtime", None)
        return None if birth_s is None else int(birth_s * 1e9)
    statx = _statx()
    found = ctypes.create_string_buffer(_STATX_BYTE_COUNT)
    if statx is None or statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return None
    mask, seconds, nanoseconds = _MASK_AND_BIRTH.unpack_from(found.raw)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None


@cache
def _statx() -> Any:
    """Return the call of the C library, None where that is older than it."""
    call = getattr(ctypes.CDLL(None), "statx", None)
    if call is not None:
        call.argtypes = [
            ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p,
        ]  # fmt: skip
    return call
