"""The address of a home's service, for commands, without the service's libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.jobs.home import Home

__all__ = ["read_address", "service_folder"]


def service_folder(home: Home) -> Path:
    """Return the folder of the service in a home."""
    return home.path / "service"


def read_address(home: Home) -> dict[str, Any] | None:
    """Return ``url``, ``pid`` and ``started`` of a home's service, or None.

    ``is_open`` tells whether it lets commands of this machine in without a token.
    """
    try:
        found = json.loads((service_folder(home) / "address.json").read_bytes())
        is_there = is_alive(int(found["pid"]), int(found["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return dict(found) if is_there else None
