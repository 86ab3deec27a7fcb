"""The base of the runtime's errors, and errors restored from their JSON form.

Each room has an ``errors.py`` with its own codes; this module has the errors of configuration
(BIC-11xx), since every room has options, and of storage (BIC-113x). The doors decide how an error
is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_sdk.errors import BicycleError


class StorageError(BicycleError):
    """The storage refused an operation: permission, broken disk, unexpected response."""

    code = "BIC-1130"
    message = "storage {url}: cannot {action} {path!r}: {reason}"
    fix = "check that the location exists, is writable and has space; nothing was changed"


class ObjectExistsError(BicycleError):
    """An object that may be created only once already exists."""

    code = "BIC-1131"
    message = "storage {url}: {path!r} already exists; another process created it first"
    fix = "run only one driver of this job on this checkpoint directory"


class ObjectMissingError(BicycleError):
    """A required object does not exist."""

    code = "BIC-1132"
    message = "storage {url}: {path!r} does not exist"
    fix = "check the checkpoint directory; never remove files of a running job by hand"


STORAGE_FULL = StorageError.row(
    "BIC-1133",
    "storage {url} is full: cannot {action} {path!r}: {reason}",
    cause="The storage has no space left, or a quota is used up.",
    fix=(
        "free space there. All sealed epochs are intact, and the same command continues a job that "
        "ended. Smaller --retained-epochs and --retained-age-ms need less space"
    ),
)
ATOMIC_CREATE_MISSING = StorageError.row(
    "BIC-1134",
    "storage {url} cannot hold checkpoints: {reason}",
    cause=(
        "The storage cannot create an object only if it is absent, which exactly-once results "
        "depend on."
    ),
    fix=(
        "use a storage with conditional writes: a local directory, or S3 and servers that support "
        "`If-None-Match: *` atomically"
    ),
)


class StorageUnreachableError(StorageError):
    """The storage did not respond, or reported repeatedly that it is too busy."""

    code = "BIC-1135"
    message = "storage {url} does not respond: cannot {action} {path!r}: {reason}"
    fix = (
        "check the storage and the network. A running job waits and continues from the last sealed "
        "epoch; after a failed start, run the same command again"
    )


STORAGE_ACCESS_DENIED = StorageError.row(
    "BIC-1136",
    "storage {url} denies access: cannot {action} {path!r}: {reason}",
    cause="The credentials are missing, wrong or insufficient.",
    fix=(
        "configure credentials for the driver and the workers (environment variables or a profile "
        "of the cloud provider) that may list, read, write and delete there"
    ),
)
STORAGE_MISSING = StorageError.row(
    "BIC-1137",
    "storage {url}: its bucket does not exist; cannot {action} {path!r}",
    cause="The bucket or container of a URL does not exist.",
    fix="create the bucket, or choose another --checkpoint-dir; nothing was changed",
)
STORAGE_DRIVER_MISSING = StorageError.row(
    "BIC-1138",
    "storage {url} cannot be opened: {reason}",
    cause="No driver is installed for the scheme of a URL.",
    fix="install the driver of the scheme; for s3:// it is bicycle-runtime[s3]",
)

STORED_NEWER = BicycleError.row(
    "BIC-1140",
    "file {path} has format version {found}, and this runtime reads versions up to {known}",
    cause="A newer version of bicycle-runtime wrote a file of a job, of a plugin or of its dead "
    "letters.",
    fix="use the version of bicycle-runtime that wrote it, or a newer one; nothing was changed",
)


class UnsafePathError(BicycleError):
    """A checkpoint or savepoint names a path outside of its directory."""

    code = "BIC-1139"
    message = "path {path!r} is rejected: {problem}"
    fix = (
        "do not use this savepoint or checkpoint directory unless you trust its source: Bicycle "
        "never writes such paths; nothing was read, written or removed at that path"
    )


HEADER_UNUSABLE = BicycleError.row(
    "BIC-1141",
    "the value of HTTP header {name!r} contains a character that HTTP does not permit",
    cause="A header, or the secret in it, contains a control character or is not ASCII text.",
    fix="remove newlines, control characters, other letters than ASCII, and spaces at both ends",
)


class UnknownError(BicycleError):
    """An error of another version or missing extension; its text and code are kept."""

    code = "BIC-1110"
    message = "{original_message}"
    fix = "{original_fix}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(**{"original_code": self.code, **facts})
        self.code = self.facts["original_code"]  # As people and scripts look it up.


def error_from_json(data: Mapping[str, Any]) -> BicycleError:
    """Return the error that ``BicycleError.to_json`` wrote.

    Args:
        data: The keys ``code``, ``message``, ``fix`` and ``facts``.

    Returns:
        An error of the class or row with this code; an ``UnknownError`` that keeps the words when
        the code is foreign or its templates need other facts than were written.

    Example:
        >>> from bicycle_sdk.errors import ConfigError
        >>> error = ConfigError(problem="two masters are given", hint="give one")
        >>> error_from_json(error.to_json()).facts
        {'problem': 'two masters are given', 'hint': 'give one'}
    """
    facts = dict(data.get("facts") or {})
    entry = BicycleError.by_code.get(str(data.get("code")))
    if entry is not None and entry.fact_names() <= facts.keys():
        return entry(**facts)
    return UnknownError(
        original_code=data.get("code", "BIC-0000"),
        original_message=data.get("message", ""),
        original_fix=data.get("fix", ""),
        original_facts=facts,
    )
