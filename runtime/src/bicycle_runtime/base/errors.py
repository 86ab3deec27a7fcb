"""The runtime's own error base, and the way back from an error's JSON form to the error.

Each room has an ``errors.py`` with its own codes; here stand the errors of configuration
(BIC-11xx), since every room has options, and those of storage (BIC-113x). This module does not
decide how an error is shown: the doors do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_sdk.errors import BicycleError


class ConfigError(BicycleError):
    """Settings that cannot be used together, or not here."""

    code = "BIC-1100"
    message = "configuration refused: {problem}"
    fix = "{hint}"


class OptionError(ConfigError):
    """A value has the wrong type or lies out of bounds."""

    code = "BIC-1101"
    message = "option {name!r} of {group} is {found!r}; expected {expected}"
    fix = "set {name} to {expected}"


class UnknownOptionError(ConfigError):
    """A name that is no option. ``known`` lists all names, ``closest`` is the likeliest or None."""

    code = "BIC-1102"
    message = "{group} has no option {name!r}{suggestion}"
    fix = "use one of: {known_text}"


class MissingOptionError(ConfigError):
    """An option without a default was not given."""

    code = "BIC-1103"
    message = "{group} needs the option {name!r} ({doc})"
    fix = "set {name} to {expected}"


class StorageError(BicycleError):
    """The storage refused an operation (permission, a broken disk, an answer nobody expects)."""

    code = "BIC-1130"
    message = "storage {url}: cannot {action} {path!r}: {reason}"
    fix = "check that the location exists, is writable and has space; nothing was changed"


class ObjectExistsError(BicycleError):
    """An object that may be created only once is already there."""

    code = "BIC-1131"
    message = "storage {url}: {path!r} exists already; somebody else created it first"
    fix = "make sure that only one driver runs this job on this checkpoint directory"


class ObjectMissingError(BicycleError):
    """An object that must be there is not."""

    code = "BIC-1132"
    message = "storage {url}: {path!r} does not exist"
    fix = "check the checkpoint directory; files of a running job must not be removed by hand"


STORAGE_FULL = StorageError.row(
    "BIC-1133",
    "storage {url} is full: cannot {action} {path!r}: {reason}",
    cause="There is no space left, or a quota is used up.",
    fix="make space there: all sealed epochs are intact, and a job that ended goes on with the "
    "same command; smaller --retained-epochs and --retained-age-ms need less",
)
ATOMIC_CREATE_MISSING = StorageError.row(
    "BIC-1134",
    "storage {url} cannot hold checkpoints: {reason}",
    cause="The storage cannot create an object only if it is absent, on which all safety rests.",
    fix="use a storage with conditional writes: a local directory, or S3 and servers that answer "
    "`If-None-Match: *` atomically",
)


class StorageUnreachableError(StorageError):
    """The storage did not answer, or said again and again that it is too busy."""

    code = "BIC-1135"
    message = "storage {url} does not answer: cannot {action} {path!r}: {reason}"
    fix = (
        "check that it runs and the network to it. A job that runs waits for it and goes on from "
        "the last sealed epoch; a start that meets this fails: run the same command again"
    )


STORAGE_ACCESS_DENIED = StorageError.row(
    "BIC-1136",
    "storage {url} does not let us {action} {path!r}: {reason}",
    cause="The credentials are missing, wrong, or not enough.",
    fix="give driver and workers credentials that may list, read, write and delete there, by "
    "environment or profile, as the cloud's own tools take them",
)
STORAGE_MISSING = StorageError.row(
    "BIC-1137",
    "storage {url}: its bucket does not exist; cannot {action} {path!r}",
    cause="The bucket or container of a URL does not exist.",
    fix="create the bucket, or name another --checkpoint-dir; nothing was changed",
)
STORAGE_DRIVER_MISSING = StorageError.row(
    "BIC-1138",
    "storage {url} cannot be opened: {reason}",
    cause="There is no driver for the scheme of a URL.",
    fix="install what the scheme needs; for s3:// that is bicycle-runtime[s3]",
)


class UnsafePathError(BicycleError):
    """A path that a file of a checkpoint or savepoint names leads out of its directory."""

    code = "BIC-1139"
    message = "path {path!r} is refused: {problem}"
    fix = (
        "do not use this savepoint or checkpoint directory unless you know who changed it: nothing "
        "that Bicycle writes looks like this; nothing was read, written or removed at that path"
    )


class UnknownError(BicycleError):
    """An error of another version or of an absent extension; its words and its code are kept."""

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
        the code is foreign or its texts ask for other facts than were written.

    Example:
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
