"""Errors of the tools."""

from bicycle_streams.errors import StreamError, StreamUnsupportedError

SAME_STREAMS = StreamError.row(
    "BIC-2660",
    "{address} is both input and output, so the relay would never end",
    cause="Input and output of a relay are the same.",
    fix="choose another output; only stdio:// may be both",
)
RECORD_UNREADABLE = StreamError.row(
    "BIC-2661",
    "line {line} is not a record with a payload: {reason}; {sent} earlier records were sent",
    cause="A line of NDJSON for ``produce`` does not have the expected fields.",
    fix=(
        'write {{"key": "orders", "payload": …}}, or the output of `bicycle stream cat --format '
        "ndjson`"
    ),
)
PATH_TAKEN = StreamError.row(
    "BIC-2662",
    "named pipe {path} cannot be created: {reason}",
    cause="The path already exists, or the folder is not writable.",
    fix="choose a path that does not exist, in a writable folder",
)
LINE_TOO_LONG = StreamError.row(
    "BIC-2663",
    "line of the named pipe {path} must have at most {limit_bytes} bytes; this line was not sent",
    cause="The input of a named pipe has no line breaks, or very long lines.",
    fix="end each message with a newline",
)
NOTHING_KEPT = StreamUnsupportedError.row(
    "BIC-2668",
    "{address} keeps no messages, so --once has nothing to show",
    cause="The backend delivers only new messages, and ``--once`` does not wait for them.",
    fix="remove --once to watch new messages",
)
