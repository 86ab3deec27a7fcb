"""Errors of the client toolkit: addresses, invalid calls, and losses of backends.

Each class has a separate code, since programs catch the errors of producers and consumers singly.
The rows of a class are its cases. Errors of one backend are in the folder of the backend.
"""

from __future__ import annotations

from typing import Any

from bicycle_sdk.errors import BicycleError, ErrorRow


class StreamError(BicycleError):
    """A stream cannot be used as requested; the base of all errors of the toolkit."""

    code = "BIC-2600"
    message = "stream {address}: {problem}"
    fix = "{hint}"
    received: bytes | None = None  # The received bytes that are not a message.

    def __init__(self, row: ErrorRow[BicycleError] | None = None, /, **facts: Any) -> None:
        # Keys of streams are texts of a class of theirs, which no report of a task can hold.
        plain = {name: str(f) if isinstance(f, str) else f for name, f in facts.items()}
        super().__init__(row, **plain)


class StreamUrlError(StreamError):
    """An address is invalid, or does not name the stream that the call needs."""

    code = "BIC-2601"
    message = "{address!r} is not a stream address: {problem}"
    fix = "use protocol://node/key, e.g. file://./events.ss/orders or stdio:///clicks"


NO_ENDING_SLASH = StreamUrlError.row(
    "BIC-2602",
    "{address!r} has no slash between the streamer and its streams",
    cause="The address of a stream ends after the host.",
    fix="write {address}/KEY for the stream KEY, or {address}/ for the streamer without a stream",
)
PROTOCOL_REQUIRED = StreamUrlError.row(
    "BIC-2603",
    "{address!r} has no protocol and no node",
    cause="An address has no protocol and no node.",
    fix=(
        "start the address with a protocol: stdio://, file://, kafka://, pulsar://, redis://, "
        "ws://, socket://"
    ),
)
ZERO_NODE = StreamUrlError.row(
    "BIC-2604",
    "{address!r} has no node",
    cause="The address of a stream has no nodes.",
    fix="add at least one node: protocol://host:port",
)
NOT_ONE_STREAM_KEY = StreamUrlError.row(
    "BIC-2605",
    "{address!r} must name exactly one stream, got {key_count:count stream}",
    cause="A call for one stream received an address of no stream, or of several.",
    fix="name one stream after the last slash, or use a call for all of them",
)
MIXED_PROTOCOLS = StreamUrlError.row(
    "BIC-2606",
    "all nodes of {address!r} must have the same protocol, got {protocols}",
    cause="The nodes of an address have different protocols.",
    fix="use one protocol for all nodes of an address",
)


class StreamKeyError(StreamError):
    """A text is not valid as the key of a stream."""

    code = "BIC-2607"
    message = "{key!r} cannot be the key of a stream: {problem}"
    fix = "use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"


class ProtocolUnknownError(StreamError):
    """No installed backend supports the protocol of an address."""

    code = "BIC-2608"
    message = "{address!r} has the unknown protocol {protocol!r}"
    fix = "use one of: {known_text}; or install a package with a backend for the protocol"


class StreamConnectError(StreamError):
    """A streamer cannot be reached, or rejects the connection."""

    code = "BIC-2609"
    message = "cannot connect to {address}: {reason}"
    fix = "check that the streamer runs, and that the address is correct; nothing was sent"


class NotAnchoredError(StreamError):
    """A producer without a stream cannot send with ``send``."""

    code = "BIC-2610"
    message = "this producer of {address} has no stream"
    fix = "use send_to(key, payload), or call anchor(key) once before send"


class AlreadyAnchoredError(StreamError):
    """A producer with a stream cannot be anchored to another stream."""

    code = "BIC-2611"
    message = "this producer of {address} already sends to {key!r}"
    fix = "create another producer, or use send_to(key, payload)"


class ConsumerGroupIsSetError(StreamError):
    """A consumer group was set in a mode in which consumers share nothing."""

    code = "BIC-2612"
    message = (
        "group {group!r} is not supported in mode 'real-time', in which consumers share nothing"
    )
    fix = "omit the group, or use mode 'resumable' or 'load-balanced'"


class ConsumerGroupNotSetError(StreamError):
    """Consumers that share messages need the name of their group."""

    code = "BIC-2613"
    message = "mode 'load-balanced' requires a group"
    fix = "set group=NAME, the same for all consumers that share the messages"


class StreamKeyEmptyError(StreamError):
    """A consumer would have no streams."""

    code = "BIC-2614"
    message = "a consumer of {address} needs at least one stream, but {problem}"
    fix = "name a stream; to stop consuming, end the consumer"


class StreamKeyNotFoundError(StreamError):
    """A consumer was created without this stream."""

    code = "BIC-2615"
    message = "this consumer of {address} does not read stream {key!r}; it reads {known_text}"
    fix = "create a consumer that names the stream"


class CommitNotAllowedError(StreamError):
    """A consumer without committed positions cannot commit or acknowledge."""

    code = "BIC-2616"
    message = "a consumer in mode 'real-time' has no committed position, so it cannot {action}"
    fix = "use mode 'resumable' or 'load-balanced'"


class PayloadEncodingError(StreamError):
    """A payload is not text, or not valid JSON."""

    code = "BIC-2617"
    message = "message {sequence} of stream {key!r} is not {expected}: {reason}"
    fix = "read it with as_bytes(), or correct its producer"


class StreamUnsupportedError(StreamError):
    """A backend does not support an operation."""

    code = "BIC-2618"
    message = "{backend} cannot {action}: {reason}"
    fix = "{hint}"


class StreamEndedError(StreamError):
    """A stream has ended; no further message will arrive."""

    code = "BIC-2619"
    message = "the streams of {address} have ended"
    fix = "stop reading; `async for` stops by itself"


class ProducerEndedError(StreamError):
    """A message was sent with an ended producer."""

    code = "BIC-2620"
    message = "this producer of {address} has ended and accepts no more messages"
    fix = "send before end() and disconnect(), or create another producer"


class SeekError(StreamError):
    """The target of a seek is after the end of a stream; the position is unchanged."""

    code = "BIC-2621"
    message = "no message at or after {target} in {address}; the position is unchanged"
    fix = "seek to an earlier position, or rewind to the end to wait for new messages"


class SendQueueFullError(StreamError):
    """A producer receives messages faster than it can send them."""

    code = "BIC-2622"
    message = "send queue of {address} is full: {waiting} messages are waiting"
    fix = "await flush() or a receipt regularly, or raise send_queue_messages"


class ConnectionLostError(StreamError):
    """A connection was lost, including messages without a receipt."""

    code = "BIC-2623"
    message = "connection to {address} was lost: {reason}"
    fix = "connect again; messages without a receipt may or may not have arrived"


def error_of(error: Exception, address: str) -> StreamError:
    """Return an error as one of streams; an unexpected one ends its connection."""
    if isinstance(error, StreamError):
        return error
    return ConnectionLostError(address=address, reason=f"{type(error).__qualname__}: {error}")


class ConsumerEndedError(StreamError):
    """An ended consumer cannot return messages."""

    code = "BIC-2624"
    message = "this consumer of {address} has ended"
    fix = "read before end() and disconnect(), or create another consumer"


EXTRA_MISSING = StreamConnectError.row(
    "BIC-2625",
    "{address} needs the library {library!r}, which is not installed",
    cause="A backend needs a library that is an extra of the toolkit.",
    fix="pip install 'bicycle-streams[{extra}]'",
)


STREAMER_NOT_OPEN = StreamConnectError.row(
    "BIC-2627",
    "{address} is not open",
    cause="A producer or consumer was created outside of the ``async with`` block of its streamer.",
    fix="write `async with connect(…) as streamer:` and use it inside",
)


FLUSH_TIMED_OUT = StreamError.row(
    "BIC-2628",
    "{address} has not acknowledged {waiting:count message} within {timeout_s} s",
    cause="Messages are sent faster than the other side accepts them, or it does not respond.",
    fix=(
        "flush again, or wait longer: the messages are still being sent, and no message was dropped"
    ),
)


TARGET_UNUSABLE = StreamError.row(
    "BIC-2657",
    "{address} does not accept a message with shard {shard_id} and time {timestamp_ms}",
    cause="The shard or the time of a message is negative, or too large for all backends.",
    fix="use a shard number of at least 0, and a time in milliseconds since 1970",
)


class UnacknowledgedError(StreamError):
    """A consumer has reached its limit of unacknowledged messages."""

    code = "BIC-2626"
    message = "group {group!r} of {address} has {waiting:count message} without acknowledgment"
    fix = "call ack(message) for each processed message, or raise unacknowledged_max"


MOMENT_UNREADABLE = StreamError.row(
    "BIC-2669",
    "{text!r} is not a valid time: {reason}",
    cause="The time of messages is not in ISO 8601.",
    fix=(
        "write 2026-03-01, 2026-03-01T12:00 or 2026-03-01T12:00:00.250, in UTC or with a zone such "
        "as +01:00; a start position may also be a sequence number such as 42"
    ),
)
STREAM_UNKNOWN = StreamError.row(
    "BIC-2664",
    "stream {key!r} not found in {address}; known are {known_text}",
    cause="A stream to describe, alter or delete does not exist.",
    fix="check the name; `bicycle stream topics list` lists the streams",
)
STREAM_EXISTS = StreamError.row(
    "BIC-2665",
    "stream {key!r} already exists in {address}, with {shard_count:count shard}",
    cause="A stream to create already exists.",
    fix="use it, alter it, or choose another name",
)
FEWER_SHARDS = StreamError.row(
    "BIC-2666",
    "stream {key!r} in {address} has {shard_count:count shard}, which cannot be reduced to "
    "{wanted}",
    cause="The number of shards of a stream cannot be reduced, because messages would be lost.",
    fix="create another stream, and copy the messages with `bicycle stream dump`",
)
ADMIN_REFUSED = StreamError.row(
    "BIC-2667",
    "{address} cannot {action} stream {key!r}: {reason}",
    cause=(
        "The backend rejects the settings, the name, the number of shards, or the permission of "
        "the caller."
    ),
    fix="correct the reported cause; nothing was changed",
)
LINE_UNREADABLE = StreamError.row(
    "BIC-2650",
    "line of {address} has an invalid head: {part!r} in {line!r}",
    cause="A line begins with '[', but its head is invalid.",
    fix=(
        "write `[time | key | sequence | shard] payload`, or a payload that begins with another "
        "character"
    ),
)
LINE_NOT_TEXT = StreamError.row(
    "BIC-2651",
    "line of {address} is not UTF-8: {reason}",
    cause="A line between programs contains bytes that are not text.",
    fix="send text: JSON, or base64 for binary data",
)
FRAME_REFUSED = StreamError.row(
    "BIC-2648",
    "{address} sent a frame that cannot be received: {reason}; its connection was closed",
    cause="A frame is larger than frame_bytes_max, not UTF-8, or violates the WebSocket protocol.",
    fix="check the sender, or raise frame_bytes_max; messages on a new connection are received",
)
RECEIVED_LINE_TOO_LONG = StreamError.row(
    "BIC-2655",
    "line from {address} must have at most {limit_bytes} bytes; its sender was disconnected",
    cause="A sender wrote a line that is too long, or binary data without line ends.",
    fix="check the sender, or raise line_bytes_max",
)
STANDARD_INPUT_UNREADABLE = StreamError.row(
    "BIC-2656",
    "{address} cannot be read: {reason}",
    cause=(
        "The standard input is closed, is a folder or a damaged device, or contains a line that is "
        "too long."
    ),
    fix=(
        "redirect the standard input from a file or a pipe: … | bicycle stream produce URL, or < "
        "FILE"
    ),
)
OUTPUT_CLOSED = StreamError.row(
    "BIC-2658",
    "{address} is closed; nothing was written",
    cause="The process was started without a standard output.",
    fix="redirect the output to a file, a pipe or a terminal",
)
PAYLOAD_NOT_A_LINE = StreamUnsupportedError.row(
    "BIC-2652",
    "payload for {backend} must be a single line of text: {reason}",
    cause="The payload for a line-based backend is not text, or contains a line break.",
    fix="send one line of text: JSON without indents, or base64 for binary data",
)
STREAMER_IN_USE = StreamConnectError.row(
    "BIC-2653",
    "{address} is already read by another streamer of this process",
    cause="Two streamers of one process would read the standard input.",
    fix="share one streamer, or disconnect the first",
)
STREAM_TLS_UNUSABLE = StreamConnectError.row(
    "BIC-2654",
    "TLS cannot be configured for {address}: {reason}",
    cause=(
        "A certificate or key cannot be read, they do not match, a server has no certificate, or "
        "the protocol of the address has no TLS."
    ),
    fix=(
        "use PEM files that this user may read: ca_file, cert_file, and key_file without a "
        "passphrase; and an address with TLS: https://, wss://, rediss:// or pulsar+ssl://"
    ),
)
STREAM_TLS_REFUSED = StreamConnectError.row(
    "BIC-2659",
    "the TLS handshake with {address} failed: {reason}; {advice}",
    cause=(
        "The certificate of the server is expired, untrusted or names another host, or the server "
        "rejects the certificate of this client."
    ),
    fix="correct the certificate, or the options ca_file, cert_file and key_file, and start again",
)
