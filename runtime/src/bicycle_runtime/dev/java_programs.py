"""Java's programs for this room: ``java`` in a suitable version, and ``keytool``."""

from __future__ import annotations

import shutil
from pathlib import Path

from bicycle_runtime.base.java import JAVA_MAJOR_MIN, find_java, java_major, java_version
from bicycle_runtime.dev.errors import BROKER_JAVA_MISSING


def require_java() -> Path:
    """Return the program ``java``.

    Raises:
        BROKER_JAVA_MISSING: there is none, it does not run, or it is too old.
    """
    java = find_java()
    if java is None:
        raise BROKER_JAVA_MISSING(needed=JAVA_MAJOR_MIN, found="no Java in JAVA_HOME or on PATH")
    version = java_version(java)
    if version is None:
        raise BROKER_JAVA_MISSING(
            needed=JAVA_MAJOR_MIN, found=f"a Java that does not run: {java.path}"
        )
    if java_major(version) < JAVA_MAJOR_MIN:
        raise BROKER_JAVA_MISSING(needed=JAVA_MAJOR_MIN, found=f"{version} ({java.path})")
    return java.path


def require_keytool() -> Path | None:
    """Return the program ``keytool`` beside Java, else the first on ``PATH``, or None."""
    beside = require_java().resolve().with_name("keytool")
    if beside.is_file():
        return beside
    found = shutil.which("keytool")
    return Path(found) if found else None
