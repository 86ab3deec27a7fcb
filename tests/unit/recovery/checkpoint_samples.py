"""One checkpoint with its bytes, written by hand, and checkpoints of all kinds."""

from hypothesis import strategies as st

from bicycle_runtime.recovery import CheckpointId, CheckpointState

SAMPLE = CheckpointState(
    CheckpointId("orders", 7, created_at_ms=1_700_000_000_000),
    operator_states={"op": b"\x01\x02\x03"},
    source_offsets={"s": 5},
    watermark_ns=8,
    event_count=9,
    metadata={"by": "tést"},
)
SAMPLE_BYTES = bytes.fromhex(
    "0700000000000000" "0800000000000000" "0900000000000000"
    "01000000" "02000000" "6f70" "03000000" "010203"
    "01000000" "01000000" "73" "0500000000000000"
)  # fmt: skip

U64 = st.integers(0, 2**64 - 1)
IDS = st.builds(CheckpointId, st.text(max_size=5), U64, created_at_ms=U64)
STATES = st.builds(
    CheckpointState,
    IDS,
    operator_states=st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=4),
    source_offsets=st.dictionaries(st.text(max_size=5), U64, max_size=4),
    watermark_ns=U64,
    event_count=U64,
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
