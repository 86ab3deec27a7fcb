"""Errors of the file backend."""

from __future__ import annotations

from bicycle_runtime.streams.errors import StreamConnectError, StreamError

FILE_MISSING = StreamConnectError.row(
    "BIC-2630",
    "there is no file {path}",
    cause="The file of an address does not exist, and is not to be created.",
    fix="check the path; `bicycle stream produce` makes it, and programs that send with the option "
    "create=if-missing",
)
FILE_EXISTS = StreamConnectError.row(
    "BIC-2631",
    "the file {path} exists already; it is unchanged",
    cause="A file that was to be new is there.",
    fix="choose another path, or append to it with the option create=if-missing",
)
FILE_UNREADABLE = StreamConnectError.row(
    "BIC-2632",
    "the file {path} cannot be opened: {reason}",
    cause="The system refuses to open a file of streams.",
    fix="check rights, and that it is a file in a folder that exists; a stream of it is addressed "
    "as file://./events.ss/STREAM, the file alone as file://./events.ss/",
)
FILE_IN_USE = StreamConnectError.row(
    "BIC-2633",
    "another process appends to {path}",
    cause="Two processes want to append to one file.",
    fix="send through one process, or let each have its own file",
)
FILE_NAME_TOO_LONG = StreamConnectError.row(
    "BIC-2634",
    "the file name of {path} has {size_bytes} bytes, and the header of a file holds 111",
    cause="The name of a new file does not fit into its header.",
    fix="choose a shorter name; the folders may be as long as they like",
)
BEACON_INTERVAL_INVALID = StreamConnectError.row(
    "BIC-2635",
    "a beacon interval of {found} bytes is none: it is a positive multiple of 1024",
    cause="Beacons lie at multiples of 1024 bytes.",
    fix="set beacon_interval_bytes to 1024, 2048, … up to 1GiB; 1MiB is usual",
)


class FileFormatError(StreamError):
    """The bytes of a file are not what the format says."""

    code = "BIC-2636"
    message = "{path} is damaged at byte {offset}: {problem}"
    fix = (
        "verify the file, which tells all that is broken, and repair it, which writes a new one "
        "without that"
    )


NOT_A_STREAM_FILE = FileFormatError.row(
    "BIC-2637",
    "{path} is no file of streams: it begins with {found}",
    cause="The first bytes are not those of the format.",
    fix="check the path; a file of streams begins with 'Ss' and its name",
)
VERSION_UNKNOWN = FileFormatError.row(
    "BIC-2638",
    "{path} has version {found} of the format, and version 1 is known",
    cause="A newer program wrote the file.",
    fix="read it with the program that wrote it",
)
FILE_CUT_OFF = FileFormatError.row(
    "BIC-2639",
    "{path} ends inside a message, at byte {offset}",
    cause="The writer died while it wrote, or still writes; nothing behind this place is there.",
    fix="read it live to wait for the rest; the next writer cuts the unfinished message off",
)


FILE_REMOVED = StreamError.row(
    "BIC-2640",
    "the file {path} was removed or replaced",
    cause="The file that is read is no longer at its path.",
    fix="connect again to read what is there now",
)
FILE_LIMIT = StreamError.row(
    "BIC-2641",
    "{path} would grow beyond {limit_bytes} bytes; the message was not written",
    cause="A message would make the file larger than it may be.",
    fix="send to a new file, or raise file_size_limit_bytes",
)
MESSAGE_TOO_LARGE = StreamError.row(
    "BIC-2642",
    "a message of {size_bytes} bytes does not fit into {path}: 4 GiB is the largest",
    cause="The size of a payload has 32 bits in the format.",
    fix="split the payload",
)
WRITE_FAILED = StreamError.row(
    "BIC-2643",
    "cannot write to {path}: {reason}; it ends with the last message that has a receipt",
    cause="The disk is full or broken.",
    fix="make space, and create another producer; send again what has no receipt",
)
INTERNAL_KEY = StreamError.row(
    "BIC-2644",
    "stream {key!r} is reserved by the format",
    cause="A reserved key was used as that of a stream.",
    fix="choose another key; SEA_STREAMER_WILDCARD is for consumers without a group",
)
POSITIONS_UNUSABLE = StreamError.row(
    "BIC-2645",
    "the positions of consumers in {path} cannot be used: {reason}",
    cause="The database of committed positions is broken, locked or not writable.",
    fix="check rights and space there, or name another place by the option positions",
)
LATEST_NOT_LIVE = StreamError.row(
    "BIC-2646",
    "a consumer of {path} would begin at the end and not wait there, so it would read nothing",
    cause="start='latest' and is_live=False were given together.",
    fix="use start='earliest' to read what is there, or is_live=True to wait for more",
)
GROUP_DIFFERS = StreamError.row(
    "BIC-2647",
    "group {group!r} of {path} reads {found}, and this consumer asks for {asked}",
    cause="Consumers of one group asked for different streams or another start.",
    fix="let all consumers of a group ask for the same, or use another group",
)
