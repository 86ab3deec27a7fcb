"""The output of a failed command: the error as text or JSON, and the exit code."""

from __future__ import annotations

import errno
import sys
import traceback

import click

from bicycle_sdk.errors import BicycleError
from bicycle_streams.cli.errors import INTERNAL_ERROR, OUTPUT_FULL, USAGE_REFUSED
from bicycle_streams.cli.exit_codes import exit_code_of
from bicycle_streams.cli.rendering import answer_json, error_text, show_text

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def refuse(error: Exception, *, as_json: bool, is_debugged: bool) -> int:
    """Write an error where people or programs look for it, and return its exit code.

    Args:
        error: Any error; one that is not ours is a bug, or wrong words on the command line.
        as_json: Write one JSON document to standard output.
        is_debugged: Show our own traceback, too.
    """
    told = _as_ours(error)
    if is_debugged:
        traceback.print_exc(file=sys.stderr)
    if as_json:
        answer_json(told.to_json())
    else:
        show_text(error_text(told), err=True)
    return exit_code_of(told)


def _as_ours(error: Exception) -> BicycleError:
    if isinstance(error, BicycleError):
        return error
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "bicycle"
        return USAGE_REFUSED(problem=error.format_message(), command=command)
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        return OUTPUT_FULL(reason=error.strerror)
    return INTERNAL_ERROR(
        exception=type(error).__name__, exception_message=str(error) or "no message"
    )
