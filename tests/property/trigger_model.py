"""Windows with triggers by brute force: record by record, in lists that are searched each time.

A rule is ``("count", n)``, ``("watermark",)``, ``("early", n)`` or ``("continuous", interval)``.
"""

from dataclasses import dataclass, field

from hypothesis import assume

from tests.property import window_model

NEVER = 1 << 60


@dataclass(eq=False)
class Pane:
    """One window of one key: records in the order of arrival, a number, and times to wake at."""

    key: str
    start: int
    end: int
    records: list = field(default_factory=list)
    seen: int = 0
    wakes: set = field(default_factory=set)


class TriggeredWindows:
    """All windows of a job.

    Args:
        kind: As in ``window_model``, or ``("global",)``.
        rule: When windows fire.
        purges: Whether the records go then.
        evict: Which records of a firing window stay.
        lateness: How long windows are updated.
    """

    def __init__(self, kind, rule, *, purges, evict, lateness):
        self._kind, self._rule, self._lateness = kind, rule, lateness
        self._purges, self._evict = purges, evict
        self._panes = []
        self._ends = {}  # of the last ended session, by key
        self._watermark = -NEVER
        self.fired = []  # key, start, end, records
        self.late = []

    def take(self, record):
        """Put a record into its windows."""
        bounds = self._bounds(record)
        panes = [pane for window in bounds if (pane := self._pane(record[0], *window))]
        if bounds and not panes:
            self.late.append(record)
        for pane in panes:
            pane.records.append(record)
            self._see(pane, record)

    def advance(self, watermark):
        """Let event time go on: windows wake in the order of time, then those that are over go."""
        # Windows before that time are complete; a record at its end still joins a session.
        complete = watermark - (self._kind[0] == "session")
        self._watermark = max(self._watermark, complete)
        while due := [
            (time, place)
            for place, pane in enumerate(self._panes)
            for time in pane.wakes
            if time <= self._watermark
        ]:
            time, place = min(due)
            pane = self._panes[place]
            pane.wakes.discard(time)
            pane.seen = 0
            self._fire(pane)
        for pane in self._panes:
            if self._kind[0] == "session" and self._is_over(pane.end):
                self._ends[pane.key] = max(pane.end, self._ends.get(pane.key, pane.end))
        self._panes = [pane for pane in self._panes if not self._is_over(pane.end)]

    def _bounds(self, record):
        if self._kind[0] == "global":
            return [(-NEVER, NEVER)]
        if self._kind[0] == "session":
            return [(record[1], record[1] + window_model.gap_of(self._kind, record))]
        return window_model.aligned_windows(*self._kind[1:], record[1])

    def _is_over(self, end):
        return self._kind[0] != "global" and end + self._lateness <= self._watermark

    def _pane(self, key, start, end):
        """Return the pane of a window, for a session joined with all it touches; None when over."""
        is_session = self._kind[0] == "session"
        met = [
            pane
            for pane in self._panes
            if pane.key == key
            and (
                (pane.start <= end and start <= pane.end)
                if is_session
                else (pane.start, pane.end) == (start, end)
            )
        ]
        own, start = start, min([start, *(pane.start for pane in met)])
        end = max([end, *(pane.end for pane in met)])
        if self._is_over(end):
            return None
        if is_session and own <= self._ends.get(key, own - 1):
            # An ended session is forgotten after two gaps: then the record may join an open one.
            assume(not met or self._ends[key] + self._lateness + 20 > self._watermark)
            return None
        if len(met) == 1 and (met[0].start, met[0].end) == (start, end):
            return met[0]
        joined = Pane(key, start, end, sorted((r for p in met for r in p.records), key=arrival))
        if met:
            joined.seen = sum(pane.seen for pane in met)
            self._wake(joined, start)
        self._panes = [pane for pane in self._panes if pane not in met] + [joined]
        return joined

    def _see(self, pane, record):
        kind, *number = self._rule
        pane.seen += 1
        self._wake(pane, record[1])
        is_early = kind == "early" and pane.end > self._watermark
        if (kind == "count" or is_early) and pane.seen >= number[0]:
            pane.seen = 0
            self._fire(pane)

    def _wake(self, pane, time):
        kind, *number = self._rule
        if kind != "count":
            pane.wakes.add(pane.end)
        if kind == "continuous":
            behind = max(time, self._watermark)
            pane.wakes |= {t for t in [behind - behind % number[0] + number[0]] if t < pane.end}

    def _fire(self, pane):
        if not pane.records:
            return
        pane.records = self._evict(pane.records)
        times = [time for _, time, _ in pane.records]
        bounds = (min(times), max(times) + 1) if pane.end == NEVER else (pane.start, pane.end)
        self.fired.append((pane.key, *bounds, list(pane.records)))
        if self._purges:
            pane.records = []


def arrival(record):
    """Return the number of a record: they are numbered as they come."""
    return record[2]
