"""Errors of the HTTP sink. Codes 31xx."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

HTTP_UNREACHABLE = BicycleError.row(
    "BIC-3100",
    "vertex {vertex!r}: {url} does not take requests after {waited_ms} ms: {reason}",
    cause="No server answers, or it says that it cannot take requests now.",
    fix="see that the server runs and takes requests there, then start again: output that is "
    "sealed is kept",
)
HTTP_REFUSED = BicycleError.row(
    "BIC-3101",
    "vertex {vertex!r}: {url} refused a request of epoch {epoch} with {status}: {reason}; its "
    "output is kept",
    cause="The server refuses requests for good: the address or the rights are wrong, or a record "
    "is, and on_refused is fail.",
    fix="give the right url and headers, or set on_refused=keep for records, and start again",
)
