"""Runs: the owners of epochs that a table records as written.

A table remembers the last epoch of each *run*, a random name that begins with a job and is in the
manifest. A job that continues elsewhere, or writes epochs once more, begins a run of its own: two
jobs of one savepoint never take each other's epochs for their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.contract import DriverServices
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random


def storage_id_of(services: DriverServices) -> str:
    """Return the location of a sink's state, which changes when a job moves."""
    return f"{services.storage.url}/{services.prefix}"


def run_of(state: Mapping[str, Any], storage_id: str, *, is_again: bool = False) -> str:
    """Return the run of a starting sink: of its state, or a new name.

    Args:
        state: The sink's state in the last sealed epoch.
        storage_id: The current location of the sink's state.
        is_again: Whether epochs of the run are written a second time, so that it cannot continue.
    """
    if "run" in state and not is_again and state.get("place", storage_id) == storage_id:
        return str(state["run"])
    return attempt_id(source=system_random())


def is_rewind(
    state: Mapping[str, Any], published: int, on_rewind: str,
    refusal: Callable[..., BicycleError], **facts: str,
) -> bool:  # fmt: skip
    """Return whether published epochs are written again, as an older one was restored.

    Raises:
        BicycleError: they would be, but ``on_rewind`` does not allow it.
    """
    if published <= state["epoch"]:
        return False
    if on_rewind == "publish_again":
        return True
    raise refusal(**facts, epoch=state["epoch"], published=published)
