"""The address of a home's service, for commands, without the service's libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.processes import is_alive, start_ticks
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.home import Home
from bicycle_streams.access.control import SERVICE_FOLDER


def service_folder(home: Home) -> Path:
    """Return the folder of the service in a home."""
    return home.path / SERVICE_FOLDER


def queue_folder(home: Home) -> Path:
    """Return the folder with the requests of starts that wait for slots."""
    return service_folder(home) / "queued"


def address_file(home: Home) -> Path:
    """Return the file with the address of a home's service."""
    return service_folder(home) / "address.json"


def write_address(home: Home, url: str, *, is_open: bool, grpc: str | None) -> None:
    """Write the address of this process, which is the service of a home.

    Args:
        home: The home.
        url: Of the REST API and the pages.
        is_open: Whether commands of this machine need no token.
        grpc: The address of the gRPC server, if there is one.
    """
    own = os.getpid()
    facts = {"url": url, "pid": own, "started": start_ticks(own), "is_open": is_open, "grpc": grpc}
    replace_file(address_file(home), encode_stored(facts))


def read_address(home: Home) -> dict[str, Any] | None:
    """Return the address of a home's running service, or None.

    Raises:
        STORED_NEWER: a newer version of the runtime wrote it.
    """
    path = address_file(home)
    try:
        found = decode_stored(path.read_bytes(), dict[str, Any], path=str(path))
        is_there = is_alive(int(found["pid"]), int(found["started"]))
    except (FileNotFoundError, msgspec.MsgspecError, ValueError, KeyError, TypeError):
        return None
    return found if is_there else None
