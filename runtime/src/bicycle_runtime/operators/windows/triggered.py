"""Windows with a trigger or evictor, global and count windows, run per record.

Each key has *panes*: one per window. A record goes into its panes, the trigger answers, and a
pane may fire at once; timers are due when the records of the epoch are through. An event-time
window is dropped when the watermark has passed its end by the allowed lateness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import is_, itemgetter
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.layouts.state import WindowKey
from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows, rows_of, session_ends
from bicycle_runtime.operators.user_calls.policy import DROPPED, user_hook
from bicycle_runtime.operators.user_calls.user_functions import run
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.ended_sessions import keep_until
from bicycle_runtime.operators.windows.firing import Fired, Unkept
from bicycle_runtime.operators.windows.panes import (
    Pane,
    PaneContext,
    dump_panes,
    load_panes,
    type_of_panes,
)
from bicycle_runtime.state.memory.windows import Row, WindowEntries, WindowTables
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import (
    AlignedWindows,
    CountEvictor,
    CountTrigger,
    CountWindows,
    EventTimeTrigger,
    Evictor,
    NeverTrigger,
    PurgingTrigger,
    SessionWindows,
    TimedValue,
    Trigger,
    TriggerResult,
    Window,
    WindowPlan,
)

_ALL_TIME = (WATERMARK_MIN, WATERMARK_MAX)  # bounds of panes that time does not close


class TriggeredOperator(WindowOperator):
    """Keeps panes by key."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._assigner = self.plan.assigner
        self._trigger, self._evictor = _rules(self.plan.trigger, self.plan.evictor, self._assigner)
        self._context = PaneContext(self._remember)
        self._window_key: WindowKey = (0, 0, None)
        self._values: list[Any] = []
        self._times: list[int] = []

    def new_entries(self, windows: WindowTables) -> WindowEntries:
        return pane_entries(self.plan, self.folding, windows)

    def moments(self, entry: Any) -> Iterator[tuple[TimeDomain, int]]:
        for pane in entry:
            if pane.is_ended:
                yield "event", pane.start
                continue
            for time_ms in pane.events:
                yield "event", time_ms
            for time_ms in pane.moments:
                yield "processing", time_ms
            if self.plan.has_event_time:
                yield "event", pane.end + self.plan.lateness_ms

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._values, self._times = [], []

    def begin_time(self, advance: Advance) -> None:
        super().begin_time(advance)
        self._context.complete, self._context.now_ms = self.complete, advance.now_ms

    def apply(self, batch: Batch) -> Batch:
        self.has_times = batch.times() is not None
        if not self.has_times and not self.plan.has_event_time:
            stamped = ExchangeLineage(batch.lineage.span(), [self.now_ms] * len(batch.values))
            batch = Batch(batch.values, stamped, batch.groups)
        rows = rows_of(batch, self.key_of, self.policy, operator=self.spec.uid)
        if isinstance(self._assigner, SessionWindows):
            rows = session_ends(rows, self._assigner, self.policy)
        with user_hook(self.spec.uid, "the trigger or evictor of a window"):
            for index in range(len(rows.keys)):
                self._put(rows, index)
        return self._emit()

    def advance(self, advance: Advance) -> Iterator[Batch]:
        self.let_come(advance.watermark)
        self._context.complete = self.complete
        self.begin_firing()
        with user_hook(self.spec.uid, "the trigger or evictor of a window"):
            for time, window_key in self.event_times.due(self.complete):
                self._at_event_time(time, window_key)
            for time, window_key in self.processing_times.due(self.now_ms):
                self._at_processing_time(time, window_key)
        yield self._emit()

    def next_event_ms(self) -> int | None:
        end = self.event_times.first(
            lambda time, window_key: self._is_waiting(time, self._panes_at(window_key))
        )
        return None if end is None else self.watermark_for(end)

    def next_timer_ms(self) -> int | None:
        own = self.processing_times.first(
            lambda time, window_key: any(
                time in pane.moments for pane in self._panes_at(window_key)
            )
        )
        times = (own, super().next_timer_ms())
        return min((time for time in times if time is not None), default=None)

    # --- records in --------------------------------------------------------------------------

    def _put(self, rows: Rows, index: int) -> None:
        """Put one record into its panes and ask the trigger about each."""
        key, group, time = rows.keys[index], rows.groups[index], rows.times[index]
        value = rows.batch.values[index]
        found, windows = self._panes_of(rows, index)
        if not found:
            if windows:
                self.count_late(rows.take([index]), windows[-1:])
            return
        if not self.keeps_records and not self._folds(found, rows, index):
            return
        for namespace, pane in found:
            self._enter((namespace, group, key), pane)
            pane.take_in(time)
            if self.keeps_records:
                self.table.records.add(namespace, group, key, ([time], [value]))
            result = self._trigger.on_element(value, time, pane.window, self._context)
            self._act(pane, result)

    def _panes_of(self, rows: Rows, index: int) -> tuple[list[tuple[int, Pane]], list[Window]]:
        """Return namespaces and panes of a record, and the windows that are closed."""
        key, group, time = rows.keys[index], rows.groups[index], rows.times[index]
        if isinstance(self._assigner, AlignedWindows):
            windows = self._assigner.windows_of(time)
            opened = [window for window in windows if not self.is_closed(window.end)]
            closed = [window for window in windows if self.is_closed(window.end)]
            size = self._assigner.size_ms
            return [(w.end - size, self._pane(w.end - size, group, key, w)) for w in opened], closed
        if isinstance(self._assigner, SessionWindows):
            window = Window(time, rows.namespaces[index])
            pane = self._session(group, key, window)
            return ([], [window]) if pane is None else ([(0, pane)], [])
        return [(0, self._pane(0, group, key, Window(*_ALL_TIME)))], []

    def _pane(self, namespace: int, group: int, key: Any, window: Window) -> Pane:
        """Return the only pane of a key in a namespace; a new one is not in the table yet."""
        panes: list[Pane] = self.table.entries.find(namespace, group, key) or []
        return panes[0] if panes else Pane(window.start, window.end)

    def _session(self, group: int, key: Any, window: Window) -> Pane | None:
        """Return the session that an interval belongs to, joined with all it touches.

        None if the interval is closed and touches no open session, or if it touches a session that
        has ended. A session that is new, or has other bounds, is not in the table yet.
        """
        panes: list[Pane] = self.table.entries.find(0, group, key) or []
        if any(pane.is_ended and window.start <= pane.end for pane in panes):
            return None
        touching = [pane for pane in panes if pane.touches(window)]
        if not touching:
            return None if self.is_closed(window.end) else Pane(window.start, window.end)
        bounds = touching[0].window
        for other in touching[1:]:
            bounds = bounds.cover(other.window)
        if len(touching) == 1 and bounds.cover(window) == bounds:
            return touching[0]
        return self._join(touching, bounds.cover(window))

    def _enter(self, window_key: WindowKey, pane: Pane) -> None:
        """Enter a pane; a new pane replaces the panes in the table that it touches."""
        namespace, group, key = window_key
        panes: list[Pane] = self.table.entries.find(*window_key) or []
        if any(one is pane for one in panes):
            self._turn_to(window_key, pane)
            return
        is_session = isinstance(self._assigner, SessionWindows)
        touching = [one for one in panes if is_session and one.touches(pane.window)]
        left = [one for one in panes if one not in touching]
        entry = sorted([*left, pane], key=lambda one: one.start)
        self.table.entries.group(namespace, group)[key] = entry
        self._turn_to(window_key, pane)
        self._remember_all(pane)
        if touching:
            states: list[Mapping[str, Any]] = [
                one.state for one in sorted(touching, key=lambda one: one.start)
            ]
            self._trigger.on_merge(states, pane.window, self._context)

    def _join(self, panes: list[Pane], window: Window) -> Pane:
        joined = Pane(window.start, window.end)
        for pane in sorted(panes, key=lambda one: one.start):
            if pane.count:
                assert pane.first is not None
                assert pane.last is not None
                joined.take_in(pane.first)
                joined.take_in(pane.last)
                joined.count += pane.count - 2
            if joined.content is None:
                # Merging may change it, and the record for which it is done may be left out.
                is_kept = self.policy.undoes and len(panes) > 1 and pane.content is not None
                joined.content = self.folding.copy(pane.content) if is_kept else pane.content
            elif pane.content is not None:
                joined.content = self.folding.merged(joined.content, pane.content)
        return joined

    def _folds(self, found: list[tuple[int, Pane]], rows: Rows, index: int) -> bool:
        """Fold a record into the accumulators of its panes; return whether it was kept."""
        value = rows.batch.values[index]
        contents = [
            self.folding.fresh() if pane.content is None else pane.content for _, pane in found
        ]
        try:
            pairs = zip(contents, self.folding.copies(value, len(contents)), strict=True)
            added = [self.folding.added(content, copy) for content, copy in pairs]
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            failed = users_error(error)
            self.policy.batch = rows.batch
            copies = self.folding.copies(value, len(contents))
            again = partial(self.folding.added_to_all, contents, copies)
            settled = run(self.policy.settle(failed, index, again))
            if settled is DROPPED:
                return False
            added = list(settled)
        for (_, pane), content in zip(found, added, strict=True):
            pane.content = content
        return True

    # --- timers ------------------------------------------------------------------------------

    def _turn_to(self, window_key: WindowKey, pane: Pane) -> None:
        self._window_key, self._context.pane = window_key, pane
        self.table.entries.touch(window_key[0], window_key[1], (window_key[2],))

    def _remember(self, is_event_time: bool, time_ms: int) -> None:
        self.times_of("event" if is_event_time else "processing").add(time_ms, self._window_key)

    def _remember_all(self, pane: Pane) -> None:
        for domain, time_ms in self.moments((pane,)):
            self.times_of(domain).add(time_ms, self._window_key)

    def _panes_at(self, window_key: WindowKey) -> list[Pane]:
        return list(self.table.entries.find(*window_key) or ())

    def _at_event_time(self, time: int, window_key: WindowKey) -> None:
        for pane in self._panes_at(window_key):
            if pane.is_ended:
                if pane.start <= time and len(self._panes_at(window_key)) == 1:
                    self._remove(window_key, pane)
                continue
            if time in pane.events:
                pane.events.discard(time)
                self._turn_to(window_key, pane)
                self._act(pane, self._trigger.on_event_time(time, pane.window, self._context))
            if self.plan.has_event_time and pane.end + self.plan.lateness_ms <= time:
                self._turn_to(window_key, pane)
                self._act(pane, self._trigger.on_expiry(pane.window, self._context))
                self._purge(pane)
                self._remove(window_key, pane)
                if isinstance(self._assigner, SessionWindows):
                    self._remember_end(window_key, pane)

    def _remember_end(self, window_key: WindowKey, ended: Pane) -> None:
        """Replace the stored end of a key's last session, if a record may touch it."""
        namespace, group, key = window_key
        trace = Pane(keep_until(self.plan, ended.start, ended.end), ended.end)
        left = [pane for pane in self._panes_at(window_key) if not pane.is_ended]
        if left or trace.start > self.complete:
            self.table.entries.group(namespace, group)[key] = [*left, trace]
            self._turn_to(window_key, trace)
            self._remember_all(trace)
        else:
            self.table.entries.remove(namespace, group, key)

    def _at_processing_time(self, time: int, window_key: WindowKey) -> None:
        for pane in self._panes_at(window_key):
            if time in pane.moments:
                pane.moments.discard(time)
                self._turn_to(window_key, pane)
                self._act(pane, self._trigger.on_processing_time(time, pane.window, self._context))

    def _is_waiting(self, time: int, panes: list[Pane]) -> bool:
        return any(
            time == pane.start and len(panes) == 1 if pane.is_ended else self._waits_for(pane, time)
            for pane in panes
        )

    def _waits_for(self, pane: Pane, time: int) -> bool:
        is_expiry = self.plan.has_event_time and pane.end + self.plan.lateness_ms == time
        return time in pane.events or is_expiry

    # --- results out -------------------------------------------------------------------------

    def _act(self, pane: Pane, result: TriggerResult) -> None:
        if result.fires and pane.count:
            self._fire(pane)
        if result.purges:
            self._purge(pane)
            # Windows of event time go when their time is over: a session has its bounds until then.
            is_bare = not (pane.state or pane.events or pane.moments or pane.values)
            if is_bare and not self.plan.has_event_time:
                self._remove(self._window_key, pane)

    def _fire(self, pane: Pane) -> None:
        content = pane.content
        whole: list[TimedValue] = []
        elements: list[TimedValue] = []
        if self.keeps_records:
            times, values = self._row(pane)
            elements = whole = list(map(TimedValue, times, values))
            if self._evictor is not None:
                elements = list(self._evictor.before(list(whole), pane.window))
            content = [e.timestamp for e in elements], [e.value for e in elements]
        window = self._bounds(pane, content)
        if window is not None and self._is_long_enough(pane):
            is_session = isinstance(self._assigner, SessionWindows)
            kept = Unkept() if is_session else pane.values
            given, given_times = self.firing.results(
                [Fired(self._window_key[2], window, content, kept)]
            )
            self._values += given
            self._times += given_times
        if self._evictor is not None:
            self._keep_only(pane, list(self._evictor.after(elements, pane.window)), whole)

    def _is_long_enough(self, pane: Pane) -> bool:
        assigner = self._assigner
        return not isinstance(assigner, SessionWindows) or pane.count >= assigner.min_records

    def _bounds(self, pane: Pane, content: Any) -> Window | None:
        """Return the window that a result names, None when no record is left in it."""
        if self.keeps_records and not content[0]:
            return None
        if self.plan.has_event_time:
            return pane.window
        if self.keeps_records:
            return Window(min(content[0]), max(content[0]) + 1)
        assert pane.first is not None
        assert pane.last is not None
        return Window(pane.first, pane.last + 1)

    def _row(self, pane: Pane) -> Row:
        times, values = self.table.records.row(*self._window_key)
        if not isinstance(self._assigner, SessionWindows):
            return times, values
        inside, _ = _split(times, pane)
        return [times[i] for i in inside], [values[i] for i in inside]

    def _keep_only(
        self, pane: Pane, elements: list[TimedValue], whole: Sequence[TimedValue] = ()
    ) -> None:
        """Keep only these records of a pane; ``whole`` are its records before."""
        times, values = self.table.records.row(*self._window_key)
        kept = [e.timestamp for e in elements], [e.value for e in elements]
        if isinstance(self._assigner, SessionWindows):
            # All sessions of a key are in one row, in the order of arrival.
            inside, others = _split(times, pane)
            namespaces = dict(zip(map(id, whole), inside, strict=False))
            ordered = [(namespaces.get(id(e), len(times)), e.timestamp, e.value) for e in elements]
            ordered += [(i, times[i], values[i]) for i in others]
            ordered.sort(key=itemgetter(0))
            kept = [time for _, time, _ in ordered], [value for _, _, value in ordered]
        if kept[0] != times or not all(map(is_, kept[1], values)):
            self.table.records.replace(*self._window_key, kept)
        pane.empty()
        for element in elements:
            pane.take_in(element.timestamp)

    def _purge(self, pane: Pane) -> None:
        if self.keeps_records:
            self._keep_only(pane, [])
        pane.empty()

    def _remove(self, window_key: WindowKey, pane: Pane) -> None:
        namespace, group, key = window_key
        left = [one for one in self._panes_at(window_key) if one is not pane]
        if left:
            self.table.entries.group(namespace, group)[key] = left
            self.table.entries.touch(namespace, group, (key,))
        else:
            self.table.entries.remove(namespace, group, key)

    def _emit(self) -> Batch:
        values, times, self._values, self._times = self._values, self._times, [], []
        return Batch(values, ExchangeLineage(None, times if self.has_times else None))


def pane_entries(plan: WindowPlan, folding: Folding, windows: WindowTables) -> WindowEntries:
    """Return empty entries of panes."""
    kind = type_of_panes(folding.state_type, keeps_records=plan.keeps_records)
    dump = partial(dump_panes, type_of_all=kind)
    return windows.entries("p", kind, dump=dump, load=load_panes)


def _split(times: list[int], pane: Pane) -> tuple[list[int], list[int]]:
    """Return the positions of the times in a session, and of the others."""
    inside = [i for i, time in enumerate(times) if pane.start <= time < pane.end]
    others = [i for i, time in enumerate(times) if not pane.start <= time < pane.end]
    return inside, others


def _rules(
    trigger: Trigger | None, evictor: Evictor | None, assigner: Any
) -> tuple[Trigger, Evictor | None]:
    """Return the trigger and evictor of a plan, or its windows' defaults."""
    if isinstance(assigner, CountWindows):
        if assigner.size == assigner.slide:
            return PurgingTrigger(CountTrigger(assigner.size)), None
        return CountTrigger(assigner.slide), CountEvictor(assigner.size)
    if trigger is not None:
        return trigger, evictor
    has_event_time = isinstance(assigner, AlignedWindows | SessionWindows)
    return EventTimeTrigger() if has_event_time else NeverTrigger(), evictor
