"""A merge of several streams in the order of event time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from bicycle_sdk.connected import BuiltInFunction
from bicycle_sdk.joins.kept_rows import Arrivals
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.windows.panes import LateRecord, Window

__all__ = ["TimeMerge"]


class TimeMerge(BuiltInFunction):
    """A merge that emits records in the order of time, then of streams.

    A record waits until the watermark has passed it: then every stream has delivered all older
    records.

    Args:
        record_type: Type of the records, None when unknown.
        late_tag: Side output for late records.
    """

    name = "merge_by_time"
    stamps: ClassVar[bool] = True
    needs_times: ClassVar[bool] = True
    timer_lead_ms: ClassVar[int] = 1

    def __init__(self, record_type: Any, late_tag: str | None) -> None:
        self._late_tag = late_tag
        self.waiting = MapStateDescriptor[Any, Any](
            "waiting", tuple[int, int, int], record_type
        )  # time, stream, number among the records of this time and stream

    def open(self, ctx: Any) -> None:
        """Open the state of waiting records."""
        self._waiting = ctx.get_map_state(self.waiting)
        self._arrivals = Arrivals()

    def begin_epoch(self) -> None:
        """Forget the last epoch."""
        super().begin_epoch()
        self._arrivals.begin_epoch()

    def process_input(self, ordinal: int, value: Any, ctx: Any) -> list[Any]:
        """Buffer a record of one stream until its time."""
        time, watermark = ctx.timestamp, ctx.current_watermark()
        if time <= watermark:
            self.late += 1
            if self._late_tag is not None:
                window = Window(time, time + 1)
                late = LateRecord(value, time, window, watermark, watermark - time)
                ctx.side_output(self._late_tag, late)
            return []
        position = (time, ordinal)
        there: Iterable[int] = ()
        # hot path: they leave together, so a time has a first record or no record.
        if (*position, 0) in self._waiting:
            there = (number for (_, _, number), _ in self._waiting.prefix(position))
        number = self._arrivals.number(position, there)
        self._waiting.put((time, ordinal, number), value)
        ctx.timer_service.register_event_time_timer(time + 1)
        return []

    def on_timer(self, timestamp_ms: int, _ctx: Any) -> list[tuple[int, Any]]:
        """Return the records of the time that the watermark has passed."""
        time = timestamp_ms - 1
        found = list(self._waiting.prefix((time,)))
        for row_key, _ in found:
            self._waiting.remove(row_key)
        return [(time, value) for _, value in found]
