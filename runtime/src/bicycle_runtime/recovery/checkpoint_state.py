"""The binary checkpoint state: sequence, watermark, counts, states, offsets.

Layout, little-endian: ``sequence u64, watermark u64, event_count u64``; ``n_operators u32``, then
per operator ``name_len u32, name, state_len u32, state``; ``n_sources u32``, then per source
``name_len u32, name, offset u64``. Entries are sorted by name, so that equal states have equal
bytes. The layout has no checksum, no version, no stream, no time and no metadata: the stored object
is a ``checkpoint_file`` or a ``manifest``, which begin with it and put the rest behind.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from bicycle_runtime.recovery.fields import (
    U64_MAX,
    FieldParser,
    require_bounded,
    text_field,
    u32_field,
    u64_field,
)
from bicycle_sdk.clock import Clock, SystemClock

_HEADER = struct.Struct("<QQQ")
_COUNT_SIZE = 4
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, order=True)
class CheckpointId:
    """The identity of a checkpoint; ordered by stream, sequence and creation time.

    ``sequence`` and ``created_at_ms`` are unsigned 64-bit numbers; the time, since 1970-01-01 UTC,
    is that of construction unless it is given.

    Example:
        >>> CheckpointId("orders", 9) < CheckpointId("orders", 10)
        True
    """

    stream_id: str
    sequence: int
    _: KW_ONLY
    created_at_ms: int = field(default_factory=_CLOCK.now_ms)

    def __post_init__(self) -> None:
        require_bounded(self.sequence, U64_MAX, field="sequence")
        require_bounded(self.created_at_ms, U64_MAX, field="created_at_ms")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """One checkpoint of one stream; it copies the mappings that it is made of.

    Operator states and source offsets can be set one by one; a store keeps the checkpoint as it was
    when it was saved, whatever is set later.

    ``watermark_ns``, ``event_count`` and offsets are unsigned 64-bit numbers. ``metadata`` is for
    people and tools; the layout of ``serialize`` has no place for it.

    Raises:
        CHECKPOINT_VALUE_UNFIT: a number is out of bounds.
    """

    id: CheckpointId
    _: KW_ONLY
    operator_states: dict[str, bytes] = field(default_factory=dict)
    source_offsets: dict[str, int] = field(default_factory=dict)
    watermark_ns: int = 0
    event_count: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("operator_states", "source_offsets", "metadata"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        require_bounded(self.watermark_ns, U64_MAX, field="watermark_ns")
        require_bounded(self.event_count, U64_MAX, field="event_count")
        for offset in self.source_offsets.values():
            require_bounded(offset, U64_MAX, field="offset of a source")

    def set_operator_state(self, name: str, state: bytes) -> None:
        """Set the state of one operator, and replace the previous one.

        Example:
            >>> state = CheckpointState(CheckpointId("orders", 1))
            >>> state.set_operator_state("op", b"1")
            >>> state.set_operator_state("op", b"2")
            >>> state.operator_states
            {'op': b'2'}
        """
        self.operator_states[name] = state

    def set_source_offset(self, name: str, offset: int) -> None:
        """Set the offset of one source, and replace the previous one.

        Raises:
            CHECKPOINT_VALUE_UNFIT: the offset is out of bounds.
        """
        self.source_offsets[name] = require_bounded(offset, U64_MAX, field="offset of a source")

    def serialize(self) -> bytes:
        """Return the bytes of the layout above; an empty state has 32.

        Raises:
            CHECKPOINT_VALUE_UNFIT: a name is no UTF-8 text, or a name or state has 4 GiB or more.

        Example:
            >>> len(CheckpointState(CheckpointId("orders", 1)).serialize())
            32
        """
        parts = [
            _HEADER.pack(self.id.sequence, self.watermark_ns, self.event_count),
            u32_field(len(self.operator_states), field="number of operators"),
        ]
        for name, state in sorted(self.operator_states.items()):
            size = u32_field(len(state), field="length of an operator state")
            parts += (text_field(name, field="name of an operator"), size, state)
        parts.append(u32_field(len(self.source_offsets), field="number of sources"))
        for name, offset in sorted(self.source_offsets.items()):
            position = u64_field(offset, field="offset of a source")
            parts += (text_field(name, field="name of a source"), position)
        return b"".join(parts)

    @classmethod
    def deserialize(
        cls,
        stream_id: str,
        data: bytes,
        *,
        is_strict: bool = True,
        clock: Clock = _CLOCK,
    ) -> CheckpointState:
        """Read the result of ``serialize``.

        Entries may come in any order. Strict reading requires each name once, and the end of the
        data at the end of the state. Compatible reading (``is_strict=False``) accepts data like
        other readers of the layout: data that ends behind the operators has no sources, of two
        entries with one name the last counts, and bytes behind the end are ignored, so that it
        reads checkpoint files and manifests as well.

        Args:
            stream_id: The stream, which the data does not name.
            data: The bytes of one checkpoint.
            is_strict: Whether reading is strict or compatible.
            clock: Returns the time of creation, which the data lacks, too.

        Raises:
            CheckpointFormatError: the data is cut (with the missing part and its place) or a name
                is not UTF-8; when strict also, a name occurs twice or bytes are left over.
        """
        reader = FieldParser(data)
        created_at_ms = clock.now_ms()
        state = read_state(reader, stream_id, created_at_ms=created_at_ms, is_strict=is_strict)
        if is_strict:
            reader.finish()
        return state


def read_state(
    reader: FieldParser, stream_id: str, *, created_at_ms: int, is_strict: bool = True
) -> CheckpointState:
    """Read one state from the front of the data, and leave the rest.

    Raises:
        CheckpointFormatError: see ``CheckpointState.deserialize``.
    """
    header = reader.take(
        _HEADER.size, problem="header_cut", detail="checkpoint data too short for header"
    )
    sequence, watermark_ns, event_count = _HEADER.unpack(header)
    operators: dict[str, bytes] = {}
    for _ in range(reader.u32()):
        name = reader.name(operators if is_strict else ())
        size = reader.u32()
        operators[name] = reader.take(
            size, problem="state_cut", detail="truncated operator state bytes"
        )
    sources: dict[str, int] = {}
    has_sources = is_strict or reader.left_count >= _COUNT_SIZE
    for _ in range(reader.u32() if has_sources else 0):
        name = reader.name(sources if is_strict else ())
        sources[name] = reader.u64()
    return CheckpointState(
        CheckpointId(stream_id, sequence, created_at_ms=created_at_ms),
        operator_states=operators,
        source_offsets=sources,
        watermark_ns=watermark_ns,
        event_count=event_count,
    )
