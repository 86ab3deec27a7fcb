"""The child process of ``sealed_values``: loads pickled values, shows plain data.

Run as ``python -m bicycle_runtime.jobs.checkpoints.sealed_values_child`` with a MessagePack list of
type names and pickles on standard input. One JSON list goes to the standard output of the start;
all output of loaded code goes to standard error. A value that cannot be loaded has the reason in
its place.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import msgspec

from bicycle_runtime.jobs.child_processes import answer
from bicycle_runtime.records.readable import readable

__all__ = ["main"]


def main() -> int:
    """Answer one request."""
    return answer(_answers)


def _answers(given: bytes) -> list[Any]:
    requests = msgspec.msgpack.decode(given, type=list[tuple[str, bytes]])
    return [_as_readable(type_name, data) for type_name, data in requests]


def _as_readable(type_name: str, data: bytes) -> Any:
    try:
        return readable(pickle.loads(data))
    except Exception as error:  # noqa: BLE001  # Classes of the plugin may do anything when loaded.
        return {
            "$opaque": type_name,
            "bytes": len(data),
            "error": f"{type(error).__name__}: {error}",
        }


if __name__ == "__main__":
    sys.exit(main())
