"""The child process of ``sealed_values``: loads pickled values, shows plain data.

It answers one question (``base.pipes``) with a MessagePack list of type names and pickles. A value
that cannot be loaded has the reason in its place.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import msgspec

from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.records.readable import readable


def main(arguments: list[str]) -> int:
    """Answer one question."""
    return answer_once(arguments[0], _answer)


def _answer(_question: dict[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    requests = msgspec.msgpack.decode(blobs[0], type=list[tuple[str, bytes]])
    return {"values": [_as_readable(type_name, data) for type_name, data in requests]}


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
    sys.exit(main(sys.argv[1:]))
