"""Windows computed by brute force, to compare the operators with: no state, no strips, no epochs.

``late_model`` walks through epochs as the rules of lateness say and is as naive otherwise.
"""

from collections import defaultdict
from fractions import Fraction

from hypothesis import assume


def aligned_windows(size, slide, offset, is_cumulative, time):
    """Return all windows that hold a time, found by trying every start near it."""
    if is_cumulative:
        return [
            (start, end)
            for start in range(time - size, time + 1)
            if (start - offset) % size == 0
            for end in range(start + slide, start + size + 1, slide)
            if start <= time < end
        ]
    return [
        (start, start + size)
        for start in range(time - size - slide, time + 1)
        if (start - offset) % slide == 0 and start <= time < start + size
    ]


def gap_of(kind, record):
    """Return the gap of a record in sessions, for all records or by a function."""
    return kind[1](record) if callable(kind[1]) else kind[1]


def sessions(times_and_gaps):
    """Return the sessions of one key: intervals that overlap or touch are one."""
    merged = []
    for start, end in sorted((time, time + gap) for time, gap in times_and_gaps):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def cut(start, end, records, longest):
    """Return the parts of one session, each from a record on and not longer than allowed."""
    parts = {}
    left = sorted(records, key=lambda r: r[1])
    while left:
        first = left[0][1]
        stop = min(first + longest, end)
        parts[first, stop] = [r for r in left if r[1] < stop]
        left = [r for r in left if r[1] >= stop]
    return parts


def windows_of_key(kind, records):
    """Return ``{(start, end): records}`` of the records of one key."""
    found = defaultdict(list)
    if kind[0] in ("session", "cut session"):
        for start, end in sessions([(r[1], gap_of(kind, r)) for r in records]):
            inside = [r for r in records if start <= r[1] < end]
            found |= cut(start, end, inside, kind[2] if kind[0] == "cut session" else end - start)
    else:
        for record in records:
            for window in aligned_windows(*kind[1:], record[1]):
                found[window].append(record)
    return found


def model(kind, records, result):
    """Return the results of all windows of all keys: ``(key, start, end, result(records))``."""
    by_key = defaultdict(list)
    for record in records:
        by_key[record[0]].append(record)
    return sorted(
        (key, start, end, result(sorted(inside, key=lambda r: r[1])))
        for key, some in by_key.items()
        for (start, end), inside in windows_of_key(kind, some).items()
    )


def late_model(kind, epochs, *, delay, lateness):
    """Return what is accepted and what is late, epoch by epoch, by the rules of lateness.

    Returns:
        The records that count, those that come too late, in no particular order.
    """
    accepted, late = [], []
    watermark = None
    for epoch in epochs:
        over = []
        if kind[0] == "session" and watermark is not None:
            ends = ended(kind, accepted, watermark, lateness)
            over = [r for r in epoch if r[1] <= ends.get(r[0], r[1] - 1)]
            # An ended session is forgotten after two gaps: then such a record may join an open one.
            assume(
                not any(ends[r[0]] + 2 * gap_of(kind, r) + lateness <= watermark for r in over)
                or over == rescued(kind, accepted + epoch, over, watermark, lateness)[1]
            )
        left = [r for r in epoch if r not in over]
        late += over
        fresh = [
            r for r in left if watermark is None or not is_closed(kind, r, watermark, lateness)
        ]
        doubtful = [r for r in left if r not in fresh]
        accepted += fresh
        if kind[0] == "session":
            saved, doubtful = rescued(kind, accepted, doubtful, watermark, lateness)
            accepted += saved
        late += doubtful
        newest = [r[1] - delay for r in epoch]
        if newest:
            watermark = max(newest) if watermark is None else max(watermark, *newest)
    return accepted, late


def ended(kind, accepted, watermark, lateness):
    """Return the end of the last session of each key that takes no more records."""
    ends = {}
    for key in {r[0] for r in accepted}:
        for _, end in sessions([(r[1], gap_of(kind, r)) for r in accepted if r[0] == key]):
            # The watermark of the model is one ms more than that of the job.
            if end + lateness < watermark:
                ends[key] = max(end, ends.get(key, end))
    return ends


def is_closed(kind, record, watermark, lateness):
    """Tell whether all windows that a record would open by itself are over."""
    if kind[0] == "session":
        # A record at the end of a session touches it, and more of the newest time may come.
        return record[1] + gap_of(kind, record) + lateness < watermark
    ends = [end for _, end in aligned_windows(*kind[1:], record[1])]
    return bool(ends) and max(ends) + lateness <= watermark


def rescued(kind, accepted, doubtful, watermark, lateness):
    """Return the doubtful records that join a session which is still open, and the others."""
    saved, rest = [], list(doubtful)
    while True:
        for record in rest:
            open_ones = [
                (start, end)
                for start, end in sessions(
                    [(r[1], gap_of(kind, r)) for r in [*accepted, *saved] if r[0] == record[0]]
                )
                if watermark is None or end + lateness >= watermark
            ]
            start, end = record[1], record[1] + gap_of(kind, record)
            if any(start <= other_end and other <= end for other, other_end in open_ones):
                saved.append(record)
                rest.remove(record)
                break
        else:
            return saved, rest


def exact_sum(values):
    """Return the sum of numbers, exact and rounded once."""
    values = list(values)
    total = sum(map(Fraction, values))
    return float(total) if any(isinstance(value, float) for value in values) else int(total)
