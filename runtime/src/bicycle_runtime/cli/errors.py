"""Errors of the command line itself."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

USAGE_REFUSED = BicycleError.row(
    "BIC-2001",
    "{problem}",
    cause="The words of the command line cannot be read.",
    fix="see `{command} --help`",
)
INTERNAL_ERROR = BicycleError.row(
    "BIC-2099",
    "internal error: {exception}: {exception_message}",
    cause="Bicycle itself failed in a way that it has no words for.",
    fix="run the command again with --debug and report the traceback",
)
SERVICE_UNREACHABLE = BicycleError.row(
    "BIC-2010",
    "the service at {url} does not answer: {reason}",
    cause="Nothing listens at the address of the service, or it is none of Bicycle.",
    fix="start it with `bicycle up`, or name the right one with --service",
)
