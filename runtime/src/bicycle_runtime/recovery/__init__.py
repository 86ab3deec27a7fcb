"""The record of epochs and recovery: manifests, restore, collection, rescaling.

The names below are for programs that keep checkpoints of their own streams, without a job: the
binary state that manifests are made of, stores for it, and a manager that saves it every so many
events. ``docs/reference/checkpoint-format.md`` describes the bytes.
"""

from bicycle_runtime.recovery.checkpoint_file import decode_checkpoint, encode_checkpoint
from bicycle_runtime.recovery.checkpoint_state import CheckpointId, CheckpointState
from bicycle_runtime.recovery.checkpoint_store import (
    Capture,
    CheckpointManager,
    CheckpointStore,
    InMemoryCheckpointStore,
    StoredCheckpoint,
)
from bicycle_runtime.recovery.durable_store import DurableCheckpointStore

__all__ = [
    "Capture",
    "CheckpointId",
    "CheckpointManager",
    "CheckpointState",
    "CheckpointStore",
    "DurableCheckpointStore",
    "InMemoryCheckpointStore",
    "StoredCheckpoint",
    "decode_checkpoint",
    "encode_checkpoint",
]
