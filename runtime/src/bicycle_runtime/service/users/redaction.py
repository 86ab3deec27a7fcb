"""Values that nobody is shown: those of parameters whose name says that they are secret.

References to a secret (``env:NAME``, ``file:PATH``) are no secrets, and are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["HIDDEN", "redacted"]

HIDDEN = "***"
_SECRET = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|private|(api|access|auth)[-_.]?key|jaas|bearer",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(env|file|prompt):")
_USER_IN_URL = re.compile(r"([a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)


def redacted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with secrets hidden; user and password of a URL are hidden, too.

    Example:
        >>> redacted({"kafka.password": "hunter2", "user": "ada", "token": "env:TOKEN"})
        {'kafka.password': '***', 'user': 'ada', 'token': 'env:TOKEN'}
        >>> redacted({"redis": "redis://ada:hunter2@host/0"})
        {'redis': 'redis://***@host/0'}
    """
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted(value)
    if not isinstance(value, str):
        return value
    if _SECRET.search(name) and not _REFERENCE.match(value):
        return HIDDEN if value else value
    return _USER_IN_URL.sub(rf"\1{HIDDEN}@", value)
