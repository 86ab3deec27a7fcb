"""States that expire by event time, in whole jobs, against a dict of times: whatever happens."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tests.examples import examples
from tests.property.test_windows import histories, run

TTL_MS = 40
RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.sampled_from(["put", "put", "look"])),
    max_size=25,
)


class Keeps(KeyedProcessFunction[str, tuple, tuple]):
    """Puts times into states of each kind, and tells what is there."""

    def __init__(self, ttl):
        self.last = ValueStateDescriptor("last", int, ttl=ttl)
        self.times = ListStateDescriptor("times", int, ttl=ttl)
        self.by_tens = MapStateDescriptor("by_tens", int, int, ttl=ttl)

    def process_element(self, value, ctx):
        _, time, action = value
        last, times = ctx.get_value_state(self.last), ctx.get_list_state(self.times)
        by_tens = ctx.get_map_state(self.by_tens)
        if action == "put":
            last.update(time)
            times.add(time)
            by_tens.put(time // 10, time)
            return []
        return [(value[0], time, last.value(), list(times.get()), dict(by_tens.entries()))]


class Model:
    """What one key has: values with the time of their last use."""

    def __init__(self, *, is_on_access):
        self._is_on_access = is_on_access
        self._last, self._times, self._tens = {}, [], {}

    def put(self, time):
        self._last = {0: [time, time]}
        self._times.append([time, time])
        self._tens[time // 10] = [time, time]

    def look(self, now):
        found = [self._live(entries, now) for entries in (
            list(self._last.values()), self._times, [self._tens[ten] for ten in sorted(self._tens)]
        )]  # fmt: skip
        last, times, tens = found
        return (last[0] if last else None, times, {time // 10: time for time in tens})

    def _live(self, entries, now):
        live = [entry for entry in entries if now < entry[1] + TTL_MS]
        for entry in entries:
            if entry not in live:
                entry[1] = -TTL_MS * 1_000
        if self._is_on_access:
            for entry in live:
                entry[1] = now
        return [value for value, _ in live]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("update", ["on_write", "on_access"])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(records=RECORDS, history=histories(), parallelism=st.integers(1, 3))
def test_what_has_expired_is_not_seen_again(backend, update, records, history, parallelism):
    ttl = StateTtl(TTL_MS, time="event", update=update)
    strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])

    def job(env):
        stream = env.add_source(script_source()).assign_timestamps(strategy.with_idle_timeout(None))
        stream.key_by(lambda record: record[0]).process_fn(Keeps(ttl)).uid("keeps").collect("out")

    # Times only grow, so that the time of a record is ahead of every watermark.
    now, rising, expected, models = 0, [], [], {}
    for key, step, action in records:
        now += step
        rising.append((key, now, action))
        model = models.setdefault(key, Model(is_on_access=update == "on_access"))
        if action == "put":
            model.put(now)
        else:
            expected.append((key, now, *model.look(now)))
    engine = EngineOptions(state_backend=backend)
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        run(harness, rising, history)
        found = harness.results("out")

    assert sorted(found, key=repr) == sorted(expected, key=repr)
