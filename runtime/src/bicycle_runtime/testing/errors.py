"""Errors of the harness: tests that ask for what the job does not have."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = ["HarnessError"]


class HarnessError(BicycleError):
    """A test asks for something that the job does not have, or that can not be done now."""

    code = "BIC-2101"
    message = "harness of job {job!r}: {problem}"
    fix = "{hint}"
