"""Windows that fire by count, and evictors, against brute force: epochs, crashes, parallelisms."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness
from bicycle_sdk.windows import CountEvictor, CountTrigger, PurgingTrigger, TimeEvictor
from tests.examples import examples
from tests.property import window_model
from tests.property.mishaps import ENGINES
from tests.property.test_windows import (
    COMPUTED,
    FIXED,
    RECORDS,
    histories,
    job_of,
    run,
    windowed,
)

FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))


def by_key(records):
    """Return the records of each key, in the order in which they come."""
    found = defaultdict(list)
    for record in records:
        found[record[0]].append(record)
    return found


def row(key, records, result):
    """Return what a window that looks at no time gives: it names the time from first to last."""
    times = [time for _, time, _ in records]
    return (key, min(times), max(times) + 1, result(records))


@pytest.mark.parametrize("is_sliding", [False, True])
@FEW
@given(
    what=st.sampled_from(["count", "all", "without merge", "process"]),
    size=st.integers(1, 6),
    slide=st.integers(1, 8),
    records=RECORDS,
    history=histories(),
    parallelism=st.integers(1, 4),
    engine=ENGINES,
)
def test_count_windows_give_what_brute_force_gives(
    is_sliding, what, size, slide, records, history, parallelism, engine
):
    (compute, result), step = COMPUTED[what], slide if is_sliding else size

    def make(keyed):
        compute(keyed.count_window(size, step)).uid("window").collect("out")

    expected = [
        row(key, some[max(0, end - size) : end], result)
        for key, some in by_key(records).items()
        for end in range(step, len(some) + 1, step)
    ]
    job = job_of(make, delay=1_000)
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        run(harness, records, history)
        found = list(map(tuple, harness.results("out")))

    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("purges", [True, False])
@FEW
@given(
    size=st.integers(1, 6),
    records=RECORDS,
    history=histories(),
    parallelism=st.integers(1, 4),
    what=st.sampled_from(["count", "all", "process"]),
    engine=ENGINES,
)
def test_a_global_window_counts_on_whatever_happens(
    purges, size, records, history, parallelism, what, engine
):
    compute, result = COMPUTED[what]
    trigger = PurgingTrigger(CountTrigger(size)) if purges else CountTrigger(size)

    def make(keyed):
        compute(keyed.global_window().trigger(trigger)).uid("window").collect("out")

    expected = [
        row(key, some[end - size if purges else 0 : end], result)
        for key, some in by_key(records).items()
        for end in range(size, len(some) + 1, size)
    ]
    job = job_of(make, delay=1_000)
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        run(harness, records, history)
        found = list(map(tuple, harness.results("out")))

    assert sorted(found, key=repr) == sorted(expected, key=repr)


def last_records(count):
    return CountEvictor(count), lambda rows: rows[-count:]


def newest_records(span):
    def kept(rows):
        newest = max(time for _, time, _ in rows)
        return [r for r in rows if r[1] > newest - span]

    return TimeEvictor(span), kept


EVICTORS = st.one_of(st.integers(1, 3).map(last_records), st.integers(1, 30).map(newest_records))


def fired(kind, epochs, *, delay, lateness, evict):
    """Return key, window and records of each firing, epoch by epoch, as the rules say."""
    results, kept, pending = [], defaultdict(list), set()
    watermark = None
    for epoch in [*epochs, None]:
        for record in epoch or ():
            for window in window_model.aligned_windows(*kind[1:], record[1]):
                if watermark is None or window[1] + lateness > watermark:
                    kept[record[0], window].append(record)
                    pending.add((record[0], window))
        if epoch is None:
            reached = max((end for _, (_, end) in kept), default=0) + lateness
        else:
            reached = max(record[1] for record in epoch) - delay
        watermark = reached if watermark is None else max(watermark, reached)
        for place in sorted(p for p in pending if p[1][1] <= watermark):
            kept[place] = evict(kept[place])
            results.append((place[0], *place[1], list(kept[place])))
            pending.discard(place)
        for place in [p for p in kept if p[1][1] + lateness <= watermark]:
            del kept[place]
    return results


@FEW
@given(
    kind=FIXED,
    epochs=st.lists(RECORDS, min_size=1, max_size=5),
    evictor=EVICTORS,
    lateness=st.integers(0, 40),
    parallelism=st.integers(1, 3),
    crashes=st.booleans(),
    what=st.sampled_from(["count", "all", "process"]),
)
def test_what_an_evictor_left_out_stays_out_when_late_records_come(
    kind, epochs, evictor, lateness, parallelism, crashes, what
):
    (compute, result), (made, evict) = COMPUTED[what], evictor

    def make(keyed):
        window = windowed(keyed, kind).allowed_lateness(lateness).evictor(made)
        compute(window).uid("window").collect("out")

    expected = [
        (key, start, end, result(rows))
        for key, start, end, rows in fired(kind, epochs, delay=15, lateness=lateness, evict=evict)
    ]
    with Harness(job_of(make, delay=15), parallelism=parallelism) as harness:
        for epoch in epochs:
            harness.push(epoch)
            harness.run_epoch()
            if crashes:
                harness.crash()
        harness.end()
        harness.run()
        found = list(map(tuple, harness.results("out")))

    assert sorted(found, key=repr) == sorted(expected, key=repr)
