"""Errors of the tools."""

from __future__ import annotations

from bicycle_runtime.streams.errors import StreamError, StreamUnsupportedError

SAME_STREAMS = StreamError.row(
    "BIC-2660",
    "{address} would be copied to itself, without end",
    cause="Input and output of a relay are the same.",
    fix="name another output; only stdio:// may be both",
)
RECORD_UNREADABLE = StreamError.row(
    "BIC-2661",
    "line {line} is no record with a payload: {reason}; {sent} before it were sent",
    cause="A line of NDJSON to produce has another shape.",
    fix='write {{"key": "orders", "payload": …}}, or what `bicycle stream cat --format ndjson` '
    "shows",
)
PATH_TAKEN = StreamError.row(
    "BIC-2662",
    "cannot make the named pipe {path}: {reason}",
    cause="A file is there already, or the folder takes none.",
    fix="name a path where nothing is, in a folder that you may write to",
)
LINE_TOO_LONG = StreamError.row(
    "BIC-2663",
    "a line of the named pipe {path} has more than {limit_bytes} bytes; nothing of it was sent",
    cause="What is written to a named pipe has no ends of lines, or far between.",
    fix="end each message with a newline",
)
NOTHING_KEPT = StreamUnsupportedError.row(
    "BIC-2668",
    "{address} keeps no messages, so that there is nothing to look at once",
    cause="A look at streams of a backend that only gives what comes was to end at once.",
    fix="leave --once out, and watch what comes",
)
