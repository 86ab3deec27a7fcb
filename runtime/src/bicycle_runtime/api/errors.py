"""Errors of requests, and which answer each error is given with."""

from __future__ import annotations

import errno
import sqlite3

from bicycle_runtime.service.errors import ANSWERS
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access import answers

ROUTE_UNKNOWN = BicycleError.row(
    "BIC-2401",
    "no resource at {path}",
    cause="The API has no resource at this path.",
    fix="see the routes in /api/openapi.json",
)


METHOD_NOT_ALLOWED = BicycleError.row(
    "BIC-2402",
    "{path} does not support {method}",
    cause="The path exists, but not for this method.",
    fix="use {allowed}",
)


QUERY_UNREADABLE = BicycleError.row(
    "BIC-2403",
    "query is invalid: {problem}",
    cause="A query parameter is unknown, or its value cannot be parsed.",
    fix="use the parameters of this route: {known_text}",
)


BODY_UNREADABLE = BicycleError.row(
    "BIC-2404",
    "request body is invalid: {problem}",
    cause="The body is not JSON or a form, or does not match the schema of the route.",
    fix="send a body as described in /api/openapi.json for this path",
)


BODY_TOO_LARGE = BicycleError.row(
    "BIC-2405",
    "request body exceeds {bytes_max} bytes",
    cause="The body is larger than the limit.",
    fix="send a smaller body",
)


MEDIA_TYPE_UNSUPPORTED = BicycleError.row(
    "BIC-2406",
    "content type {found!r} is not supported here",
    cause="The content type of the body is missing or not supported.",
    fix="send JSON with the header Content-Type: application/json",
)


class HostUnknownError(BicycleError):
    """The Host header names another host, as in a DNS rebinding attack."""

    code = "BIC-2407"
    message = "the host {host!r} is not a name of this service"
    fix = "use the address that `bicycle up` prints"


class ForeignOriginError(BicycleError):
    """A page of another origin sent a request that changes data."""

    code = "BIC-2408"
    message = "requests from {origin!r} may not change data"
    fix = "use the pages of this service, or a program that sends JSON"


BODY_TOO_SLOW = BicycleError.row(
    "BIC-2410",
    "request body did not arrive within {waited_s} s",
    cause="The body of a request arrived too slowly.",
    fix="send the body without delay",
)


DISK_FULL = BicycleError.row(
    "BIC-2411",
    "the disk of the service is full: {path} failed",
    cause="The disk of the home has no free space; read requests still work.",
    fix=(
        "free space, and repeat the request: nothing was changed, and jobs continue as long as "
        "they can"
    ),
)


MESSAGE_UNREADABLE = BicycleError.row(
    "BIC-2412",
    "message of the call is invalid: {problem}",
    cause="A gRPC call has no message, or bytes that are not its message type.",
    fix=(
        "send the message that jobmanager.proto defines for the call; generate the client from "
        "that file"
    ),
)


REQUEST_BROKE = BicycleError.row(
    "BIC-2499",
    "internal error at {path}: {exception}",
    cause="An unexpected exception was raised in the service; its log contains the traceback.",
    fix="report the traceback in the log of the service",
)


# Number of an error -> status code; the others are in ``bicycle_streams.access.answers``.
_ANSWERS = {
    **ANSWERS,
    **dict.fromkeys((2403, 2404, 2412), 400),
    **dict.fromkeys((2407, 2408), 403),
    2401: 404,
    2402: 405,
    2410: 408,
    2405: 413,
    2406: 415,
    2499: 500,
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def answer_code(error: BicycleError) -> int:
    """Return the status code of the answer that an error is.

    Example:
        >>> answer_code(ROUTE_UNKNOWN(path="/api/v1/nothing"))
        404
    """
    return answers.answer_code(error, _ANSWERS)


def broken_error(path: str, error: Exception) -> BicycleError:
    """Return the error for an unexpected exception: a full disk, or a bug.

    Args:
        path: The requested path; a long path is truncated.
        error: The exception.
    """
    path = path[:200]
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if isinstance(error, sqlite3.OperationalError):
        is_full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
    if is_full:
        return DISK_FULL(path=path)
    return REQUEST_BROKE(path=path, exception=type(error).__name__)
