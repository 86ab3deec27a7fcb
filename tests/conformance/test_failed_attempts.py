"""Attempts that fail, are tried again or take too long: nothing of them stays in any state."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    RichAsyncFunction,
    StateTtl,
    WindowFunction,
    dead_letter,
    retry,
    skip,
)
from bicycle_sdk.windows import AggregateFunction, CountTrigger, PurgingTrigger

QUICK = timedelta(milliseconds=1)
HOUR = StateTtl(timedelta(hours=1), update="on_access", time="event")


class Append(AggregateFunction):
    """Changes its accumulator in place."""

    def create_accumulator(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator):
        return list(accumulator)


def touch_all(ctx, value):
    """Change state of every kind, in every way."""
    ctx.get_value_state("int", int, 0).update(value)
    loose = ctx.get_value_state("any", default=[])
    known = loose.value()
    known.append(value)
    if len(known) < 3:
        loose.update(known)
    ctx.get_value_state("list", list[int], [], ttl=HOUR).update([value])
    items = ctx.get_list_state("items", int)
    items.add_all([value, value])
    items.update([value, *items.get()])
    items.add(value)
    pairs = ctx.get_map_state("pairs", int, list[int])
    for part in list(pairs):
        pairs.get(part).append(value)
    pairs.put(value % 3, [value])
    pairs.remove((value + 1) % 3)
    seen = ctx.get_map_state("seen", int, int, ttl=HOUR)
    seen.contains(value - 1)
    seen.put(value, value)
    if value % 5 == 4:
        pairs.clear()
        seen.clear()
    ctx.get_reducing_state("sum", int, lambda a, b: a + b).add(value)
    ctx.get_aggregating_state("all", Append(), list[int]).add(value)
    if value % 7 == 6:
        ctx.get_value_state("int", int, 0).clear()
        ctx.get_reducing_state("sum", int, lambda a, b: a + b).clear()
    named = ctx.get_state("named", [])
    named.append(value)
    ctx.save_state("named", named)
    ctx.save_state(f"last {value % 2}", value)
    ctx.delete_state(f"last {(value + 1) % 2}")
    return [
        list(known),
        items.get(),
        sorted((part, list(found)) for part, found in pairs.entries()),
        list(seen.entries()),
        ctx.get_state("last 0"),
    ]


class Everything(KeyedProcessFunction[int, tuple, tuple]):
    """Fails for records that say so, when all is done; each record may say how often."""

    def open(self, ctx):
        self.calls = Counter()

    def process_element(self, value, ctx):
        key, number, fails = value
        self.calls[value] += 1
        is_bad = self.calls[value] <= fails
        found = touch_all(ctx, number)
        ctx.side_output("sent", (number, is_bad))
        timers = ctx.timer_service
        timers.register_event_time_timer(number * 1_000 + is_bad)
        timers.delete_event_time_timer((number - 2) * 1_000)
        if is_bad:
            raise ValueError(value)
        return [(key, number, found)]

    def on_timer(self, timestamp_ms, ctx):
        found = touch_all(ctx, timestamp_ms // 1_000)
        ctx.side_output("fired", timestamp_ms)
        if timestamp_ms % 3_000 == 0:
            ctx.timer_service.register_event_time_timer(timestamp_ms + 1)
            raise ValueError(timestamp_ms)
        return [("timer", timestamp_ms, found)]


class Yielding(Everything):
    """The same as a generator: what it gave before it failed is not given."""

    def process_element(self, value, ctx):
        yield ("early", *value)
        yield from super().process_element(value, ctx)


class Lazy(Everything):
    """Gives an iterator that fails when it is read."""

    def process_element(self, value, ctx):
        return (row for row in self._rows(value, ctx))

    def _rows(self, value, ctx):
        yield from super().process_element(value, ctx)


class Async(Everything):
    async def process_element(self, value, ctx):
        return super().process_element(value, ctx)

    async def on_timer(self, timestamp_ms, ctx):
        return super().on_timer(timestamp_ms, ctx)


class Suspending(Everything):
    async def process_element(self, value, ctx):
        await asyncio.sleep(0)
        found = super().process_element(value, ctx)
        await asyncio.sleep(0)
        return found


@dataclass
class Attributes(RichAsyncFunction[tuple, tuple]):
    """State in attributes of every kind."""

    counts: dict[int, int] = field(default_factory=dict)
    lists: dict[int, list[int]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 2})
    total: int = 0
    last: list[int] = field(default_factory=list)
    tags: set[int] = field(default_factory=set)

    def open(self, ctx):
        self.calls = Counter()

    def process(self, value, ctx):
        key, number, fails = value
        self.counts[number % 4] = self.counts.get(number % 4, 0) + 1
        self.counts.pop((number + 1) % 4, None)
        self.lists.setdefault(number % 3, []).append(number)
        self.lists.get(number % 2, []).append(number)
        for found in self.lists.values():
            found.append(-number)
        self.begun.update(a=number, c=number)
        if number % 5 == 4:
            self.begun.clear()
            self.counts = {number: 1}
        if number % 6 == 5:
            self.lists.popitem()
        self.total += number
        self.last.append(number)
        self.tags = self.tags | {number}
        touch_all(ctx, number)
        self.calls[value] += 1
        if fails and self.calls[value] <= fails:
            ctx.side_output("sent", value)
            raise ValueError(value)
        state = (self.counts, self.lists, self.begun)
        found = [sorted(part.items()) for part in state]
        return [(key, number, repr((found, self.total, self.last, sorted(self.tags))))]


class Snapshots(Attributes):
    def snapshot_state(self):
        return {
            name: getattr(self, name)
            for name in ("counts", "lists", "begun", "total", "last", "tags")
        }

    def restore_state(self, state):
        for name, value in state.items():
            setattr(self, name, dict(value) if isinstance(value, dict) else value)


FUNCTIONS = {
    "plain": lambda s: s.process_fn(Everything()),
    "generator": lambda s: s.process_fn(Yielding()),
    "lazy": lambda s: s.process_fn(Lazy()),
    "async": lambda s: s.process_fn(Async()),
    "suspending": lambda s: s.process_fn(Suspending()),
    "attributes": lambda s: s.process(Attributes()),
    "attributes in flight": lambda s: s.process_unordered(
        Attributes(), timeout=timedelta(seconds=30), capacity=4
    ),
    "snapshots": lambda s: s.process(Snapshots()),
}


def outcome(runner, how, policy, rows, *, crashes, is_there=lambda row: True):
    """Return all that a job gives and keeps."""

    def job(env):
        numbers = env.add_source(script_source()).uid("numbers")
        stream = FUNCTIONS[how](numbers.key_by(lambda row: row[0]))
        stream = stream.on_error(policy).uid("state")
        stream.side_output("sent").collect("sent")
        stream.side_output("fired").collect("fired")
        stream.collect("out")

    with runner.harness(job, parallelism=2) as harness:
        for epoch in range(0, len(rows), 8):
            part = [row for row in rows[epoch : epoch + 8] if is_there(row)]
            harness.push(part, timestamp=[number * 1_000 for _, number, _ in part])
            harness.run_epoch()
            if crashes:
                harness.crash()
        harness.end()
        harness.run()
        results = {name: Counter(map(repr, harness.results(name))) for name in harness.sink_names()}
        return results, {key: harness.state("state").get(key) for key in (0, 1)}


BAD = {3, 4, 5, 10, 11, 14, 20}


def rows(fails):
    """Three epochs of records; each ends with a good one, so that its watermark is the same."""
    return [(number % 2, number, fails if number in BAD else 0) for number in range(24)]


def functions(request, *few):
    """Return the functions; on Spark, which takes longer for the same, the first of them."""
    is_spark = request.node.callspec.params["runner"] == "spark"
    return few[:1] if is_spark else few


def test_an_attempt_after_one_that_failed_finds_what_the_first_found(runner, request):
    policy = retry(2, backoff=QUICK).then(dead_letter())

    for how in functions(request, "attributes in flight", "plain", "suspending"):
        given = outcome(runner, how, policy, rows(2), crashes=True)
        assert given == outcome(runner, how, policy, rows(0), crashes=False), how


class Hanging(Attributes):
    """Does all it does, and then hangs for some records."""

    async def process(self, value, ctx):
        key, number, fails = value
        found = super().process((key, number, 0), ctx)
        ctx.side_output("sent", number)
        if fails:
            await asyncio.sleep(3_600)
        return found


def test_nothing_stays_of_a_call_that_took_too_long(runner):
    def results(is_there):
        def job(env):
            numbers = env.add_source(script_source()).uid("numbers").key_by(lambda row: row[0])
            stream = numbers.process_unordered(
                Hanging(), timeout=timedelta(milliseconds=300), capacity=4
            )
            stream.on_error(skip()).uid("state").side_output("sent").collect("sent")
            stream.collect("out")

        with runner.harness(job) as harness:
            harness.push([(n % 3, n, int(n in (2, 4, 6))) for n in range(9) if is_there(n)])
            harness.run()
            sent = sorted(harness.results("sent"))
            return sent, sorted(harness.results("out")), harness.state("state")

    assert results(lambda number: True) == results(lambda number: number not in (2, 4, 6))


class Routing(ProcessFunction[int, int]):
    async def process_element(self, value, ctx):
        ctx.side_output("sent", value)
        await asyncio.sleep(0.001 * (value % 3))
        ctx.side_output("sent", value)
        return [12 // (value % 4)]


class PlainRouting(ProcessFunction[int, int]):
    def process_element(self, value, ctx):
        ctx.side_output("sent", value)
        ctx.side_output("sent", value)
        return [12 // (value % 4)]


@pytest.mark.parametrize("function", [Routing(), PlainRouting()], ids=["async", "plain"])
def test_side_outputs_of_functions_without_state_are_those_of_good_attempts(runner, function):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        routed = numbers.process_fn(function).on_error(skip())
        routed.side_output("sent").collect("sent")
        routed.collect("out")

    with runner.harness(job) as harness:
        harness.push(range(1, 12))
        harness.run()

        assert sorted(harness.results("sent")) == sorted([n for n in range(1, 12) if n % 4] * 2)


class Prices(BroadcastProcessFunction[str, tuple, tuple]):
    prices = MapStateDescriptor("prices", str, list[int])

    def process_element(self, value, ctx):
        return [(value, ctx.get_broadcast_state(self.prices).get(value))]

    def process_broadcast_element(self, value, ctx):
        name, price = value
        prices = ctx.get_broadcast_state(self.prices)
        for _, known in prices.entries():
            known.append(price)
        prices.put(name, [price])
        return [] if price else [1 // price]


def test_broadcast_state_keeps_nothing_of_a_failed_attempt(runner):
    def job(env):
        names = env.add_source(script_source()).uid("names").rebalance()
        prices = env.add_source(script_source()).uid("prices").broadcast()
        names.connect(prices).process(Prices()).on_error(skip()).uid("priced").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        harness.push([("tea", 3), ("tea", 0), ("rum", 0)], source="prices")
        harness.run_epoch()
        harness.crash()
        harness.push(["tea", "rum"], source="names")
        harness.run()

        assert sorted(harness.results("out")) == [("rum", None), ("tea", [3])]


class Firings(WindowFunction[str, tuple, tuple]):
    def process(self, elements, ctx):
        total = ctx.get_value_state("total", int, 0)
        total.update(total.value() + len(elements))
        seen = ctx.get_state("seen", [])
        seen.append(len(elements))
        ctx.save_state("seen", seen)
        ctx.side_output("sent", len(elements))
        if len(elements) == 2:
            raise ValueError(elements)
        return [(list(seen), total.value())]


def test_windows_keep_nothing_of_a_firing_that_failed(runner):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").key_by(lambda n: 0)
        windows = numbers.global_window().trigger(CountTrigger(1)).process(Firings())
        windows.on_error(skip()).uid("windows").side_output("sent").collect("sent")
        windows.collect("out")

    with runner.harness(job) as harness:
        for number in range(4):
            harness.push([number])
            harness.run_epoch()
            harness.crash()

        assert harness.results("sent") == [1, 3, 4]
        assert harness.results("out") == [([1], 1), ([1, 3], 4), ([1, 3, 4], 8)]


class Refusing(Append):
    """Refuses some records when it has taken them."""

    def add(self, accumulator, value):
        accumulator.append(value)
        if value % 3 == 2:
            raise ValueError(value)
        return accumulator

    def merge(self, a, b):
        return a + b


class RefusingLater(Refusing):
    async def add(self, accumulator, value):
        return Refusing.add(self, accumulator, value)


FOLDS = {
    "tumbling": lambda s: s.tumbling_window(1_000),
    "sliding": lambda s: s.sliding_window(40, 20),
    "triggered": lambda s: s.tumbling_window(1_000).trigger(CountTrigger(1)),
    "counted": lambda s: s.count_window(3),
    # Without a record that failed, those before and behind it are too far from each other.
    "session": lambda s: s.session_window(25),
    "triggered session": lambda s: s.session_window(25).trigger(CountTrigger(1)),
    "purged": lambda s: s.session_window(25).trigger(PurgingTrigger(CountTrigger(1))),
}


@pytest.mark.parametrize("aggregate", [Refusing(), RefusingLater()], ids=["plain", "async"])
def test_accumulators_keep_nothing_of_a_record_that_failed(runner, aggregate):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        keyed = numbers.assign_timestamps(lambda n: n * 10).key_by(lambda n: n % 2)
        for name, windowed in FOLDS.items():
            windows = windowed(keyed).aggregate(aggregate).on_error(skip()).uid(name)
            windows.map(lambda r: (r.key, r.start, r.end, r.value)).collect(name)

    def results(is_there, *, crashes):
        with runner.harness(job, parallelism=2) as harness:
            for start in range(0, 24, 8):
                harness.push([n for n in range(start, start + 8) if is_there(n)])
                harness.run_epoch()
                if crashes:
                    harness.crash()
            harness.end()
            harness.run()
            return {name: sorted(harness.results(name)) for name in FOLDS}

    given = results(lambda n: True, crashes=True)
    assert given == results(lambda n: n % 3 != 2, crashes=False)


def test_records_that_failed_might_as_well_not_have_come(runner, request):
    for how in functions(request, *sorted(FUNCTIONS, reverse=True)):
        given = outcome(runner, how, skip(), rows(9), crashes=True)
        assert given == outcome(
            runner, how, skip(), rows(9), crashes=False, is_there=lambda row: not row[2]
        ), how
