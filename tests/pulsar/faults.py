"""Faults of a connection to Pulsar, made by a proxy that reads the frames of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

_SEND, _MESSAGE, _FLOW, _SUCCESS, _SEEK = 6, 9, 11, 13, 28
_CONSUMER_ID, _REQUEST_ID = 1, 2
_PRODUCER_ID = 1


class _Frames:
    """The frames of one direction: a size of 4 bytes, that of the command, the command, a rest."""

    def __init__(self) -> None:
        self._data = b""

    def split(self, data: bytes) -> Iterator[tuple[int, dict[int, int], bytes]]:
        """Yield the complete frames: type and integer fields of the command, and all bytes."""
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4])
            if len(self._data) < end:
                return
            frame, self._data = self._data[:end], self._data[end:]
            command = dict(_fields(frame[8 : 8 + int.from_bytes(frame[4:8])]))
            kind = command[1]
            assert isinstance(kind, int)
            body = command.get(kind, b"")
            numbers = _fields(body) if isinstance(body, bytes) else ()
            yield kind, {n: value for n, value in numbers if isinstance(value, int)}, frame


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of Protocol Buffers."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        match tag & 7:
            case 0:
                yield tag >> 3, varint()
            case 2:
                size = varint()
                yield tag >> 3, data[at : at + size]
                at += size
            case kind:
                at += {1: 8, 5: 4}[kind]


class LateAnswer:
    """The answer of a seek arrives after the first message of the subscription opened again.

    Brokers close a subscription, move it and answer. A client that was faster than the answer
    has the first messages then, and drops them.
    """

    def __init__(self) -> None:
        self._near, self._far = _Frames(), _Frames()
        self._sought: dict[int, int] = {}  # Requests by consumer.
        self._opened: set[int] = set()
        self._held: dict[int, bytes] = {}

    def __call__(self, data: bytes, is_of_client: bool) -> bytes:
        return b"".join(self._of_client(data) if is_of_client else self._of_broker(data))

    def _of_client(self, data: bytes) -> Iterator[bytes]:
        for kind, numbers, frame in self._near.split(data):
            if kind == _SEEK:
                self._sought[numbers[_CONSUMER_ID]] = numbers[_REQUEST_ID]
            yield frame

    def _of_broker(self, data: bytes) -> Iterator[bytes]:
        for kind, numbers, frame in self._far.split(data):
            if kind == _SUCCESS and numbers[1] in self._sought.values():
                self._held[numbers[1]] = frame
                continue
            yield frame
            if kind == _MESSAGE and (request := self._sought.get(numbers[_CONSUMER_ID])):
                yield self._held.pop(request, b"")


class DeafConsumer:
    """The broker does not hear that one consumer wants messages, and sends it none.

    Args:
        number: The number of the consumer, in the order of their first requests.
    """

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._near = _Frames()
        self._seen: list[int] = []

    def __call__(self, data: bytes, is_of_client: bool) -> bytes:
        return b"".join(self._heard(data)) if is_of_client else data

    def _heard(self, data: bytes) -> Iterator[bytes]:
        for kind, numbers, frame in self._near.split(data):
            if kind == _FLOW:
                consumer = numbers[_CONSUMER_ID]
                if consumer not in self._seen:
                    self._seen.append(consumer)
                if self._seen.index(consumer) == self._number:
                    continue
            yield frame


class UnheardProducer:
    """The broker gets no message of the first producer of a connection."""

    def __init__(self) -> None:
        self._near = _Frames()
        self._first: int | None = None
        self.dropped_count = 0

    def __call__(self, data: bytes, is_of_client: bool) -> bytes:
        return b"".join(self._heard(data)) if is_of_client else data

    def _heard(self, data: bytes) -> Iterator[bytes]:
        for kind, numbers, frame in self._near.split(data):
            if kind == _SEND:
                producer = numbers.get(_PRODUCER_ID, 0)
                self._first = producer if self._first is None else self._first
                if producer == self._first:
                    self.dropped_count += 1
                    continue
            yield frame
