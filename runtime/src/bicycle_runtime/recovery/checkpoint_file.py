"""A checkpoint as a separate file: a ``CheckpointState``, version, checksum.

The file begins with the bytes of ``CheckpointState.serialize``. Behind them, little-endian, are the
fields that this layout lacks: ``stream_len u32, stream, created_at_ms u64``; ``n_metadata u32``,
then per entry, sorted, ``key_len u32, key, value_len u32, value``. The end is a ``trailer`` with
the word ``BICC``. A reader that knows the old layout only, and ignores the rest, can read the file.
"""

from __future__ import annotations

from dataclasses import replace

from bicycle_runtime.layouts.manifest import CHECKPOINT_MAGIC, CHECKPOINT_VERSION
from bicycle_runtime.recovery.checkpoint_state import CheckpointId, CheckpointState, read_state
from bicycle_runtime.recovery.fields import FieldParser, FileForm, text_field, u32_field, u64_field

_FORM = FileForm(magic=CHECKPOINT_MAGIC, version=CHECKPOINT_VERSION)


def encode_checkpoint(state: CheckpointState) -> bytes:
    """Return the bytes of the file; equal states have equal bytes.

    Raises:
        CHECKPOINT_VALUE_UNFIT: a text is no UTF-8, or something has 4 GiB or more.
    """
    parts = [
        text_field(state.id.stream_id, field="stream_id"),
        u64_field(state.id.created_at_ms, field="created_at_ms"),
        u32_field(len(state.metadata), field="number of metadata"),
    ]
    for key, value in sorted(state.metadata.items()):
        parts += (
            text_field(key, field="key of metadata"),
            text_field(value, field="value of metadata"),
        )
    return _FORM.sealed(state.serialize(), b"".join(parts))


def decode_checkpoint(data: bytes) -> CheckpointState:
    """Read the result of ``encode_checkpoint``.

    Raises:
        CheckpointFormatError: the file is cut, changed, no checkpoint, or of another version.
    """
    reader = FieldParser(data, end=_FORM.body_size(data))
    state = read_state(reader, "", created_at_ms=0)
    stream_id = reader.text()
    checkpoint_id = CheckpointId(stream_id, state.id.sequence, created_at_ms=reader.u64())
    metadata: dict[str, str] = {}
    for _ in range(reader.u32()):
        key = reader.name(metadata)
        metadata[key] = reader.text()
    reader.finish()
    return replace(state, id=checkpoint_id, metadata=metadata)
