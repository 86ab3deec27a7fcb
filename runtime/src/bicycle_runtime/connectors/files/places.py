"""Paths as people type them: ``~`` is a home wherever the shell left it, and empty is no path."""

from __future__ import annotations

import contextlib
from pathlib import Path

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.contract import ConnectorSpec

__all__ = ["MADE", "typed_path"]

MADE = "file:"  # What begins so among the names of ``Sink.makes`` is a directory.


def typed_path(spec: ConnectorSpec, text: str) -> str:
    """Return the path that an option means.

    Raises:
        CONNECTOR_OPTION_WRONG: it is empty, as an unset variable of a shell leaves it.
    """
    if not text.strip():
        raise CONNECTOR_OPTION_WRONG(
            vertex=spec.vertex_id,
            connector=spec.connector_type,
            name="path",
            problem="it is empty",
            hint="give a path; '.' is the working directory",
        )
    if text.startswith("~"):
        with contextlib.suppress(RuntimeError):  # There is no such user, so it is a name.
            return str(Path(text).expanduser())
    return text
