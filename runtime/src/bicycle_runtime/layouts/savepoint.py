"""A stored savepoint: its description, and the entry of each of its files."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["SAVEPOINT_VERSION", "CopiedFile", "Savepoint"]


class CopiedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as it was copied, with its SHA-256 if requested or recorded."""

    path: str
    byte_count: int
    crc32: int
    sha256: str = ""


SAVEPOINT_VERSION = 1


class Savepoint(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``savepoint.json``.

    Plugin, versions and graph are those that ran the epoch; empty where they are not known, since
    another version of the plugin was started afterwards. Paths are relative.
    """

    format_version: int
    name: str
    job: str
    created_ms: int
    epoch: int
    sealed_ms: int
    event_count: int
    bundle_digest: str
    plugin: str = ""
    plugin_version: str = ""
    dist: str = ""
    sdk_version: str = ""
    python_version: str = ""
    graph: dict[str, Any] | None = None
    byte_count: int
    file_count: int
    files: tuple[CopiedFile, ...]
