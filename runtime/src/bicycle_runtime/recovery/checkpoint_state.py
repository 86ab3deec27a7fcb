"""The binary checkpoint state: sequence, watermark, event count, operator states, source offsets.

Layout, little-endian: ``sequence u64, watermark u64, event_count u64``; ``n_operators u32``, then
per operator ``name_len u32, name, state_len u32, state``; ``n_sources u32``, then per source
``name_len u32, name, offset u64``. Entries are sorted by name, so that equal states have equal
bytes. The format has neither checksum nor version; ``manifest`` puts both around it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from bicycle_runtime.recovery.errors import CheckpointFormatError

__all__ = ["CheckpointState"]

_HEADER = struct.Struct("<QQQ")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """One checkpoint of one stream.

    ``watermark_ns`` and all counts are unsigned 64-bit numbers.
    """

    sequence: int
    watermark_ns: int = 0
    event_count: int = 0
    operator_states: Mapping[str, bytes] = field(default_factory=dict)
    source_offsets: Mapping[str, int] = field(default_factory=dict)

    def serialize(self) -> bytes:
        """Return the bytes of the layout above; an empty state has 32.

        Example:
            >>> len(CheckpointState(sequence=1).serialize())
            32
        """
        parts = [
            _HEADER.pack(self.sequence, self.watermark_ns, self.event_count),
            _U32.pack(len(self.operator_states)),
        ]
        for name, state in sorted(self.operator_states.items()):
            parts += [_text(name), _U32.pack(len(state)), state]
        parts.append(_U32.pack(len(self.source_offsets)))
        for name, offset in sorted(self.source_offsets.items()):
            parts += [_text(name), _U64.pack(offset)]
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes) -> CheckpointState:
        """Read what ``serialize`` wrote.

        Raises:
            CheckpointFormatError: the data is cut (it says what was missing and where), a name is
                not UTF-8 or stands twice, or bytes are left over.
        """
        if len(data) < _HEADER.size:
            raise CheckpointFormatError(detail="checkpoint data too short for header")
        reader = _Reader(data, _HEADER.size)
        sequence, watermark_ns, event_count = _HEADER.unpack_from(data)
        operators: dict[str, bytes] = {}
        for _ in range(reader.u32()):
            name = _fresh(reader.text(), operators)
            operators[name] = reader.take(reader.u32(), "truncated operator state bytes")
        sources: dict[str, int] = {}
        for _ in range(reader.u32()):
            name = _fresh(reader.text(), sources)
            sources[name] = reader.u64()
        if reader.position != len(data):
            raise CheckpointFormatError(detail=f"{len(data) - reader.position} bytes after the end")
        return cls(
            sequence=sequence,
            watermark_ns=watermark_ns,
            event_count=event_count,
            operator_states=operators,
            source_offsets=sources,
        )


class _Reader:
    """Takes fields off the front of the data."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def u32(self) -> int:
        value: int = self._number(_U32, "u32")
        return value

    def u64(self) -> int:
        value: int = self._number(_U64, "u64")
        return value

    def text(self) -> str:
        raw = self.take(self.u32(), "truncated string bytes")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointFormatError(detail=f"invalid UTF-8 in field name: {error}") from error

    def take(self, size: int, problem: str) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise CheckpointFormatError(detail=problem)
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _number(self, form: struct.Struct, name: str) -> int:
        if self.position + form.size > len(self._data):
            raise CheckpointFormatError(detail=f"cannot read {name} at offset {self.position}")
        (value,) = form.unpack_from(self._data, self.position)
        self.position += form.size
        return int(value)


def _text(name: str) -> bytes:
    raw = name.encode("utf-8")
    return _U32.pack(len(raw)) + raw


def _fresh(name: str, known: Mapping[str, object]) -> str:
    if name in known:
        raise CheckpointFormatError(detail=f"name {name!r} stands twice")
    return name
