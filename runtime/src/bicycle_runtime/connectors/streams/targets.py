"""What a sink asks of a backend: which epoch a *run* has written, and to write one, whole or not.

A run is a random name that begins with a job and stands in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["ChangedError", "Target", "TargetAwayError", "TargetRefusesError"]


class TargetAwayError(Exception):
    """The backend cannot be asked now, and may be later; never leaves this package."""


class TargetRefusesError(Exception):
    """The backend does not take an epoch; never leaves this package."""


class ChangedError(Exception):
    """Somebody else wrote where an epoch was to be gone on with; never leaves this package."""


class Target(Protocol):
    """One backend. Every call may raise TargetAwayError or TargetRefusesError."""

    def open(self, now_ms: int) -> None:
        """Make what is missing, and keep others out where that can be."""

    def check(self) -> None:
        """Raise what ``open`` would, and make nothing."""

    def written(self, run: str) -> int | None:
        """Return the last epoch that a run has written; None: it has written none."""

    def write(self, run: str, epoch: int, payloads: Iterator[bytes]) -> None:
        """Write an epoch and its number at once, unless it is written."""

    def close(self) -> None:
        """Close what was opened."""
