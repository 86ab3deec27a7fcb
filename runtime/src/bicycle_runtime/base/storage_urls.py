"""Checkpoint storage by its path or URL."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_sdk.errors import ConfigError

_S3_SCHEMES = ("s3", "s3a")
_LOCAL_SCHEMES = ("", "file", "local")


def open_storage(location: str, *, patience_s: float = 30.0) -> Storage:
    """Return the storage at a path or URL; ``file://`` and plain paths are local. Opens nothing.

    Args:
        location: A directory path, or a URL: ``s3://``, or another scheme that fsspec knows.
        patience_s: How long a call to a remote storage that does not answer is tried again.

    Raises:
        ConfigError: the URL has a password in it.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return LocalStorage(str(Path(parts.path if parts.scheme else location).absolute()))
    if parts.password is not None or (parts.username and parts.scheme in _S3_SCHEMES):
        raise ConfigError(
            problem=(
                f"the {parts.scheme} URL of a storage contains credentials, which would appear in "
                "logs and status files"
            ),
            hint="set credentials by environment or profile, and remove them from the URL",
        )
    kind = S3Storage if parts.scheme in _S3_SCHEMES else FsspecStorage
    return kind(location.rstrip("/"), patience_s)


def resolve_location(location: str) -> str:
    """Return the canonical form of a path or URL, for comparison of locations.

    A path of this machine, also as a URL, becomes absolute and free of links, ``.`` and ``..``;
    another URL keeps its path, since object stores take each character of it as it is.

    Args:
        location: An argument of ``open_storage``; ``~`` is the home directory of this user.

    Raises:
        ConfigError: the URL chains several file systems, so that it could lead anywhere.

    Example:
        >>> resolve_location("file:///usr/../usr/lib/"), resolve_location("S3a://bucket/a//")
        ('/usr/lib', 's3://bucket/a')
    """
    if "::" in location:
        raise ConfigError(
            problem=f"the URL {location!r} chains several file systems",
            hint="give the path, or the URL of one storage",
        )
    try:
        parts = urlsplit(location)
        if parts.scheme in _LOCAL_SCHEMES:
            path = parts.path if parts.scheme else location
            # Path raises for a user that is not there.
            return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - See above.
    except ValueError as error:  # A byte of zero, half a letter, half an address.
        raise ConfigError(
            problem=f"{location[:200]!r} is not a valid location ({error})",
            hint="give a path or a URL",
        ) from error
    scheme = "s3" if parts.scheme in _S3_SCHEMES else parts.scheme
    return parts._replace(scheme=scheme).geturl().rstrip("/")


def is_within(location: str, folder: str) -> bool:
    """Return whether a location is a folder or in it; both are resolved.

    Example:
        >>> is_within("/a/b", "/a"), is_within("/ab", "/a"), is_within("/a", "/a")
        (True, False, True)
    """
    return f"{location}/".startswith(f"{folder.rstrip('/')}/")
