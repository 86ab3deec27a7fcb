"""Finding Java: where it is, and how new it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JAVA_MAJOR_MIN", "JavaInfo", "find_java", "java_major", "java_version"]

JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaInfo:
    """A Java that was found; ``path`` is its ``java`` program."""

    path: Path


def find_java() -> JavaInfo | None:
    """Return the Java of ``JAVA_HOME``, else the first on ``PATH``; None when there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return JavaInfo(path=Path(home) / "bin" / "java")
    found = shutil.which("java")
    return JavaInfo(path=Path(found)) if found else None


def java_version(java: JavaInfo) -> str | None:
    """Return the version that Java names, such as ``17.0.15``; None when it does not run."""
    try:
        result = subprocess.run(
            [str(java.path), "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(result.stderr)
    return found[1] if found else None


def java_major(version: str) -> int:
    """Return the major version.

    Example:
        >>> [java_major(version) for version in ("17.0.15", "1.8.0_392", "21", "25-ea")]
        [17, 8, 21, 25]
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
