"""Small files that others read while they are written: whole as they were, or whole as they are."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, data: bytes) -> None:
    """Put a file in its place as one step; what a crash leaves is hidden and written over."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
