"""The source of streams: ranges of sequences, planned centrally, read by tasks.

The manifest holds the next sequence of each shard, so that a restart reads on exactly there; no
group of the backend is needed for it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bicycle_runtime.base.user_code import decoding_problem, users_error
from bicycle_runtime.connectors.errors import (
    STREAM_KEY_WRONG,
    STREAMS_LOST,
    STREAMS_REPLACED,
    STREAMS_UNREACHABLE,
)
from bicycle_runtime.connectors.settings import payload_codec, read_options
from bicycle_runtime.connectors.stream_clients.backends import (
    AwayError,
    Cut,
    Extent,
    KeyTypeError,
    StreamInput,
)
from bicycle_runtime.connectors.stream_clients.losses import Loss, LossWatch
from bicycle_runtime.connectors.typed_rows import is_within_bounds
from bicycle_runtime.contract import (
    BadRecord,
    Budget,
    ConnectorSpec,
    DriverServices,
    FollowsPublication,
    Guarantee,
    Lag,
    RereadsEarlierSlices,
    Slice,
    SnapshotsState,
    Source,
    SourceBatch,
    SourceStatus,
)
from bicycle_runtime.formats.contract import BatchCodec, Codec, reads_fields
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import log_event
from bicycle_sdk.stream_options import StreamSourceOptions
from bicycle_sdk.time import as_ms
from bicycle_streams.messages import Message

_LOG = logging.getLogger(__name__)
_POLL_MS = 50


class StreamSource(SnapshotsState, RereadsEarlierSlices, FollowsPublication, Source):
    """Reads the streams of an address; a subclass knows the backend."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class: type[StreamSourceOptions]
    gives_times = True

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(self.options_class, spec)
        self._codec = payload_codec(spec, options)
        self.gives_fields = reads_fields(self._codec)
        self._input = self.make_input(options)
        self._ends: Mapping[str, int] = {}
        self._counts: dict[str, int] = {}
        self._turn = 0

    @abstractmethod
    def make_input(self, options: StreamSourceOptions) -> StreamInput:
        """Return the input, without opening it."""

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Continue after the sealed positions; the first run fixes its begin and end."""
        self._clock = services.clock
        self._next = dict(offsets)
        self._begins: dict[str, int] | None = state.get("begins")
        self._limits: dict[str, int] | None = state.get("limits")
        self._is_sealed = True  # Begins and limits, once they are decided.
        self._losses = LossWatch(state.get("known", {}))
        self._is_away = False

    def poll(self) -> SourceStatus:
        """Read the ends of all shards.

        Raises:
            STREAMS_LOST: messages are gone that were not read yet.
            STREAMS_REPLACED: a stream is gone, or was made again.
            STREAM_KEY_WRONG: a key is no stream.
        """
        try:
            extents = self._input.extents(self._clock.monotonic())
        except KeyTypeError as error:
            raise STREAM_KEY_WRONG(
                vertex=self.spec.vertex_id, address=self._options.address, key=error.key,
                found=error.found,
            ) from None  # fmt: skip
        except AwayError as error:
            if not self._is_away:
                self._is_away = True
                log_event(
                    _LOG, "streams_waiting", level=logging.WARNING,
                    operator=self.spec.vertex_id, reason=str(error),
                )  # fmt: skip
            return self._status(is_reachable=False)
        self._is_away = False
        self._ends = self._take(extents)
        return self._status(is_reachable=True)

    def _take(self, extents: Mapping[str, Extent]) -> dict[str, int]:
        """Return the ends of the shards to read, after a check for lost messages."""
        found = {shard: extent.end for shard, extent in extents.items()}
        if self._begins is None:  # The first poll of the first run.
            self._begins = dict(found) if self._options.start == "latest" else {}
            self._limits = dict(found) if self._options.bounded else None
            self._is_sealed = self._options.start != "latest" and self._limits is None
        for shard, extent in extents.items():
            loss = self._losses.see(shard, self._position(shard), extent)
            if loss is not None:
                self._lose(shard, loss, extent)
        limits = self._limits if self._limits is not None else self._ends
        for shard in sorted({*limits, *self._next} - found.keys()):
            limit = (self._limits or {}).get(shard, 0)
            loss = self._losses.miss(shard, self._position(shard), limit)
            if loss is not None:
                self._lose(shard, loss, None)
        if self._limits is not None:
            return {shard: end for shard, end in self._limits.items() if shard in found}
        return found

    def _lose(self, shard: str, loss: Loss, extent: Extent | None) -> None:
        """Report lost messages, or fail, as configured, and continue with the rest."""
        position = self._position(shard)
        if self._options.on_data_loss == "fail":
            if extent is None or loss.is_replaced:
                raise STREAMS_REPLACED(
                    address=self._options.address, shard=shard, problem=loss.problem, next=position
                )
            raise STREAMS_LOST(
                address=self._options.address,
                shard=shard,
                start=position,
                end=extent.last_end,
                expected=extent.count + (loss.count or 0),
                found=extent.count,
            )
        log_event(
            _LOG, "streams_lost", level=logging.WARNING, operator=self.spec.vertex_id,
            shard=shard, reason=f"the stream {loss.problem}", record_count=loss.count,
        )  # fmt: skip
        if loss.next < position:
            self._next[shard] = loss.next
            if self._limits is not None and shard in self._limits:
                self._limits[shard] = loss.next  # It ended with messages that are gone.
        elif extent is None and self._limits is not None:
            self._limits.pop(shard, None)

    def _status(self, *, is_reachable: bool) -> SourceStatus:
        waiting = {shard for shard, end in self._ends.items() if self._position(shard) < end}
        is_at_end = self._limits is not None and not waiting and is_reachable
        return SourceStatus(
            # An epoch without slices seals the decision, before messages arrive or are removed.
            has_input=(bool(waiting) and is_reachable) or not self._is_sealed,
            is_finished=is_at_end and self._is_sealed,
            lag=Lag(record_count=None if waiting else 0),
            next_poll_ms=_POLL_MS,
            waiting_shards=frozenset(waiting),
            is_bounded=self._limits is not None,
            is_reachable=is_reachable,
        )

    def _position(self, shard: str) -> int:
        begin = (self._begins or {}).get(shard, 0)
        return self._next.get(shard, begin)

    def plan(self, budget: Budget) -> list[Slice]:
        """Divide the available input among the subtasks, shard by shard."""
        return list(self._slices(budget))

    def _slices(self, budget: Budget) -> Iterator[Slice]:
        waiting = [
            shard for shard, end in sorted(self._ends.items()) if self._position(shard) < end
        ]
        turn = self._turn % max(1, len(waiting))  # Another shard is the first each time.
        records, size = budget.record_count, budget.byte_count // max(1, len(waiting))
        for left, shard in zip(
            range(len(waiting), 0, -1), waiting[turn:] + waiting[:turn], strict=True
        ):
            if not records:
                return
            start = self._position(shard)
            share = (max(1, records // left), max(1, size))
            parts = budget.parallelism
            try:
                cut = self._input.cut(shard, start, self._ends[shard], size=share, parts=parts)
            except AwayError:
                return  # The next poll reports it.
            if not cut.ends:  # All of the range was deleted, and nothing will come into it.
                cut = Cut((self._ends[shard],), (0,))
            for begin, stop, count in zip((start, *cut.ends), cut.ends, cut.counts, strict=False):
                yield Slice(shard=shard, start=begin, end=stop, details={"count": count})
            records -= sum(cut.counts)

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on."""
        self._is_sealed = True
        self._next.update(ends)
        self._losses.sealed(self._counts)
        self._counts = {}
        self._turn += 1

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the first begin, the end of a bounded run, and the known counts."""
        self._counts = {}
        for part in planned:
            if part.end <= ends.get(part.shard, 0):
                count = self._counts.get(part.shard, 0) + part.details["count"]
                self._counts[part.shard] = count
        known = self._losses.snapshot(self._counts)
        return {"begins": self._begins, "limits": self._limits, "known": known}

    def published(self, offsets: Mapping[str, int]) -> None:
        """Publish the read positions."""
        self._input.keep(offsets)

    def reader(self) -> StreamReader:
        """Return the reader."""
        return self._reader(is_strict=self._options.on_data_loss == "fail")

    def rereader(self, services: DriverServices) -> StreamReader:
        """Return a reader that misses nothing silently."""
        return self._reader(is_strict=True)

    def _reader(self, *, is_strict: bool) -> StreamReader:
        origin = (self.spec.vertex_id, self._options.address)
        return StreamReader(self._input, self._codec, origin, is_strict=is_strict)

    def stop(self) -> None:
        """Release the resources."""
        self._input.close()

    def describe(self, shard: str, offset: int) -> str:
        """Name the message."""
        return f"{self._options.address}: message {offset} of {shard}"


class StreamReader:
    """A reader of ranges of sequences; ``Slice.details`` contains a ``count``.

    Args:
        source: The backend.
        codec: Of the payloads.
        origin: Vertex and address, for errors.
        is_strict: Whether a message that is gone is an error.
    """

    def __init__(
        self, source: StreamInput, codec: Codec, origin: tuple[str, str], *, is_strict: bool
    ) -> None:
        self._input = source
        self._codec = codec
        self._vertex, self._address = origin
        self._is_strict = is_strict
        self._gives_fields = False

    def give_fields(self) -> bool:
        """Switch to frames; return whether the format allows it."""
        self._gives_fields = reads_fields(self._codec)
        return self._gives_fields

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of the range; the last batch is empty, at its end.

        Raises:
            STREAMS_LOST: messages are gone that were there.
            STREAMS_UNREACHABLE: the server stays away.
        """
        begun = SystemClock().monotonic()
        count = 0
        position = part.start
        try:
            for items in self._input.read(part.shard, part.start, part.end):
                count += len(items)
                messages = [item for item in items if isinstance(item, Message)]
                offsets = [message.sequence for message in messages]
                bad = [item for item in items if isinstance(item, BadRecord)]
                position = max([position, *(at + 1 for at in offsets[-1:]),
                                *(each.offset + 1 for each in bad[-1:])])  # fmt: skip
                yield decoded_batch(
                    self._codec, messages, offsets, position,
                    bad=bad, gives_fields=self._gives_fields,
                )  # fmt: skip
        except AwayError as error:
            waited_ms = round((SystemClock().monotonic() - begun) * 1_000)
            raise STREAMS_UNREACHABLE(
                vertex=self._vertex, address=self._address, waited_ms=waited_ms, reason=str(error)
            ) from None
        if count < part.details["count"]:
            self._settle_loss(part, count)
        yield SourceBatch(values=[], offsets=(), next_offset=part.end)

    def _settle_loss(self, part: Slice, found: int) -> None:
        error = STREAMS_LOST(
            address=self._address,
            shard=part.shard,
            start=part.start,
            end=part.end,
            expected=part.details["count"],
            found=found,
        )
        if self._is_strict:
            raise error
        log_event(_LOG, "streams_lost", level=logging.WARNING, reason=error.summary)

    def close(self) -> None:
        """Release the resources."""
        self._input.close()


def decoded_frame(codec: Codec, payloads: list[bytes]) -> Sequence[Any] | None:
    """Return all values as a frame, or None if they must be decoded one by one."""
    assert isinstance(codec, BatchCodec)
    try:
        found = codec.decode_batch(payloads) if payloads else []
    except BaseException as error:  # noqa: BLE001 - a codec may raise anything.
        users_error(error)
        return None
    return found if len(found) == len(payloads) else None


def decoded_batch(
    codec: Codec, messages: Sequence[Message], offsets: Sequence[int], next_offset: int,
    *, bad: Sequence[BadRecord] = (), gives_fields: bool = False,
) -> SourceBatch:  # fmt: skip
    """Return the records of messages; unusable ones are failures between them.

    Args:
        codec: Of the payloads.
        messages: In their order.
        offsets: The offset of each of them.
        next_offset: The next offset to read.
        bad: Further failures.
        gives_fields: Whether to return a frame.
    """
    payloads = [message.payload for message in messages]
    all_times = [message.timestamp_ms for message in messages]
    is_timed = is_within_bounds(all_times)
    frame = decoded_frame(codec, payloads) if gives_fields and is_timed else None
    if frame is not None:
        return SourceBatch(
            values=frame, offsets=offsets, next_offset=next_offset, failures=bad,
            timestamps=all_times, raws=[(None, payload) for payload in payloads],
        )  # fmt: skip
    values, decoded, times, raws, failures = [], [], [], [], list(bad)
    decode = codec.decode
    for payload, time_ms, offset in zip(payloads, all_times, offsets, strict=True):
        try:
            if not is_timed:
                as_ms(time_ms)
            value = decode(payload)
        except BaseException as error:  # noqa: BLE001 - a codec may raise anything.
            reason = decoding_problem(error)
            failures.append(
                BadRecord(offset=offset, raw=payload, reason=reason, timestamp_ms=time_ms)
            )
            continue
        values.append(value)
        decoded.append(offset)
        times.append(time_ms)
        raws.append((None, payload))
    return SourceBatch(
        values=values, offsets=decoded, next_offset=next_offset, timestamps=times, raws=raws,
        failures=sorted(failures, key=lambda failure: failure.offset),
    )  # fmt: skip
