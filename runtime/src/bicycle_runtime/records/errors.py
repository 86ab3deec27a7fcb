"""Errors of encoding: keys, records, exchange blobs."""

from bicycle_sdk.errors import BicycleError


class KeyEncodingError(BicycleError):
    """The type of a key has no stable encoding."""

    code = "BIC-1201"
    message = "key of type {type_name} cannot be encoded: {reason}"
    fix = (
        "return str, int, bytes, bool, float, None, an Enum, a date, a UUID, a frozen dataclass or "
        "a tuple of these from the key selector"
    )


class RecordDecodingError(BicycleError):
    """The bytes of a record do not match the declared type."""

    code = "BIC-1203"
    message = "records do not match their declared type {declared}: {reason}"
    fix = "use the same version of the job and of bicycle-runtime on the driver and on all workers"


RECORD_UNENCODABLE = BicycleError.row(
    "BIC-1202",
    "record of type {type_name} from {sender} cannot be serialized: {reason}",
    cause="A record cannot be converted to bytes.",
    fix=(
        "emit plain data, or objects that pickle supports; the declared type of the records is "
        "{declared}"
    ),
)
PICKLE_REFUSED = BicycleError.row(
    "BIC-1205",
    "--no-pickle rejects a pickle: {what}",
    cause="State, or records in a loop, would be stored as a pickle or loaded from a pickle.",
    fix=(
        "declare types for all state and for the records of loops (`bicycle plan` lists states "
        "without a type), or run without --no-pickle if you trust the data; nothing was loaded or "
        "stored"
    ),
)
BLOB_UNREADABLE = BicycleError.row(
    "BIC-1204",
    "exchange blob is not readable: {reason}",
    cause="An exchange blob is damaged or was written by another version.",
    fix="use the same version of bicycle-runtime on the driver and on all workers",
)
