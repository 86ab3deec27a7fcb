"""What the golden files of this folder hold. The files are never written again, only added to."""

from pathlib import Path

from bicycle_runtime.contract import StagedFile
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord, TimeRecord
from bicycle_runtime.layouts.state import RangeState, StateRef
from bicycle_runtime.recovery.manifest import Manifest

GOLDEN = Path(__file__).parent / "golden"

MANIFEST = Manifest(
    epoch=17,
    plan=PlanRecord(
        bundle_digest="d1", parallelism={"words": 2, "count": 1}, now_ms=1_700_000_000_000
    ),
    event_count=300,
    watermark_ms=1_699_999_999_000,
    offsets={"lines": {"1": 200, "0": 100}, "words": {"": 3}},
    states={
        "count": OperatorState(
            scope="key_groups",
            group_count=8,
            ranges=(
                RangeState(
                    first_group=0,
                    end_group=8,
                    files=(
                        StateRef(
                            path="state/count/0-8/17-a.delta", is_base=False, tier=0,
                            first_epoch=17, last_epoch=17, byte_count=5, crc32=99,
                        ),
                    ),
                    recent=((17, "state/count/0-8/17-a.delta"),),
                ),
            ),
        )
    },
    sinks={"out": {"files": ["staged/out/17/0-a"]}},
    sources={"lines": {"seen": ["a", "ü"]}},
    feedback={
        2: (
            StagedFile(
                path="staged/f2/17/0-a", record_count=1, byte_count=4, crc32=7, subtask=0
            ),
        )
    },
    time=TimeRecord(clock_ms=5, watermarks={"count": 9}, next_timer_ms={"count": 11}),
)  # fmt: skip
