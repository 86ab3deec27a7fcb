"""Locations in the facts of an operation, resolved once where the request enters.

From then on they are compared, kept and used in this spelling: a link that leads elsewhere later
changes nothing, and two spellings of one location are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.base.storage_urls import resolve_location

_NAMES = ("url", "to", "from_", "checkpoint_dir", "plugin_env", "savepoint_key")


def resolve_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with resolved locations, also in ``options``.

    Raises:
        ConfigError: a location cannot be resolved.
    """
    found = _resolve(facts)
    if isinstance(facts.get("options"), Mapping):
        found["options"] = _resolve(facts["options"])
    return found


def _resolve(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: resolve_location(value) if name in _NAMES and value and isinstance(value, str)
        else value
        for name, value in facts.items()
    }  # fmt: skip
