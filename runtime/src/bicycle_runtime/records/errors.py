"""Errors of encoding: keys, records, exchange blobs."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class KeyEncodingError(BicycleError):
    """A key has a type that has no stable encoding."""

    code = "BIC-1201"
    message = "a key of type {type_name} cannot be encoded: {reason}"
    fix = (
        "let the key selector return str, int, bytes, bool, float, None, an Enum, a date, a "
        "UUID, a frozen dataclass or a tuple of these"
    )


class RecordDecodingError(BicycleError):
    """The bytes of a record do not have the declared type."""

    code = "BIC-1203"
    message = "records do not have their declared type {declared}: {reason}"
    fix = "use one version of the job and of bicycle-runtime on the driver and on all workers"


RECORD_UNENCODABLE = BicycleError.row(
    "BIC-1202",
    "a record of type {type_name} from {sender} cannot be sent on: {reason}",
    cause="A record cannot be turned into bytes.",
    fix="emit plain data, or what pickle can write; the declared type of records is {declared}",
)
PICKLE_REFUSED = BicycleError.row(
    "BIC-1205",
    "a pickle is refused, as --no-pickle asks for: {what}",
    cause="State, or records in a loop, would be stored as a pickle or read from one.",
    fix="declare types for all state and for the records of loops (`bicycle plan` names what has "
    "none), or run without --no-pickle what you trust; nothing was loaded or stored",
)
BLOB_UNREADABLE = BicycleError.row(
    "BIC-1204",
    "an exchange blob is not readable: {reason}",
    cause="An exchange blob is damaged or of another version.",
    fix="use one version of bicycle-runtime on the driver and on all workers",
)
