"""Policies for records on which a function raised: the values of ``on_error``.

Example:
    >>> error_policy(retry(3, backoff=timedelta(seconds=1)).then(dead_letter())).retries
    3
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from bicycle_sdk.arguments import require_timedelta, require_whole
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import ErrorAction, ErrorPolicy

__all__ = [
    "BACKOFF_MS_MAX",
    "OnError",
    "Retry",
    "dead_letter",
    "error_policy",
    "fail",
    "retry",
    "skip",
]

_HINT = "see on_error in the guide to writing a plugin"
_RETRIES_MAX = 1_000
BACKOFF_MS_MAX = 60_000
_Word = Literal["fail", "skip", "dead_letter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy that calls the function again, at most ``retries`` times.

    ``backoff_ms`` is the first pause; each is twice as long as the pause before, up to a minute.
    """

    retries: int
    backoff_ms: int

    def then(self, policy: ErrorPolicy | _Word) -> ErrorPolicy:
        """Return a policy that retries first, and then follows ``policy``."""
        return replace(_policy(policy), retries=self.retries, backoff_ms=self.backoff_ms)


OnError = ErrorPolicy | Retry | _Word


def fail() -> ErrorPolicy:
    """Return the default policy: the job fails, and its restart strategy decides."""
    return ErrorPolicy(action=ErrorAction.FAIL)


def skip() -> ErrorPolicy:
    """Return a policy that drops and counts the record."""
    return ErrorPolicy(action=ErrorAction.SKIP)


def dead_letter() -> ErrorPolicy:
    """Return a policy that stores the record with its origin, exception and traceback."""
    return ErrorPolicy(action=ErrorAction.DEAD_LETTER)


def retry(n: int, *, backoff: timedelta = timedelta(milliseconds=100)) -> Retry:
    """Return a policy of up to ``n`` retries; then the job fails, or see ``.then(…)``.

    Args:
        n: Calls after the first, 1 to 1 000.
        backoff: Pause before the first retry, up to a minute; it doubles each time, up to a minute.
    """
    require_whole("retry", n, low=1, high=_RETRIES_MAX)
    backoff_ms = require_timedelta("backoff", backoff) // timedelta(milliseconds=1)
    if not 0 <= backoff_ms <= BACKOFF_MS_MAX:
        raise StreamDefinitionError(
            call="retry",
            problem=f"backoff is {backoff_ms} ms, expected 0..{BACKOFF_MS_MAX}",
            hint=_HINT,
        )
    return Retry(retries=n, backoff_ms=backoff_ms)


def error_policy(value: OnError, *, max_error_rate: float | None = None) -> ErrorPolicy:
    """Return the policy that a value of ``on_error`` represents.

    Raises:
        StreamDefinitionError: an unknown word, or a rate that is outside 0..1 or has no use.
    """
    policy = _policy(value)
    if max_error_rate is None:
        return policy
    if policy.action is ErrorAction.FAIL:
        problem = (
            "max_error_rate needs skip or dead_letter: with fail, the first error ends the job"
        )
    elif not _is_share(max_error_rate):
        problem = f"max_error_rate is {max_error_rate!r}, expected 0..1"
    else:
        return replace(policy, max_error_rate=float(max_error_rate))
    raise StreamDefinitionError(call="on_error", problem=problem, hint=_HINT)


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1


def _policy(value: object) -> ErrorPolicy:
    if isinstance(value, ErrorPolicy):
        return value
    if isinstance(value, Retry):
        return value.then(fail())
    for action in ErrorAction:
        if action.value == value:
            return ErrorPolicy(action=action)
    if callable(value):
        problem = f"{getattr(value, '__name__', value)} is a function"
        raise StreamDefinitionError(
            call="on_error", problem=problem, hint="call it: on_error(skip())"
        )
    known = ", ".join(repr(action.value) for action in ErrorAction)
    raise StreamDefinitionError(
        call="on_error", problem=f"expected one of {known}, retry(…), got {value!r}", hint=_HINT
    )
