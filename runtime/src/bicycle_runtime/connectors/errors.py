"""Errors of connectors: unknown words and options, unreadable input, unwritable output.

Codes 17xx. They name the vertex or the file, so that a user can act without reading a log.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = [
    "ConnectorOptionError",
    "ConnectorPayloadError",
    "CsvHeaderError",
    "InputChangedError",
    "InputDamagedError",
    "InputMissingError",
    "InputUnreadableError",
    "JournalDamagedError",
    "NoParquetFileError",
    "OpenPartDamagedError",
    "OutputHeldError",
    "OutputTakenOverError",
    "OutputUnwritableError",
    "PortUnavailableError",
    "PublishInterruptedError",
    "StagedFileDamagedError",
    "UnknownConnectorError",
]


class UnknownConnectorError(BicycleError):
    """No extension offers a connector of this name."""

    code = "BIC-1701"
    message = (
        "vertex {vertex!r}: there is no {direction} connector {word!r}; "
        "known are {known_text}{refusal_text}"
    )
    fix = "{hint}"


class UnknownStateBackendError(BicycleError):
    """No extension offers a state backend of this name."""

    code = "BIC-1704"
    message = "there is no state backend {word!r}; known are {known_text}{refusal_text}"
    fix = "write one of them, or install the extension that offers it where the job starts"


class ConnectorOptionError(BicycleError):
    """A property of a source or sink is unknown, missing, ill-typed or out of bounds."""

    code = "BIC-1702"
    message = "vertex {vertex!r}, connector {connector!r}, property {name!r}: {problem}"
    fix = "{hint}"


class ConnectorPayloadError(BicycleError):
    """An object that must travel beside the graph is absent or of the wrong type."""

    code = "BIC-1703"
    message = (
        "vertex {vertex!r}, connector {connector!r}: payload {role!r} is {found}; "
        "{expected} is expected"
    )
    fix = "build the source with the SDK, which sets this payload"


class InputMissingError(BicycleError):
    """The path of a file source leads to nothing."""

    code = "BIC-1710"
    message = "vertex {vertex!r}: input {path!r} {problem}; nothing was read"
    fix = "{hint}"


class InputChangedError(BicycleError):
    """A file that was partly read was removed, replaced or cut while it was still needed."""

    code = "BIC-1711"
    message = (
        "input file {path!r} was read up to byte {offset}, but now {problem}; "
        "nothing of this epoch was published"
    )
    fix = "put the original file back, or read from the start with another checkpoint directory"


class InputUnreadableError(BicycleError):
    """The operating system refused to open or read a file."""

    code = "BIC-1712"
    message = "input file {path!r} cannot be read: {reason}"
    fix = "check that the file exists and is readable on every host that runs tasks"


class InputDamagedError(BicycleError):
    """A compressed file cannot be decompressed."""

    code = "BIC-1713"
    message = "input file {path!r} is damaged or cut behind decompressed byte {offset}: {reason}"
    fix = "replace the file by a whole one (write it under a .tmp name and rename it when complete)"


class NoParquetFileError(BicycleError):
    """A file is no Parquet file, or not a whole one."""

    code = "BIC-1715"
    message = "input file {path!r} cannot be read as Parquet: {reason}"
    fix = "replace the file by a whole one (write it under a .tmp name and rename it when complete)"


class CsvHeaderError(BicycleError):
    """The header of a CSV file gives two columns one name, and records take fields by name."""

    code = "BIC-1716"
    message = "input file {path!r}: its header names more than one column {name_text}"
    fix = "give each column a name of its own, or take the fields by place: type=tuple[str, …]"


class OutputUnwritableError(BicycleError):
    """The output directory of a file sink cannot be used."""

    code = "BIC-1720"
    message = "vertex {vertex!r}: output {path!r} cannot be written: {reason}; nothing was changed"
    fix = "give a directory that may be created and written by this user"


class StagedFileDamagedError(BicycleError):
    """Staged output is not what its writer reported."""

    code = "BIC-1721"
    message = (
        "staged file {path!r} has {found_byte_count} bytes with checksum {found_crc32:08x}, "
        "sealed were {byte_count} with {crc32:08x}; it was not published"
    )
    fix = "restore the file from a copy of the checkpoint directory, or restart from an older epoch"


class OpenPartDamagedError(BicycleError):
    """The part under construction of a file sink is gone or too short."""

    code = "BIC-1722"
    message = "open part {path!r} has {found_byte_count} bytes, at least {byte_count} were sealed"
    fix = "restore the file from a copy of the checkpoint directory; published parts are whole"


class OutputTakenOverError(BicycleError):
    """Another run has taken over the output, so this one may not publish any more."""

    code = "BIC-1724"
    message = (
        "vertex {vertex!r}: another run has taken over the output {path!r}, our mark {mark!r} is "
        "not there any more; epoch {epoch} was not published by this one"
    )
    fix = "let this process end: the other run goes on; if there is none, start the job again"


class PublishInterruptedError(BicycleError):
    """The job had to end while the publication of an epoch waited for another system."""

    code = "BIC-1725"
    message = (
        "vertex {vertex!r}: stopped while epoch {epoch} waited to be published to {target!r}: "
        "{reason}; its output is kept"
    )
    fix = "start the job again when {target!r} answers: it publishes this epoch first"


class OutputHeldError(BicycleError):
    """A job that may still run goes on with the very same parts, as after one savepoint."""

    code = "BIC-1726"
    message = (
        "vertex {vertex!r}: job {owner!r} (process {pid} on {host} since {since}, its files in "
        "{place!r}) goes on with the parts of run {run} in the output {path!r}; "
        "nothing was changed there"
    )
    fix = (
        "end job {owner!r}, or give this one another output, and repeat the command; "
        "if that job is gone for good, remove {mark!r}"
    )


class PortUnavailableError(BicycleError):
    """A socket connector cannot listen on its address."""

    code = "BIC-1730"
    message = "vertex {vertex!r}: cannot listen on {host}:{port}: {reason}"
    fix = "stop the program that uses port {port}, or choose another port (0 takes any free one)"


class JournalDamagedError(BicycleError):
    """The journal of a socket source lacks bytes that were received and not yet processed."""

    code = "BIC-1740"
    message = "journal {path!r} of a socket source: {problem}"
    fix = "restore the journal from a copy of the checkpoint directory; the job needs it"
