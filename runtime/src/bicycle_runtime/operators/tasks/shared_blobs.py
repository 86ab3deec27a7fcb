"""Records on several edges to one task: encoded, sent and read once.

The first blob has them, and the blobs of the other edges name it. Equality is determined by the
objects: the same ones in the same order. If records may change in place, blobs are only compared
while no function runs, and each edge reads records of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any

from bicycle_runtime.records.blobs import Holder, RecordBlob, encoded_part
from bicycle_runtime.records.codecs import CodecName, RecordCodec
from bicycle_sdk.state.frozen import is_frozen_type

_HELD_RECORDS_MAX = 262_144  # So many read records wait for further edges; others are read again.


def gives_frozen(codec: RecordCodec, name: CodecName) -> bool:
    """Return whether records of an encoding cannot be changed in place."""
    is_typed = name == "typed" and codec.declared is not None
    return name == "plain" or (is_typed and is_frozen_type(codec.declared))


class SentBlobs:
    """The last records sent to each target, by kind of edge.

    Edges of one kind encode and divide records alike. Of a kind with one edge nothing is held, so
    that its records are gone once they are sent.
    """

    def __init__(self) -> None:
        self._edges: Counter[Hashable] = Counter()
        self._last: dict[tuple[Hashable, int], tuple[list[Any], Holder]] = {}

    def join(self, kind: Hashable) -> None:
        """Take note of an edge of a kind."""
        self._edges[kind] += 1

    def find(self, kind: Hashable, target: int, values: Sequence[Any]) -> Holder | None:
        """Return the blob that has the same records; None when the last one has others."""
        last = self._last.get((kind, target))
        if last is None or len(last[0]) != len(values) or not all(map(is_, last[0], values)):
            return None
        return last[1]

    def note(self, kind: Hashable, target: int, values: list[Any], holder: Holder) -> None:
        """Note the records of a blob, a list that must not change afterward."""
        if self._edges[kind] > 1:
            self._last[kind, target] = values, holder

    def forget(self) -> None:
        """Forget all records."""
        self._last.clear()


class ReceivedBlobs:
    """The received blobs of a task; some refer to others for their records.

    Args:
        blobs: All of them, with their bodies.
    """

    def __init__(self, blobs: Sequence[tuple[RecordBlob, memoryview]]) -> None:
        named = Counter(_position(blob) for blob, _ in blobs if blob.holder is not None)
        # How often the records of a blob are still to be read.
        self._reads = Counter({position: count + 1 for position, count in named.items()})
        self._holders = {
            _position(blob): (blob, body)
            for blob, body in blobs
            if blob.holder is None and _position(blob) in named
        }
        self._read: dict[Hashable, list[Any]] = {}
        self._held = 0

    def records(self, blob: RecordBlob, codec: RecordCodec) -> list[Any] | None:
        """Return the records of a blob that shares them; None when it alone has them.

        Raises:
            RecordDecodingError: the bytes do not have the declared type.
        """
        position = _position(blob)
        if position not in self._reads:
            return None
        self._reads[position] -= 1
        known = self._read.get(position)
        if known is None:
            holder, body = self._holders[position]
            known = codec.decode(holder.codec, encoded_part(body, holder))
            fits = self._held + len(known) <= _HELD_RECORDS_MAX
            if fits and self._reads[position] and gives_frozen(codec, holder.codec):
                self._read[position] = known
                self._held += len(known)
        if not self._reads[position]:
            self._held -= len(self._read.pop(position, ()))
        return known


def _position(blob: RecordBlob) -> tuple[int, int, int]:
    """Return the blob with the records of a key: sender, edge and sequence."""
    if blob.holder is None:
        return blob.sender, blob.edge, blob.sequence
    return blob.sender, blob.holder.edge, blob.holder.sequence
