"""Errors of the file backend."""

from bicycle_streams.errors import StreamConnectError, StreamError

FILE_MISSING = StreamConnectError.row(
    "BIC-2630",
    "file {path} does not exist",
    cause="The file of an address does not exist, and its creation was not requested.",
    fix=(
        "check the path; `bicycle stream produce` creates the file, and programs create it with "
        "the option create=if-missing"
    ),
)
FILE_EXISTS = StreamConnectError.row(
    "BIC-2631",
    "file {path} already exists; it is unchanged",
    cause="A file must be new, but already exists.",
    fix="choose another path, or append to it with the option create=if-missing",
)
FILE_UNREADABLE = StreamConnectError.row(
    "BIC-2632",
    "file {path} cannot be opened: {reason}",
    cause="The operating system cannot open a file of streams.",
    fix=(
        "check permissions, and that the path is a file in an existing folder; a stream of the "
        "file has the address file://./events.ss/STREAM, the file itself file://./events.ss/"
    ),
)
FILE_IN_USE = StreamConnectError.row(
    "BIC-2633",
    "{path} is already open for writing in another process",
    cause="Two processes would append to one file.",
    fix="send through one process, or use a separate file for each process",
)
FILE_NAME_TOO_LONG = StreamConnectError.row(
    "BIC-2634",
    "the name of {path} must have at most 111 bytes, got {size_bytes}",
    cause="The name of a new file does not fit into the header of the file.",
    fix="choose a shorter file name; the length of folder names is not limited",
)
BEACON_INTERVAL_INVALID = StreamConnectError.row(
    "BIC-2635",
    "beacon interval must be a positive multiple of 1024 bytes, got {found}",
    cause="Beacons are written at multiples of 1024 bytes.",
    fix="set beacon_interval_bytes to 1024, 2048, … up to 1GiB; 1MiB is usual",
)


class FileFormatError(StreamError):
    """The bytes of a file do not match the format."""

    code = "BIC-2636"
    message = "{path} is damaged at byte {offset}: {problem}"
    fix = (
        "list all damage with `bicycle stream verify`; `bicycle stream repair` writes a new file "
        "without the damaged messages"
    )


NOT_A_STREAM_FILE = FileFormatError.row(
    "BIC-2637",
    "{path} is not a file of streams: it begins with {found}",
    cause="The first bytes of a file do not match the format.",
    fix="check the path; a file of streams begins with the bytes 'Ss'",
)
VERSION_UNKNOWN = FileFormatError.row(
    "BIC-2638",
    "{path} must have format version 1, got {found}",
    cause="A newer program wrote the file.",
    fix="read it with the program that wrote it",
)
FILE_CUT_OFF = FileFormatError.row(
    "BIC-2639",
    "{path} ends inside a message at byte {offset}",
    cause="The writer of a file ended in the middle of a message, or still writes it.",
    fix="read the file live to wait for the rest; the next writer truncates the incomplete message",
)


FILE_REMOVED = StreamError.row(
    "BIC-2640",
    "file {path} was removed or replaced",
    cause="The open file is no longer at its path.",
    fix="connect again to read the current file",
)
FILE_LIMIT = StreamError.row(
    "BIC-2641",
    "{path} must not exceed {limit_bytes} bytes; the message was not written",
    cause="A message would exceed the size limit of the file.",
    fix="send to a new file, or raise file_size_limit_bytes",
)
MESSAGE_TOO_LARGE = StreamError.row(
    "BIC-2642",
    "message for {path} must have at most 4 GiB, got {size_bytes} bytes",
    cause="The format stores the size of a payload in 32 bits.",
    fix="split the payload",
)
WRITE_FAILED = StreamError.row(
    "BIC-2643",
    "cannot write to {path}: {reason}; the file ends with the last message that has a receipt",
    cause="The disk is full or broken.",
    fix="free space, and create another producer; send messages without a receipt again",
)
INTERNAL_KEY = StreamError.row(
    "BIC-2644",
    "stream {key!r} is reserved by the format",
    cause="A stream key is reserved.",
    fix="choose another key; SEA_STREAMER_WILDCARD is for consumers without a group",
)
POSITIONS_UNUSABLE = StreamError.row(
    "BIC-2645",
    "consumer positions in {path} cannot be used: {reason}",
    cause="The database of committed positions is damaged, locked or not writable.",
    fix="check permissions and space there, or choose another location with the option positions",
)
LATEST_NOT_LIVE = StreamError.row(
    "BIC-2646",
    "a consumer of {path} with start='latest' and is_live=False would read nothing",
    cause="``start='latest'`` and ``is_live=False`` were combined.",
    fix="use start='earliest' to read existing messages, or is_live=True to wait for new messages",
)
GROUP_DIFFERS = StreamError.row(
    "BIC-2647",
    "group {group!r} of {path} reads {found}, but this consumer requests {asked}",
    cause="Consumers of one group requested different streams or another start.",
    fix="use the same streams and start for all consumers of a group, or use another group",
)
