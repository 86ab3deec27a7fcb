"""Runs: whose the epochs are that a table says are written.

A table remembers the last epoch of each *run*, a random name that begins with a job and stands in
the manifest. A job that goes on elsewhere, or writes epochs once more, begins a run of its own: two
jobs of one savepoint never take each other's epochs for theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.base.ids import attempt_id, system_random
from bicycle_runtime.contract import DriverServices

__all__ = ["goes_on", "new_run", "place_of"]


def place_of(services: DriverServices) -> str:
    """Return where the state of a sink lies: a job that goes on elsewhere has another place."""
    return f"{services.storage.url}/{services.prefix}"


def goes_on(state: Mapping[str, Any], place: str) -> bool:
    """Tell whether a job goes on with the run of a state, in the place where it was."""
    return "run" in state and bool(state.get("place", place) == place)


def new_run() -> str:
    """Return the name of a run that begins."""
    return attempt_id(source=system_random())
