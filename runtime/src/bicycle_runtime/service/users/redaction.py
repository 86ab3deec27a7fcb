"""Hidden values: parameters whose names mark them as secret.

They are hidden by name in requests, and by value in the output of their job.

References to a secret (``env:NAME``, ``file:PATH``) are no secrets, and are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.errors import SecretError
from bicycle_sdk.secrets import Secret

T = TypeVar("T")

HIDDEN = "***"
_LENGTH_MIN = 6  # Shorter ones are parts of other words.
_JOBS_KEPT_MAX = 2_000  # A dropped entry is read again.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|private|(api|access|auth)[-_.]?key|jaas|bearer",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(env|file|prompt):")
# Starts at ``://``: a pattern that starts with a scheme would be tried at each letter of a text.
_USER_IN_URL = re.compile(r"://[^/@\s]++@")


def redacted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with secrets hidden, also user and password of URLs.

    Example:
        >>> redacted({"kafka.password": "hunter2", "user": "ada", "token": "env:TOKEN"})
        {'kafka.password': '***', 'user': 'ada', 'token': 'env:TOKEN'}
        >>> redacted({"redis": "redis://ada:hunter2@host/0"})
        {'redis': 'redis://***@host/0'}
    """
    return {name: _redact_value(name, value) for name, value in values.items()}


def _redact_value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [_redact_value(name, each) for each in value]
    if not isinstance(value, str):
        return value
    if _SECRET.search(name) and not _REFERENCE.match(value):
        return HIDDEN if value else value
    return _USER_IN_URL.sub(f"://{HIDDEN}@", value)


class JobSecrets:
    """The secrets of jobs by value, hidden in all output of a job.

    They are the values of parameters and settings with names of secrets, and the values of
    references, if they can be read here. Error messages and logs of jobs may contain them.

    Args:
        home: The home with the requests of jobs.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._kept: dict[str, tuple[Path, tuple[int, int], tuple[str, ...]]] = {}

    def hide(self, job: str, value: T) -> T:
        """Return plain data of a job, or text, with its secrets hidden."""
        secrets = self._of(job)
        return value if not secrets else _without(value, secrets)

    def hide_in_status(self, status: JobStatus) -> JobStatus:
        """Return a status with secrets hidden, except in state and checkpoint."""
        secrets = self._of(status.id)
        if not secrets:
            return status
        plain = status.to_json()
        kept = {name: plain[name] for name in ("state", "checkpoint")}
        hidden = _without(plain, secrets) | kept
        return msgspec.convert(hidden, prepare_type(JobStatus), str_keys=True)

    def _of(self, job: str) -> tuple[str, ...]:
        known = self._kept.get(job)
        path = self._home.folder(job).request_path if known is None else known[0]
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if known is None or known[1] != stamp:
                found = _secrets_in(json.loads(path.read_bytes()))
                # The name of the job is shown everywhere, and identifies it.
                known = (path, stamp, tuple(each for each in found if each not in job))
                if len(self._kept) >= _JOBS_KEPT_MAX:
                    self._kept.clear()
                self._kept[job] = known
        except (OSError, ValueError, TypeError, AttributeError):  # Missing, or no request.
            return ()
        return known[2]


def _secrets_in(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets that a request has or names, the longest first."""
    found: set[str] = set()
    for group in ("params", "options", "engine", "spark"):
        for name, value in dict(request.get(group) or {}).items():
            if isinstance(value, str):
                found |= _meant(name, value)
    return tuple(sorted((each for each in found if len(each) >= _LENGTH_MIN), key=len))[::-1]


def _meant(name: str, value: str) -> set[str]:
    if not _REFERENCE.match(value):
        return {value} if _SECRET.search(name) else set()
    try:
        return {Secret.parse(value).reveal()}
    except (SecretError, ValueError):  # It cannot be read here.
        return set()


def _without(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {_key(n, secrets): _without(each, secrets) for n, each in value.items()}
    if isinstance(value, list):
        return [_without(each, secrets) for each in value]
    return value


def _key(name: Any, secrets: tuple[str, ...]) -> Any:
    """Return a key with secrets hidden; a single word may be the name of a field."""
    return name if str(name).isidentifier() else _without(name, secrets)
