from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.contexts import (
    WATERMARK_MIN,
    Context,
    Metrics,
    ProcessContext,
    RuntimeContext,
    TaskInfo,
)
from bicycle_sdk.errors import FunctionResultError, StateMergeError, StreamDefinitionError
from bicycle_sdk.functions import as_callable, full_name
from bicycle_sdk.testing import FunctionHarness

TASK = TaskInfo(job_id="j", operator_name="op", subtask_index=2)


class Double(MapFunction[int, int]):
    def map(self, value):
        return value * 2


@dataclass
class Counter(RichAsyncFunction[str, tuple[str, int]]):
    counts: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def open(self, ctx):
        self.connection = object()
        self.calls.append("open")

    def close(self):
        self.calls.append("close")

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


class PerKey(KeyedProcessFunction[str, tuple[str, int], tuple[str, int, int | None]]):
    def process_element(self, value, ctx):
        total = ctx.get_state("total", 0) + value[1]
        ctx.save_state("total", total)
        if total > 5:
            ctx.side_output("large", value)
            ctx.delete_state("total")
        return [(ctx.current_key(), total, ctx.timestamp)]


class Lookup(AsyncIOFunction[str, str]):
    async def async_invoke(self, value):
        return [value.upper()]

    def timeout(self, value):
        return ["late"]


# --- contexts --------------------------------------------------------------------------------


def test_now_is_recorded_and_the_wall_clock_goes_on():
    clock = iter([10, 20]).__next__
    context = Context(task_info=TASK, processing_time=5, clock=clock)

    assert (context.now(), context.current_processing_time()) == (5, 10)
    context.processing_time = 7
    assert (context.now(), context.current_processing_time()) == (7, 20)


def test_random_numbers_follow_operator_and_subtask():
    one, same = (Context(task_info=TASK).random.random() for _ in range(2))
    other = Context(task_info=TaskInfo(job_id="j", operator_name="op")).random.random()

    assert one == same != other


@pytest.mark.parametrize("cls", [Context, RuntimeContext, ProcessContext])
def test_a_standalone_context_needs_nothing(cls):
    context = cls.standalone()

    assert context.task_info.parallelism == 1
    assert abs(context.now() - context.current_processing_time()) < 60_000


def test_state_is_kept_per_key():
    context = RuntimeContext.standalone()
    context.save_state("n", 0)
    for key in "ab":
        context.set_current_key(key)
        context.save_state("n", key)
    context.delete_state("n")
    context.delete_state("never there")

    assert context.get_state("n", "none") == "none"
    context.set_current_key("a")
    assert (context.current_key(), context.get_state("n")) == ("a", "a")
    context.set_current_key(None)
    assert context.get_state("n") == 0


def test_a_context_starts_without_watermark_and_timestamp():
    context = ProcessContext.standalone()

    assert context.current_watermark() == WATERMARK_MIN
    assert context.timestamp is None
    context.watermark = 3
    assert context.current_watermark() == 3


def test_side_outputs_are_taken_once():
    context = ProcessContext.standalone()
    context.side_output("a", 1)
    context.side_output("b", 2)

    assert context.take_side_outputs() == [("a", 1), ("b", 2)]
    assert context.take_side_outputs() == []


def test_metrics_are_plain_data():
    metrics = Metrics()
    metrics.counter("lines").inc()
    metrics.counter("lines").inc(2)
    metrics.gauge("depth").set(4)
    for value in (3, 1, 2):
        metrics.histogram("size").observe(value)
    metrics.histogram("none")

    assert metrics.snapshot() == {
        "counters": {"lines": 3},
        "gauges": {"depth": 4},
        "histograms": {
            "none": {"count": 0, "sum": 0, "min": None, "max": None},
            "size": {"count": 3, "sum": 6, "min": 1, "max": 3},
        },
    }


# --- function classes ------------------------------------------------------------------------


def test_as_callable_takes_objects_and_callables():
    assert as_callable(Double(), "map")(2) == 4
    assert as_callable(len, "map")("ab") == 2
    with pytest.raises(TypeError):
        as_callable(3, "map")


def test_a_callable_with_a_method_of_that_name_is_called_itself():
    class Odd:
        def map(self, value):
            raise AssertionError

        def __call__(self, value):
            return value

    assert as_callable(Odd(), "map")(1) == 1


def test_a_full_name_is_module_and_class():
    assert full_name(Double()) == full_name(Double) == f"{__name__}.Double"
    assert full_name(len) == "len"


def test_a_function_can_have_a_field_called_name():
    @dataclass
    class Greeter(MapFunction[str, str]):
        name: str

        def map(self, value):
            return f"{value} {self.name}"

    assert Greeter("ada").map("hello") == "hello ada"


def test_a_function_without_its_method_cannot_be_made():
    class Nothing(AsyncFunction[str, str]):
        pass

    with pytest.raises(TypeError):
        Nothing()


def test_the_default_state_is_the_attributes():
    counter = Counter()

    assert counter.snapshot_state() is None
    counter.restore_state({"counts": {"a": 1}})
    assert counter.counts == {"a": 1}


def test_merging_states_without_a_method_for_it_is_an_error():
    with pytest.raises(StateMergeError) as caught:
        Counter().merge_state([{}, {}])

    assert caught.value.facts == {"function": f"{__name__}.Counter"}


# --- harness ---------------------------------------------------------------------------------


def test_the_harness_opens_calls_and_closes():
    with FunctionHarness(Counter()) as harness:
        assert harness.process("a", "b", "a") == [("a", 1), ("b", 1), ("a", 2)]
        assert harness.function.calls == ["open"]

    assert harness.function.calls == ["open", "close"]


def test_state_goes_from_one_harness_to_the_next():
    with FunctionHarness(Counter()) as before:
        before.process("a")
        saved = before.snapshot()
        before.process("a")
    with FunctionHarness(Counter()) as after:
        after.restore(saved)

        assert after.process("a") == [("a", 2)]

    assert set(saved.attributes) == {"counts", "calls"}


class Basket(KeyedProcessFunction[str, str, str]):
    """Keeps a bit of everything that a key may have."""

    items = ListStateDescriptor("items", str)
    seen = ValueStateDescriptor("seen", int, default=0, ttl=timedelta(milliseconds=100))
    prices = MapStateDescriptor("prices", str, int)

    def process_element(self, value, ctx):
        seen = ctx.get_value_state(self.seen)
        seen.update(seen.value() + 1)
        ctx.get_list_state(self.items).add(value)
        ctx.get_map_state(self.prices).put(value, len(value))
        ctx.save_state("last", value)
        ctx.timer_service.register_event_time_timer(50)
        ctx.timer_service.register_processing_time_timer(70 + len(value))
        return [f"{seen.value()} {ctx.get_state('last')}"]

    def on_timer(self, timestamp_ms, ctx):
        return [f"{ctx.time_domain} {timestamp_ms} {list(ctx.get_list_state(self.items).get())}"]


def test_states_values_and_timers_of_keys_go_from_one_harness_to_the_next():
    with FunctionHarness(Basket(), key=lambda word: word[0]) as before:
        before.process("ada", "bob", "ann")
        saved = before.snapshot()
        before.process("amy", "bea")
        before.advance_time(90)
    with FunctionHarness(Basket(), key=lambda word: word[0], processing_time=60) as after:
        after.process("zoe")
        after.restore(saved)

        assert (after.value("items", "a"), after.value("items", "z")) == (["ada", "ann"], None)
        assert after.value("prices", "b") == {"bob": 3}
        assert [(timer.domain, timer.time_ms) for timer in after.timers("b")] == [
            ("event", 50), ("processing", 73)
        ]  # fmt: skip
        assert after.advance_watermark(50) == ["event 50 ['ada', 'ann']", "event 50 ['bob']"]
        assert after.process("abe") == ["3 abe"]
        after.advance_time(60)
        assert after.value("seen", "b") is None  # It has lived since before the snapshot.
        assert after.process("abi") == ["4 abi"]


class Until(KeyedProcessFunction[str, str, int | None]):
    """Keeps a number for 100 ms of event time, and tells it by the clock."""

    kept = ValueStateDescriptor("kept", int, ttl=StateTtl(100, time="event"))

    def process_element(self, value, ctx):
        ctx.get_value_state(self.kept).update(ctx.timestamp)
        ctx.timer_service.register_processing_time_timer(ctx.now() + 1_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [ctx.get_value_state(self.kept).value()]


def test_what_expires_by_event_time_does_not_when_a_timer_of_the_clock_fires():
    with FunctionHarness(Until(), key=lambda word: word) as harness:
        harness.process("ada", timestamp=50)
        assert harness.advance_time(1_000) == [50]
        harness.process("ada", timestamp=60)
        harness.advance_watermark(160)

        assert harness.advance_time(1_000) == [None]


class AtTimes(Until):
    """Tells the number 99 and 100 ms behind its time."""

    def process_element(self, value, ctx):
        ctx.get_value_state(self.kept).update(ctx.timestamp)
        for distance in (99, 100):
            ctx.timer_service.register_event_time_timer(ctx.timestamp + distance)
        return []


def test_while_a_timer_of_event_time_fires_states_expire_by_its_time():
    with FunctionHarness(AtTimes(), key=lambda word: word) as harness:
        harness.process("ada", timestamp=50)

        assert harness.advance_watermark(5_000) == [50, None]


def test_a_snapshot_shares_nothing_with_the_function():
    with FunctionHarness(PerKey(), key=lambda pair: pair[0]) as harness:
        harness.process(("a", 1))
        saved = harness.snapshot()
        harness.process(("a", 1))
        harness.restore(saved)
        harness.process(("a", 1))
        harness.restore(saved)

        assert harness.process(("a", 1)) == [("a", 2, None)]


def test_what_a_reduce_function_has_reduced_is_restored():
    class Add(ReduceFunction[int]):
        def reduce(self, a, b):
            return a + b

    with FunctionHarness(Add()) as harness:
        harness.process(1, 2)
        saved = harness.snapshot()
        harness.process(9)
        harness.restore(saved)

        assert harness.process(4) == [7]


def test_what_open_adds_is_not_state():
    with FunctionHarness(Counter()) as harness:
        assert "connection" not in harness.snapshot().attributes


def test_a_snapshot_of_its_own_is_used():
    class Own(Counter):
        def snapshot_state(self):
            return sorted(self.counts.items())

        def restore_state(self, state):
            self.counts = dict(state)

    with FunctionHarness(Own()) as harness:
        harness.process("b", "a")
        saved = harness.snapshot()
        harness.restore(replace(saved, attributes=[*saved.attributes, ("c", 5)]))

        assert harness.process("c") == [("c", 6)]


def test_a_hook_that_adds_begins_with_what_a_new_function_has():
    class Adding(Counter):
        def snapshot_state(self):
            return dict(self.counts)

        def restore_state(self, state):
            for word, count in state.items():
                self.counts[word] = self.counts.get(word, 0) + count

    with FunctionHarness(Adding()) as harness:
        harness.process("a", "a")
        harness.restore(harness.snapshot())

        assert harness.process("a") == [("a", 3)]


def test_keys_timestamps_and_side_outputs():
    with FunctionHarness(PerKey(), key=lambda pair: pair[0]) as harness:
        out = harness.process(("a", 4), ("b", 1), ("a", 3), ("a", 1), timestamp=9)

        assert out == [("a", 4, 9), ("b", 1, 9), ("a", 7, 9), ("a", 1, 9)]
        assert harness.side_outputs("large") == [("a", 3)]
        assert harness.side_outputs("small") == []


def test_the_clock_stands_still_until_it_is_advanced():
    class Clock(ProcessFunction[str, int]):
        def process_element(self, value, ctx):
            return [ctx.now(), ctx.current_processing_time()]

    with FunctionHarness(Clock(), processing_time=100) as harness:
        assert harness.process("x") == [100, 100]
        harness.advance_time(50)
        assert harness.process("x") == [150, 150]


def test_an_io_function_answers_and_times_out():
    with FunctionHarness(Lookup()) as harness:
        assert harness.process("a") == ["A"]
        assert harness.time_out("a") == ["late"]


def test_functions_of_many_records_get_all_values_in_one_call():
    class Sizes(AsyncIOBatchFunction[str, int]):
        async def async_invoke_batch(self, values):
            return [[len(values)] * len(value) for value in values if value != "no result"]

        async def timeout(self, value):
            return [0]

    with FunctionHarness(Sizes()) as harness:
        assert harness.process("ab", "", "c") == [3, 3, 3]
        assert harness.time_out("ab") == [0]
        with pytest.raises(FunctionResultError):
            harness.process("a", "no result")


def test_one_method_functions():
    class Words(FlatMapFunction[str, str]):
        async def flat_map(self, value):
            return value.split()

    class Long(FilterFunction[str]):
        def filter(self, value):
            return len(value) > 1

    class Add(ReduceFunction[int]):
        def reduce(self, a, b):
            return a + b

    results = []
    for function, values in ((Double(), [2]), (Words(), ["a b"]), (Long(), ["a", "ab"])):
        with FunctionHarness(function) as harness:
            results.append(harness.process(*values))
    with FunctionHarness(Add(), key=lambda n: n % 2) as harness:
        results.append(harness.process(1, 2, 3, 4))

    assert results == [[4], ["a", "b"], ["ab"], [1, 2, 4, 6]]


def test_generators_run_as_in_a_job():
    class Twice(ProcessFunction[int, int]):
        async def process_element(self, value, ctx):
            yield value
            yield value

    class Listed(MapFunction[int, list[int]]):
        def map(self, value):
            yield value

    results = [FunctionHarness(function).process(1, 2) for function in (Twice(), Listed())]

    assert results == [[1, 1, 2, 2], [[1], [2]]]


@pytest.mark.parametrize("function", [len, Double, lambda value: [value], object()])
def test_the_harness_refuses_an_object_that_it_cannot_run(function):
    with pytest.raises(StreamDefinitionError) as caught:
        FunctionHarness(function)

    assert caught.value.facts["call"] == "FunctionHarness"
    assert "test_functions.py" in caught.value.facts["location"]


@pytest.mark.parametrize("result", [None, 3, "text", b"bytes", {"a": 1}])
def test_a_result_that_is_no_list_of_records_is_an_error(result):
    class Wrong(AsyncFunction[str, str]):
        def process(self, value, ctx):
            return result

    with FunctionHarness(Wrong()) as harness, pytest.raises(FunctionResultError) as caught:
        harness.process("x")

    assert caught.value.facts["found"] == type(result).__name__
