"""Errors of requests, and which answer each error is given with."""

from __future__ import annotations

import errno
import sqlite3
from typing import Any

from bicycle_sdk.errors import BicycleError

ROUTE_UNKNOWN = BicycleError.row(
    "BIC-2401",
    "there is nothing at {path}",
    cause="The API has nothing at this path.",
    fix="see the routes in /api/openapi.json",
)


METHOD_NOT_ALLOWED = BicycleError.row(
    "BIC-2402",
    "{path} does not take {method}",
    cause="The path is there, and not for this method.",
    fix="use {allowed}",
)


QUERY_UNREADABLE = BicycleError.row(
    "BIC-2403",
    "the query cannot be read: {problem}",
    cause="A word of the query is unknown, or cannot be read as what it is for.",
    fix="this route takes {known_text}",
)


BODY_UNREADABLE = BicycleError.row(
    "BIC-2404",
    "the body cannot be read: {problem}",
    cause="The body is no JSON, or no form, or not of the shape that the route takes.",
    fix="send what /api/openapi.json describes for this path",
)


BODY_TOO_LARGE = BicycleError.row(
    "BIC-2405",
    "the body is larger than {bytes_max} bytes",
    cause="The body is larger than any that is taken.",
    fix="send less",
)


MEDIA_TYPE_UNSUPPORTED = BicycleError.row(
    "BIC-2406",
    "content of type {found!r} is not taken here",
    cause="The body is of a type that is not taken here, or its type is not given.",
    fix="send JSON with the header Content-Type: application/json",
)


class HostUnknownError(BicycleError):
    """The request names a host that this service is not: somebody may lead a browser astray."""

    code = "BIC-2407"
    message = "this service is not called {host!r}"
    fix = "use the address that `bicycle up` printed"


class ForeignOriginError(BicycleError):
    """A page of another origin wants to change something."""

    code = "BIC-2408"
    message = "a request from {origin!r} may change nothing here"
    fix = "use the pages of this service, or a program that sends JSON"


BODY_TOO_SLOW = BicycleError.row(
    "BIC-2410",
    "the body did not come within {waited_s} s",
    cause="The body of a request came too slowly.",
    fix="send it at once",
)


DISK_FULL = BicycleError.row(
    "BIC-2411",
    "the disk of the service is full: {path} could not be done",
    cause="The disk that the home is on has no room left; looking at jobs works all the same.",
    fix="make room on it, and ask again: nothing was changed, and jobs go on as far as they can",
)


MESSAGE_UNREADABLE = BicycleError.row(
    "BIC-2412",
    "the message of the call cannot be read: {problem}",
    cause="A call of gRPC came without a message, or with bytes that are not the one it takes.",
    fix="send the message that jobmanager.proto names for the call; generate the client from it",
)


REQUEST_BROKE = BicycleError.row(
    "BIC-2499",
    "internal error at {path}: {exception}",
    cause="The service failed in a way that it has no words for; its log has the rest.",
    fix="report the traceback in the log of the service",
)


# Code (number behind "BIC-") -> answer. What stands nowhere is a request that cannot be met: 422.
_ANSWERS = {
    1520: 409,  # No epoch is sealed yet.
    1521: 404,
    1522: 404,  # The epoch was collected meanwhile.
    1530: 404,
    1901: 409,  # The job runs.
    1902: 404,
    1930: 404,
    1943: 404,
    1945: 409,
    2301: 409,
    2303: 503,
    2304: 404,
    2306: 409,
    2308: 409,
    2309: 400,
    2310: 409,
    2311: 503,
    2312: 429,
    2315: 503,
    2320: 401,
    2321: 401,
    2322: 403,
    2323: 404,
    2326: 429,
    2327: 403,
    2328: 409,
    2330: 429,
    2331: 503,
    2332: 409,
    2340: 404,
    2341: 409,
    2360: 429,
    2361: 409,
    2401: 404,
    2402: 405,
    2403: 400,
    2404: 400,
    2405: 413,
    2410: 408,
    2411: 503,
    2412: 400,
    2406: 415,
    2407: 403,
    2408: 403,
    2499: 500,
    2517: 503,
    2522: 403,
}
_STORAGE_CODES = range(1_130, 1_140)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PLACES = ("place", "location", "operator", "made")


def answer_code(error: BicycleError) -> int:
    """Return the status code of the answer that an error is.

    Example:
        >>> answer_code(ROUTE_UNKNOWN(path="/api/v1/nothing"))
        404
    """
    digits = error.code.removeprefix("BIC-")
    number = int(digits) if digits.isdigit() else 0
    if number in _STORAGE_CODES:
        return 503
    return _ANSWERS.get(number, 422)


def broken_error(path: str, error: Exception) -> BicycleError:
    """Return what a request met that nobody foresaw as an error: a full disk, or a bug.

    Args:
        path: What was asked; a long one is cut.
        error: What was raised.
    """
    path = path[:200]
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if isinstance(error, sqlite3.OperationalError):
        is_full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
    if is_full:
        return DISK_FULL(path=path)
    return REQUEST_BROKE(path=path, exception=type(error).__name__)


def plain_answer(error: BicycleError) -> dict[str, Any]:
    """Return the one shape of all errors: code, message, fix and place."""
    facts = error.facts
    place = next((str(facts[name]) for name in _PLACES if facts.get(name)), None)
    return {"code": error.code, "message": error.summary, "fix": error.remedy, "place": place}
