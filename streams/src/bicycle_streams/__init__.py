"""The client toolkit: producers and consumers of streams behind one address.

``connect("file://./events.ss")`` returns a ``Streamer``, which creates producers and consumers. A
program needs no job, no Spark and no Java for it. The rules of ``contract`` apply to every backend.
This package does not depend on jobs or the engine.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_streams.addresses import StreamerUri, StreamKey, StreamUrl
    from bicycle_streams.connecting import connect
    from bicycle_streams.consuming import Consumer, Subscription
    from bicycle_streams.contract import Capabilities, Streamer
    from bicycle_streams.errors import (
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
    from bicycle_streams.merging import MergedConsumers
    from bicycle_streams.messages import (
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
    from bicycle_streams.options import StreamerOptions
    from bicycle_streams.producing import Producer, Sender, Sent
else:
    # The command line imports this package at each start, and needs no client.
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "addresses": (
                "StreamerUri",
                "StreamKey",
                "StreamUrl",
            ),
            "connecting": ("connect",),
            "consuming": (
                "Consumer",
                "Subscription",
            ),
            "contract": (
                "Capabilities",
                "Streamer",
            ),
            "errors": (
                "AlreadyAnchoredError",
                "CommitNotAllowedError",
                "ConnectionLostError",
                "ConsumerEndedError",
                "ConsumerGroupIsSetError",
                "ConsumerGroupNotSetError",
                "NotAnchoredError",
                "PayloadEncodingError",
                "ProducerEndedError",
                "ProtocolUnknownError",
                "SeekError",
                "SendQueueFullError",
                "StreamConnectError",
                "StreamEndedError",
                "StreamError",
                "StreamKeyEmptyError",
                "StreamKeyError",
                "StreamKeyNotFoundError",
                "StreamUnsupportedError",
                "StreamUrlError",
                "UnacknowledgedError",
            ),
            "merging": ("MergedConsumers",),
            "messages": (
                "BEGINNING",
                "END",
                "At",
                "Message",
                "MessageHeader",
                "OutgoingMessage",
                "Receipt",
                "SeqPos",
                "Timestamp",
            ),
            "options": ("StreamerOptions",),
            "producing": (
                "Producer",
                "Sender",
                "Sent",
            ),
        },
    )

__version__ = "0.1.0"

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
