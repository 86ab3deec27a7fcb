"""The driver's report of the error that ends it, as plain data."""

from __future__ import annotations

import json
from typing import Any

from bicycle_runtime.base.java import JAVA_MAJOR_MIN, find_java, java_major, java_version
from bicycle_runtime.jobs.errors import JAVA_TOO_OLD
from bicycle_sdk.errors import BicycleError


def plain_error(error: BicycleError) -> dict[str, Any]:
    """Return an error as data for the status file; facts outside JSON become texts."""
    plain: dict[str, Any] = json.loads(json.dumps(error.to_json(), default=str))
    return plain


def foreign_error(error: BaseException) -> dict[str, Any]:
    """Return a foreign error as data for the status file."""
    return {
        "code": BicycleError.code,
        "message": f"{type(error).__name__}: {error}",
        "fix": BicycleError.fix,
        "facts": {},
    }


def java_error() -> BicycleError | None:
    """Return the error for a Java that is too old, which Spark does not report."""
    java = find_java()
    version = java_version(java) if java is not None else None
    if java is None or version is None or java_major(version) >= JAVA_MAJOR_MIN:
        return None
    return JAVA_TOO_OLD(found=version, path=str(java.path), expected=JAVA_MAJOR_MIN)
