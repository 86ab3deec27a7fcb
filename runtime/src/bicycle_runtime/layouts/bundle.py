"""A stored job bundle: magic, version, checksum, and a MessagePack map of fields."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BUNDLE_MAGIC", "BUNDLE_VERSION", "StoredBundle"]

BUNDLE_VERSION = 1
BUNDLE_MAGIC = b"BICB"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBundle:
    """The MessagePack map of format version 1. Names are never changed, only succeeded."""

    graph: str
    payloads: dict[str, bytes]
    shipping: dict[str, str]
    digest: str
    plugin: str
    plugin_version: str
    dist: str
    sdk_version: str
    python_version: str
    function_dists: tuple[str, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    former_names: tuple[tuple[str, str, str], ...] = ()
