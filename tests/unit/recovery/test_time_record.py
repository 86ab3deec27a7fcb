"""Where event time stood, as older manifests tell it: watermarks then meant 1 ms less."""

import msgspec

from bicycle_runtime.layouts.manifest import PlanRecord, ShardTime, TimeRecord
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN

PLAN = PlanRecord(bundle_digest="", parallelism={}, now_ms=0)
TIME = TimeRecord(
    clock_ms=7,
    shards={"source": {"a": ShardTime(watermark_ms=10, event_ms=12, active_ms=3)}},
    watermarks={"windows": 10, "ended": WATERMARK_MAX, "unknown": WATERMARK_MIN},
    next_event_ms={"windows": 20},
    next_timer_ms={"timers": 30},
)


class OldTimeRecord(msgspec.Struct, kw_only=True):
    clock_ms: int
    shards: dict
    watermarks: dict
    next_event_ms: dict
    next_timer_ms: dict


def read(time):
    data = encode_manifest(Manifest(epoch=1, plan=PLAN, time=time))
    return decode_manifest(data, path="1.manifest").time


def test_a_record_of_now_is_read_as_it_was_written():
    assert read(TIME) == TIME


def test_watermarks_of_before_are_1_ms_less():
    fields = {name: getattr(TIME, name) for name in OldTimeRecord.__struct_fields__}

    found = read(OldTimeRecord(**fields))

    assert found.shards["source"]["a"] == ShardTime(watermark_ms=9, event_ms=12, active_ms=3)
    assert found.watermarks == {"windows": 9, "ended": WATERMARK_MAX, "unknown": WATERMARK_MIN}
    assert (found.next_event_ms, found.next_timer_ms) == ({"windows": 19}, {"timers": 30})
    assert (found.clock_ms, found.form) == (7, TIME.form)
