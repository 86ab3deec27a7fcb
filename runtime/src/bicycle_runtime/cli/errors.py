"""Errors of the command line itself."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = ["InternalError", "UsageRefusedError"]


class UsageRefusedError(BicycleError):
    """The words of the command line cannot be read."""

    code = "BIC-2001"
    message = "{problem}"
    fix = "see `{command} --help`"


class InternalError(BicycleError):
    """Bicycle itself failed in a way that it has no words for."""

    code = "BIC-2099"
    message = "internal error: {exception}: {exception_message}"
    fix = "run the command again with --debug and report the traceback"
