"""The settings of a window as one value, which is sent to workers as a payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows.assigners import (
    AlignedWindows,
    CountWindows,
    CumulativeWindows,
    SessionWindows,
    WindowAssigner,
)
from bicycle_sdk.windows.evictors import Evictor
from bicycle_sdk.windows.functions import AggregateFunction, is_mergeable
from bicycle_sdk.windows.triggers import Trigger, can_merge

__all__ = ["WindowPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """A window with all of its settings.

    Either ``aggregates`` or ``process`` (a ``WindowFunction`` or a callable) is the computation;
    with ``is_tuple`` the value of a result is a tuple, one item per aggregate. ``is_associative``
    False keeps the records of the window even if the aggregates could be merged.
    """

    assigner: WindowAssigner
    lateness_ms: int = 0
    late_tag: str | None = None
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    aggregates: tuple[AggregateFunction[Any, Any, Any], ...] = ()
    process: Any = None
    is_tuple: bool = False
    is_associative: bool = True
    is_pre_combined: bool = True

    @property
    def has_event_time(self) -> bool:
        """Return whether records are put into windows by their time."""
        return isinstance(self.assigner, AlignedWindows | SessionWindows)

    @property
    def keeps_records(self) -> bool:
        """Return whether the records of a window are stored until it fires."""
        return (
            self.process is not None
            or self.evictor is not None
            or not self.is_associative
            or not all(map(is_mergeable, self.aggregates))
            or (isinstance(self.assigner, CountWindows) and self._overlaps_by_count())
            or self._cuts_sessions
        )

    @property
    def is_triggered(self) -> bool:
        """Return whether a trigger must be asked at each record."""
        return self.trigger is not None or self.evictor is not None or not self.has_event_time

    @property
    def outlives_firing(self) -> bool:
        """Return whether the content of a window may be needed after it fired."""
        match self.assigner:
            case CountWindows():
                return self._overlaps_by_count()
            case AlignedWindows() if self.assigner.slide_ms < self.assigner.size_ms:
                return True
        return self.is_triggered or self.lateness_ms > 0

    @property
    def combines_early(self) -> bool:
        """Return whether records are folded before they are sent to the subtask of a key."""
        return self.is_pre_combined and not self.keeps_records and not self.is_triggered

    def checked(self) -> WindowPlan:
        """Return the plan itself.

        Raises:
            StreamDefinitionError: settings that do not go together.
        """
        for is_wrong, problem, hint in (
            (
                self.lateness_ms > 0 and not self.has_event_time,
                "allowed_lateness requires event time windows",
                "leave it out",
            ),
            (
                self.late_tag is not None and not self.has_event_time,
                "late_to requires event time windows: other windows have no late records",
                "leave it out",
            ),
            (
                isinstance(self.assigner, CountWindows)
                and (self.trigger is not None or self.evictor is not None),
                "count windows have a fixed trigger and evictor",
                "use global_window() with a trigger and an evictor",
            ),
            (
                isinstance(self.assigner, SessionWindows)
                and self.trigger is not None
                and not can_merge(self.trigger),
                "the trigger has no on_merge, but session windows merge",
                "define on_merge(states, window, ctx) in the trigger",
            ),
            (
                self._cuts_sessions and self.lateness_ms > 0,
                "allowed_lateness cannot be combined with max_duration: a late record would move "
                "all session boundaries",
                "increase the out-of-orderness of the watermarks instead",
            ),
            (
                self._cuts_sessions and (self.trigger is not None or self.evictor is not None),
                "max_duration cannot be combined with a trigger or an evictor",
                "leave one of them out",
            ),
        ):
            if is_wrong:
                raise StreamDefinitionError(call="window", problem=problem, hint=hint)
        return self

    def details(self) -> dict[str, Any]:
        """Return the settings in graphs and plans, as plain data."""
        found: dict[str, Any] = {"window_type": _type_of(self.assigner)}
        if self.lateness_ms:
            found["allowed_lateness_ms"] = self.lateness_ms
        if self.late_tag is not None:
            found["late_tag"] = self.late_tag
        if self.trigger is not None:
            found["trigger"] = self.trigger.describe()
        if self.evictor is not None:
            found["evictor"] = self.evictor.describe()
        return found

    @property
    def _cuts_sessions(self) -> bool:
        return (
            isinstance(self.assigner, SessionWindows) and self.assigner.max_duration_ms is not None
        )

    def _overlaps_by_count(self) -> bool:
        assert isinstance(self.assigner, CountWindows)
        return self.assigner.slide != self.assigner.size


def _type_of(assigner: WindowAssigner) -> dict[str, Any]:
    match assigner:
        case CumulativeWindows(size_ms=size, slide_ms=step, offset_ms=offset):
            lengths = {"step_ms": step, "size_ms": size}
            return {"Cumulative": lengths | ({"offset_ms": offset} if offset else {})}
        case AlignedWindows(size_ms=size, slide_ms=slide, offset_ms=offset):
            lengths = {"size_ms": size} if size == slide else {"size_ms": size, "slide_ms": slide}
            kind = "Tumbling" if size == slide else "Sliding"
            return {kind: lengths | ({"offset_ms": offset} if offset else {})}
        case SessionWindows(gap_ms=gap, min_records=count, max_duration_ms=longest):
            found = {"gap_ms": gap} | ({"min_records": count} if count > 1 else {})
            return {"Session": found | ({} if longest is None else {"max_duration_ms": longest})}
        case CountWindows(size=size, slide=slide):
            return {"Count": {"count": size} | ({} if size == slide else {"slide": slide})}
        case _:
            return {"Global": {}}
