"""Errors of the client toolkit: addresses, what a caller may not do, and what a backend lost.

Each class has a code of its own, since a program that produces and consumes catches them one by
one. Rows of a class tell its cases apart. Errors of one backend stand in the folder of the backend.
"""

from __future__ import annotations

from typing import Any

from bicycle_sdk.errors import BicycleError, ErrorRow


class StreamError(BicycleError):
    """A stream cannot be used as asked; the base of all errors of the toolkit."""

    code = "BIC-2600"
    message = "stream {address}: {problem}"
    fix = "{hint}"
    received: bytes | None = None  # What was received that is no message.

    def __init__(self, row: ErrorRow[BicycleError] | None = None, /, **facts: Any) -> None:
        # Keys of streams are texts of a class of theirs, which no report of a task can hold.
        plain = {name: str(f) if isinstance(f, str) else f for name, f in facts.items()}
        super().__init__(row, **plain)


class StreamUrlError(StreamError):
    """An address cannot be read, or does not name what the call needs."""

    code = "BIC-2601"
    message = "{address!r} is no address of streams: {problem}"
    fix = "write protocol://node/key, e.g. file://./events.ss/orders or stdio:///clicks"


NO_ENDING_SLASH = StreamUrlError.row(
    "BIC-2602",
    "{address!r} has no slash between the streamer and its streams",
    cause="The address of streams ends behind the host.",
    fix="write {address}/ for no stream in particular, or {address}/KEY",
)
PROTOCOL_REQUIRED = StreamUrlError.row(
    "BIC-2603",
    "{address!r} names neither a protocol nor a node",
    cause="An address without protocol has no node, either.",
    fix="begin with the protocol: stdio://, file://, kafka://, pulsar://, redis://, ws://, socket://",
)
ZERO_NODE = StreamUrlError.row(
    "BIC-2604",
    "{address!r} names no node",
    cause="Nothing stands where the nodes of the address should be.",
    fix="name at least one node: protocol://host:port",
)
NOT_ONE_STREAM_KEY = StreamUrlError.row(
    "BIC-2605",
    "{address!r} names {key_count:count stream}, and one is needed here",
    cause="A call for one stream got an address with none, or with several.",
    fix="name one stream behind the last slash, or ask for all of them",
)
MIXED_PROTOCOLS = StreamUrlError.row(
    "BIC-2606",
    "{address!r} names nodes of the protocols {protocols}",
    cause="The nodes of one address have different protocols.",
    fix="use one protocol for all nodes of an address",
)


class StreamKeyError(StreamError):
    """A text cannot be the key of a stream."""

    code = "BIC-2607"
    message = "{key!r} cannot be the key of a stream: {problem}"
    fix = "use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"


class ProtocolUnknownError(StreamError):
    """No backend serves the protocol of an address."""

    code = "BIC-2608"
    message = "{address!r} has the protocol {protocol!r}, for which there is no backend"
    fix = "use one of: {known_text}; or install a package that brings a backend for it"


class StreamConnectError(StreamError):
    """A streamer cannot be reached, or refuses us."""

    code = "BIC-2609"
    message = "cannot connect to {address}: {reason}"
    fix = "check that it exists and runs, and the address; nothing was sent"


class NotAnchoredError(StreamError):
    """A producer without a stream was asked to send without one."""

    code = "BIC-2610"
    message = "this producer of {address} has no stream to send to"
    fix = "use send_to(key, payload), or call anchor(key) once before send"


class AlreadyAnchoredError(StreamError):
    """A producer that has its stream was given another one."""

    code = "BIC-2611"
    message = "this producer of {address} sends to {key!r} already"
    fix = "create another producer, or use send_to(key, payload)"


class ConsumerGroupIsSetError(StreamError):
    """A group was named in a mode that shares nothing."""

    code = "BIC-2612"
    message = "group {group!r} was given for mode 'real-time', in which each consumer is alone"
    fix = "leave the group out, or use mode 'resumable' or 'load-balanced'"


class ConsumerGroupNotSetError(StreamError):
    """Consumers that share messages need the name of what they share."""

    code = "BIC-2613"
    message = "mode 'load-balanced' needs a group"
    fix = "give group=NAME, the same for all consumers that share the messages"


class StreamKeyEmptyError(StreamError):
    """A consumer would be left without any stream."""

    code = "BIC-2614"
    message = "a consumer of {address} needs at least one stream, and {problem}"
    fix = "name a stream; to stop consuming, end the consumer"


class StreamKeyNotFoundError(StreamError):
    """A stream is not among those that a consumer was created for."""

    code = "BIC-2615"
    message = "this consumer of {address} does not read stream {key!r}; it reads {known_text}"
    fix = "create a consumer that names the stream"


class CommitNotAllowedError(StreamError):
    """A position was to be kept by a consumer that has none."""

    code = "BIC-2616"
    message = "a consumer in mode 'real-time' keeps no position, so there is nothing to {action}"
    fix = "use mode 'resumable' or 'load-balanced'"


class PayloadEncodingError(StreamError):
    """A payload is not text, or not the JSON that it was asked to be."""

    code = "BIC-2617"
    message = "message {sequence} of stream {key!r} is not {expected}: {reason}"
    fix = "read it with as_bytes(), or look at what produces it"


class StreamUnsupportedError(StreamError):
    """A backend cannot do what was asked, and does not pretend to."""

    code = "BIC-2618"
    message = "{backend} cannot {action}: {reason}"
    fix = "{hint}"


class StreamEndedError(StreamError):
    """A stream is at its end: there will be no further message."""

    code = "BIC-2619"
    message = "the streams of {address} have ended"
    fix = "stop reading; `async for` does so by itself"


class ProducerEndedError(StreamError):
    """A message was sent through a producer that had been ended."""

    code = "BIC-2620"
    message = "a producer of {address} has ended and takes no message"
    fix = "send before end() and disconnect(), or create another producer"


class SeekError(StreamError):
    """A position lies beyond the end of a stream; the consumer stays where it was."""

    code = "BIC-2621"
    message = "nothing at or behind {target} in {address}; the position is what it was"
    fix = "seek to an earlier position, or rewind to the end to wait for new messages"


class SendQueueFullError(StreamError):
    """A producer cannot keep what the other side does not take."""

    code = "BIC-2622"
    message = "{address} takes messages slower than they come: {waiting} wait already"
    fix = "await flush() or a receipt from time to time, or raise send_queue_messages"


class ConnectionLostError(StreamError):
    """A connection broke, and with it what was not acknowledged."""

    code = "BIC-2623"
    message = "the connection to {address} is lost: {reason}"
    fix = "connect again; messages without a receipt may or may not have arrived"


class ConsumerEndedError(StreamError):
    """A consumer was asked for messages after it had been ended."""

    code = "BIC-2624"
    message = "this consumer of {address} has ended"
    fix = "read before end() and disconnect(), or create another consumer"


EXTRA_MISSING = StreamConnectError.row(
    "BIC-2625",
    "{address} needs the library {library!r}, which is not installed",
    cause="A backend needs a library that is an extra of the runtime.",
    fix="pip install 'bicycle-runtime[{extra}]'",
)


STREAMER_NOT_OPEN = StreamConnectError.row(
    "BIC-2627",
    "{address} is not open",
    cause="A producer or consumer was made before a streamer was entered, or after it was left.",
    fix="write `async with connect(…) as streamer:` and use it inside",
)


FLUSH_TIMED_OUT = StreamError.row(
    "BIC-2628",
    "{address} has not acknowledged {waiting:count message} within {timeout_s} s",
    cause="Messages are sent faster than the other side takes them, or it is away.",
    fix="flush again, or wait longer: they are still being sent; nothing was given up",
)


PLACE_UNUSABLE = StreamError.row(
    "BIC-2657",
    "{address} takes no message of shard {shard_id} and time {timestamp_ms}",
    cause="A message was to be sent with a number of a shard or a time that is negative, or larger "
    "than any backend has room for.",
    fix="give a shard from 0 on, and a time in milliseconds since 1970",
)


class UnacknowledgedError(StreamError):
    """A consumer took more messages than it may hold without saying that they are done."""

    code = "BIC-2626"
    message = "group {group!r} of {address} holds {waiting:count message} that nobody acknowledged"
    fix = "call ack(message) for each message that is done, or raise unacknowledged_max"


MOMENT_UNREADABLE = StreamError.row(
    "BIC-2669",
    "{text!r} is no moment: {reason}",
    cause="A time of messages is not written as ISO 8601 has it.",
    fix="write 2026-03-01, 2026-03-01T12:00 or 2026-03-01T12:00:00.250, in UTC or with a zone as "
    "+01:00; where messages are shown from a place on, a sequence number as 42 will do as well",
)
STREAM_UNKNOWN = StreamError.row(
    "BIC-2664",
    "there is no stream {key!r} in {address}; there are: {known_text}",
    cause="A stream was to be described, altered or deleted, and it does not exist.",
    fix="check the name; `bicycle stream topics list` shows which there are",
)
STREAM_EXISTS = StreamError.row(
    "BIC-2665",
    "there is a stream {key!r} in {address} already, with {shard_count:count shard}",
    cause="A stream was to be created that exists.",
    fix="use it, alter it, or choose another name",
)
FEWER_SHARDS = StreamError.row(
    "BIC-2666",
    "stream {key!r} in {address} has {shard_count:count shard} and cannot have {wanted}",
    cause="A stream was to get fewer shards, and messages would go with them.",
    fix="create another stream, and copy the messages with `bicycle stream dump`",
)
ADMIN_REFUSED = StreamError.row(
    "BIC-2667",
    "{address} does not {action} stream {key!r}: {reason}",
    cause="The backend does not take the settings, the name or the number of shards, or we may "
    "not do this there.",
    fix="see to the reason; nothing was changed",
)
LINE_UNREADABLE = StreamError.row(
    "BIC-2650",
    "a line of {address} has a head that cannot be read: {part!r} in {line!r}",
    cause="A line begins with '[' and what follows is no head of a message.",
    fix="write `[time | key | sequence | shard] payload`, or a payload that begins otherwise",
)
LINE_NOT_TEXT = StreamError.row(
    "BIC-2651",
    "a line of {address} is not UTF-8: {reason}",
    cause="A line between programs holds bytes that are no text.",
    fix="send text: JSON, or base64 for what is binary",
)
RECEIVED_LINE_TOO_LONG = StreamError.row(
    "BIC-2655",
    "a line that comes over {address} is longer than {limit_bytes} bytes; its sender was "
    "disconnected",
    cause="Something sends a line without end, or what is no text.",
    fix="see who sends to it, or raise line_bytes_max",
)
STANDARD_INPUT_UNREADABLE = StreamError.row(
    "BIC-2656",
    "{address} cannot be read: {reason}",
    cause="The standard input is closed, a folder or a broken device is in its place, or a line "
    "has no end.",
    fix="give it a file, a pipe or a terminal: … | bicycle stream produce URL, or < FILE",
)
OUTPUT_CLOSED = StreamError.row(
    "BIC-2658",
    "{address} is closed; nothing was written",
    cause="The process was started without a standard output.",
    fix="let it write to a file, a pipe or a terminal",
)
PAYLOAD_NOT_A_LINE = StreamUnsupportedError.row(
    "BIC-2652",
    "{backend} sends lines, and this payload is none: {reason}",
    cause="A payload for a backend of lines is not text, or has a line end in it.",
    fix="send one line of text: JSON without indents, or base64 for what is binary",
)
STREAMER_IN_USE = StreamConnectError.row(
    "BIC-2653",
    "{address} is read by another streamer of this process",
    cause="Two streamers of one process want the standard input.",
    fix="share one streamer, or disconnect the first",
)
STREAM_TLS_UNUSABLE = StreamConnectError.row(
    "BIC-2654",
    "TLS cannot be spoken at {address}: {reason}",
    cause="A certificate or key cannot be read, they do not belong together, a server has none, or "
    "the protocol of the address has no TLS.",
    fix="give PEM files that this user may read: ca_file, cert_file, and key_file without a "
    "passphrase; and an address with TLS: wss://, rediss:// or pulsar+ssl://",
)
