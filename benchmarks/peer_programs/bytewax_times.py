"""Notes when this process took its first record and when it was done, for the benchmark."""

from __future__ import annotations

import atexit
import json
import os
import time
from pathlib import Path

_first: float | None = None


def note_record() -> None:
    """Call it for every batch; the first call counts."""
    global _first  # noqa: PLW0603  # one process, one note
    if _first is None:
        _first = time.monotonic()


def _write() -> None:
    place = Path(os.environ["BENCH_TIMES"]) / f"{os.getpid()}.json"
    place.write_text(json.dumps({"first": _first, "last": time.monotonic()}))


atexit.register(_write)
