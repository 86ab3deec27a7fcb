"""The limit of open files of this process: errors that it causes, remaining room.

A descriptor is the lowest free number, so a high number shows that few are left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
_KEPT_MAX, _KEPT_SHARE = 64, 4


def is_kept_for_work(descriptor: int) -> bool:
    """Return whether a new descriptor is in the reserve, too high for a client.

    Kept are 64 descriptors, or a quarter of the limit where that is less.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_limited = soft != resource.RLIM_INFINITY
    return is_limited and descriptor >= soft - min(_KEPT_MAX, soft // _KEPT_SHARE)


def comes_from_open_files(error: BaseException | None) -> bool:
    """Return whether an error or its cause is a lack of file descriptors."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def has_room(count: int) -> bool:
    """Return whether this process can open so many more files."""
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        for _ in range(count):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return True
    return False
