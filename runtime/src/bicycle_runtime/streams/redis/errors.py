"""Errors of the Redis backend."""

from __future__ import annotations

from bicycle_runtime.streams.errors import CommitNotAllowedError, StreamConnectError, StreamError

STREAM_MISSING = StreamConnectError.row(
    "BIC-2670",
    "there is no stream {key!r} in {address}, so there can be no group of it",
    cause="A consumer with a group names a stream that does not exist, and may not make it.",
    fix="produce to it first, or let it be made with the option make_stream=true",
)
FIELD_MISSING = StreamError.row(
    "BIC-2671",
    "message {id} of stream {key!r} in {address} has no field {field!r}; it has {found}",
    cause="Another program wrote fields of other names.",
    fix="name the field of the payload with the option message_field; the next call goes on",
)
ID_UNUSABLE = StreamError.row(
    "BIC-2672",
    "message {id} of stream {key!r} in {address} has an id that no sequence stands for",
    cause="More than 65,536 messages of one millisecond, ids that a program chose, or ids whose "
    "times are not in what the option timestamps says.",
    fix="let Redis choose the ids, and set timestamps as it is where they are sent; the next call "
    "goes on",
)
REFUSED = StreamError.row(
    "BIC-2673",
    "{address} does not take a message of stream {key!r}: {reason}",
    cause="The server answered a message with an error: its time is before that of the last one, "
    "memory is full, the key is no stream, or we may not do this (timestamps=ns runs a script).",
    fix="send messages of one stream in the order of their times, and see to what the server says",
)
COMMITS_ITSELF = CommitNotAllowedError.row(
    "BIC-2674",
    "a consumer with auto_commit={auto_commit} does that by itself, so it cannot {action}",
    cause="The option auto_commit and calls of ack or commit contradict each other.",
    fix="set auto_commit=disabled to acknowledge and commit by calls; rolling takes ack(message)",
)
LOGIN_REFUSED = StreamConnectError.row(
    "BIC-2675",
    "{address} refuses us: {reason}",
    cause="User name, password, rights or the number of the database are wrong.",
    fix="check the options username, password and db, and what the user may do",
)
