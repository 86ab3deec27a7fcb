"""The client toolkit: producers and consumers of streams behind one address.

``connect("file://./events.ss")`` gives a ``Streamer``, which makes producers and consumers. A
program needs no job, no Spark and no Java for it. The rules of ``contract`` hold for every backend.
This room knows no job and no engine.
"""

from bicycle_runtime.streams.addresses import StreamerUri, StreamKey, StreamUrl
from bicycle_runtime.streams.connecting import connect
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.contract import Capabilities, Streamer
from bicycle_runtime.streams.errors import (
    AlreadyAnchoredError,
    CommitNotAllowedError,
    ConnectionLostError,
    ConsumerEndedError,
    ConsumerGroupIsSetError,
    ConsumerGroupNotSetError,
    NotAnchoredError,
    PayloadEncodingError,
    ProducerEndedError,
    ProtocolUnknownError,
    SeekError,
    SendQueueFullError,
    StreamConnectError,
    StreamEndedError,
    StreamError,
    StreamKeyEmptyError,
    StreamKeyError,
    StreamKeyNotFoundError,
    StreamUnsupportedError,
    StreamUrlError,
    UnacknowledgedError,
)
from bicycle_runtime.streams.merging import MergedConsumers
from bicycle_runtime.streams.messages import (
    BEGINNING,
    END,
    At,
    Message,
    MessageHeader,
    OutgoingMessage,
    Receipt,
    SeqPos,
    Timestamp,
)
from bicycle_runtime.streams.options import StreamerOptions
from bicycle_runtime.streams.producing import Producer, Sender, Sent

__all__ = [
    "BEGINNING",
    "END",
    "AlreadyAnchoredError",
    "At",
    "Capabilities",
    "CommitNotAllowedError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerEndedError",
    "ConsumerGroupIsSetError",
    "ConsumerGroupNotSetError",
    "MergedConsumers",
    "Message",
    "MessageHeader",
    "NotAnchoredError",
    "OutgoingMessage",
    "PayloadEncodingError",
    "Producer",
    "ProducerEndedError",
    "ProtocolUnknownError",
    "Receipt",
    "SeekError",
    "SendQueueFullError",
    "Sender",
    "Sent",
    "SeqPos",
    "StreamConnectError",
    "StreamEndedError",
    "StreamError",
    "StreamKey",
    "StreamKeyEmptyError",
    "StreamKeyError",
    "StreamKeyNotFoundError",
    "StreamUnsupportedError",
    "StreamUrl",
    "StreamUrlError",
    "Streamer",
    "StreamerOptions",
    "StreamerUri",
    "Subscription",
    "Timestamp",
    "UnacknowledgedError",
    "connect",
]
