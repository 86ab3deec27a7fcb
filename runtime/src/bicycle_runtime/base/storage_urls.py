"""Checkpoint storage by its path or URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from bicycle_runtime.base.errors import ConfigError
from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage, Storage

__all__ = ["open_storage"]

_S3_SCHEMES = ("s3", "s3a")


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
            problem=f"the {parts.scheme} URL of a storage has credentials in it, which would stand "
            "in logs and status files",
            hint="give them by environment or profile, and the URL without them",
        )
    kind = S3Storage if parts.scheme in _S3_SCHEMES else FsspecStorage
    return kind(location.rstrip("/"), patience_s)
