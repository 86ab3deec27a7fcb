"""Typed state and timers of a function that runs without a runtime."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum

import pytest

from bicycle_sdk import (
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    ReduceFunction,
    ReducingStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.contexts import RuntimeContext
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state import Timer
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.testing import FunctionHarness


@pytest.fixture
def context():
    return OnTimerContext.standalone()


class Mean:
    """An aggregate function by its methods alone."""

    def create_accumulator(self):
        return (0, 0)

    def add(self, accumulator, value):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]


def test_a_value_is_kept_per_key(context):
    state = context.get_value_state("count", int, default=0)
    for key in ("ada", "bob", "ada"):
        context.set_current_key(key)
        state.update(state.value() + 1)

    context.set_current_key("ada")
    assert state.value() == 2
    state.clear()
    assert state.value() == 0
    context.set_current_key("bob")
    assert state.value() == 1


def test_a_value_without_default_is_none_until_it_is_set(context):
    state = context.get_value_state("last", str)
    assert state.value() is None
    state.update("x")
    assert state.value() == "x"


def test_a_default_that_can_be_changed_is_each_readers_own(context):
    state = context.get_value_state("seen", list[int], default=[])
    state.value().append(1)
    assert state.value() == []


def test_a_list_grows_at_its_end_and_can_be_replaced(context):
    state = context.get_list_state("words", str)
    assert state.is_empty()
    assert state.get() == []
    state.add("to")
    state.add_all(["be", "or"])
    assert state.get() == ["to", "be", "or"]
    state.update(word for word in state.get() if word != "be")
    assert state.get() == ["to", "or"]
    assert not state.is_empty()
    state.clear()
    assert state.is_empty()


def test_a_map_holds_entries_in_key_order(context):
    state = context.get_map_state("stock", str, int)
    for name, count in (("pear", 3), ("apple", 1), ("plum", 2)):
        state.put(name, count)

    assert list(state.entries()) == [("apple", 1), ("pear", 3), ("plum", 2)]
    assert list(state.keys()) == ["apple", "pear", "plum"]
    assert list(state.values()) == [1, 3, 2]
    assert list(state) == ["apple", "pear", "plum"]
    assert list(state.range("b", "pf")) == [("pear", 3)]
    assert list(state.prefix("p")) == [("pear", 3), ("plum", 2)]
    assert "pear" in state
    assert state.get("fig", 0) == 0
    assert state.remove("pear") == 3
    assert state.remove("pear") is None
    assert not state.contains("pear")
    state.clear()
    assert state.is_empty()


def test_a_map_may_be_changed_while_it_is_read(context):
    state = context.get_map_state("numbers", int, int)
    for number in range(5):
        state.put(number, number)
    read = []
    for number, _ in state.entries():
        read.append(number)
        state.remove(number + 1)
        state.put(number + 100, 0)

    assert read == [0, 2, 4]


def test_only_text_bytes_and_tuples_can_be_a_prefix(context):
    state = context.get_map_state("numbers", int, int)
    with pytest.raises(StateDefinitionError):
        state.prefix(1)


def test_what_is_added_to_a_reducing_state_is_joined(context):
    state = context.get_reducing_state("sum", int, lambda a, b: a + b)
    assert state.get() is None
    state.add(10)
    state.add(5)
    assert state.get() == 15
    state.clear()
    assert state.get() is None


def test_a_reducing_state_takes_a_reduce_function(context):
    class Longest(ReduceFunction[str]):
        def reduce(self, a, b):
            return max(a, b, key=len)

    state = context.get_reducing_state("longest", str, Longest())
    state.add("ab")
    state.add("abc")
    state.add("a")
    assert state.get() == "abc"


def test_what_is_added_to_an_aggregating_state_is_aggregated(context):
    state = context.get_aggregating_state("mean", Mean())
    assert state.get() is None
    state.add(1)
    state.add(4)
    assert state.get() == 2.5
    state.clear()
    assert state.get() is None


def test_a_descriptor_gives_the_same_state_as_its_parts(context):
    by_name = context.get_value_state("n", int)
    by_name.update(7)
    assert context.get_value_state(ValueStateDescriptor("n", int)).value() == 7
    assert context.get_list_state(ListStateDescriptor("l", int)).get() == []
    assert context.get_map_state(MapStateDescriptor("m", str, int)).is_empty()
    assert context.get_reducing_state(ReducingStateDescriptor("r", int, max)).get() is None
    assert context.get_aggregating_state(AggregatingStateDescriptor("a", Mean())).get() is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.get_value_state("n", str),
        lambda ctx: ctx.get_map_state("n", str, int),
        lambda ctx: ctx.get_value_state("n", int, ttl=StateTtl(1)),
    ],
    ids=["type", "kind", "ttl"],
)
def test_a_state_cannot_be_read_as_something_else(context, ask):
    context.get_value_state("n", int)
    with pytest.raises(StateDefinitionError) as caught:
        ask(context)
    assert caught.value.facts["state"] == "n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: StateTtl(0),
        lambda: StateTtl(timedelta(microseconds=1)),
        lambda: StateTtl(1, time="lunch"),
        lambda: StateTtl(1, update="never"),
        lambda: ValueStateDescriptor(""),
        lambda: ValueStateDescriptor(7),
        lambda: ValueStateDescriptor("n", ttl="1h"),
    ],
)
def test_what_cannot_be_a_state_is_refused_at_once(make):
    with pytest.raises(StateDefinitionError):
        make()


def test_functions_of_a_state_must_not_be_async():
    async def later(a, b):
        return a + b

    with pytest.raises(StateDefinitionError):
        ReducingStateDescriptor("sum", int, later)


# --- time to live --------------------------------------------------------------------------------


def test_a_value_expires_its_duration_after_it_was_written(context):
    context.processing_time = 1_000
    state = context.get_value_state("n", int, default=-1, ttl=timedelta(seconds=1))
    state.update(5)
    context.processing_time = 1_999
    assert state.value() == 5
    context.processing_time = 2_000
    assert state.value() == -1


def test_reading_renews_a_value_where_access_counts(context):
    context.processing_time = 0
    ttl = StateTtl(1_000, update="on_access")
    state = context.get_value_state("n", int, ttl=ttl)
    state.update(5)
    for now in (900, 1_800, 2_700):
        context.processing_time = now
        assert state.value() == 5
    context.processing_time = 3_700
    assert state.value() is None


def test_a_question_whether_a_map_key_is_there_counts_as_access(context):
    context.processing_time = 0
    seen = context.get_map_state("seen", str, int, ttl=StateTtl(1_000, update="on_access"))
    seen.put("a", 1)
    for now in (900, 1_800):
        context.processing_time = now
        assert seen.contains("a")
    context.processing_time = 2_800
    assert not seen.contains("a")


def test_elements_and_entries_expire_one_by_one(context):
    context.processing_time = 0
    words = context.get_list_state("words", str, ttl=StateTtl(1_000))
    stock = context.get_map_state("stock", str, int, ttl=StateTtl(1_000))
    words.add("a")
    stock.put("a", 1)
    context.processing_time = 500
    words.add("b")
    stock.put("b", 2)
    context.processing_time = 1_000

    assert words.get() == ["b"]
    assert list(stock.entries()) == [("b", 2)]
    assert stock.get("a") is None
    assert "a" not in stock
    context.processing_time = 1_500
    assert words.is_empty()
    assert stock.is_empty()


def test_event_time_is_that_of_the_record_or_the_watermark_once_it_is_later(context):
    state = context.get_value_state("n", int, ttl=StateTtl(1_000, time="event"))
    context.timestamp = 5_000
    state.update(1)
    context.timestamp = 5_999
    assert state.value() == 1
    context.watermark = 6_000
    assert state.value() is None


def test_what_is_written_before_event_time_is_known_lives_from_then_on(context):
    state = context.get_value_state("n", int, ttl=StateTtl(1_000, time="event"))
    state.update(1)
    context.watermark = 5_000
    assert state.value() == 1
    context.watermark = 5_999
    assert state.value() == 1
    context.watermark = 6_000
    assert state.value() is None


def test_an_older_record_does_not_shorten_a_life(context):
    state = context.get_value_state("n", int, ttl=StateTtl(1_000, time="event"))
    context.timestamp = 5_000
    state.update(1)
    context.timestamp = 4_000
    state.update(2)
    context.timestamp = 5_500
    assert state.value() == 2


# --- types ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    x: int
    name: str


@dataclass(frozen=True)
class Box:
    items: list[int]


@dataclass
class Loose:
    x: int


class Color(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (int, True),
        (str | None, True),
        (tuple[int, ...], True),
        (frozenset[str], True),
        (Decimal, True),
        (Color, True),
        (Point, True),
        (Box, False),
        (Loose, False),
        (list[int], False),
        (dict, False),
        (tuple[list[int], int], False),
        (object, False),
    ],
)
def test_types_tell_whether_their_values_can_change(declared, expected):
    assert is_frozen_type(declared) is expected


# --- timers --------------------------------------------------------------------------------------


class Alarm(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Sets a timer for each number, deletes it for the negative one."""

    def process_element(self, value, ctx):
        _, time_ms = value
        if time_ms < 0:
            ctx.timer_service.delete_event_time_timer(-time_ms)
        else:
            ctx.timer_service.register_event_time_timer(time_ms)
        return []

    def on_timer(self, timestamp_ms, ctx):
        if timestamp_ms == 20:
            ctx.timer_service.register_event_time_timer(25)
            ctx.timer_service.delete_event_time_timer(30)
        assert ctx.timestamp == timestamp_ms
        return [(ctx.current_key(), timestamp_ms)]


@pytest.fixture
def alarm():
    with FunctionHarness(Alarm(), key=lambda value: value[0]) as harness:
        yield harness


def test_timers_fire_by_time_then_key_when_the_watermark_comes(alarm):
    alarm.process(("b", 10), ("a", 10), ("a", 5), ("c", 50))

    assert alarm.advance_watermark(4) == []
    assert alarm.advance_watermark(10) == [("a", 5), ("a", 10), ("b", 10)]
    assert alarm.advance_watermark(49) == []
    assert alarm.timers("c") == [Timer("event", 50, "c")]


def test_a_timer_is_one_per_key_and_time(alarm):
    alarm.process(("a", 10), ("a", 10), ("b", 10), ("b", -10))

    assert alarm.advance_watermark(100) == [("a", 10)]
    assert alarm.advance_watermark(200) == []


def test_what_a_timer_sets_and_deletes_counts_in_the_same_advance(alarm):
    alarm.process(("a", 20), ("a", 30), ("a", 40))

    assert alarm.advance_watermark(35) == [("a", 20), ("a", 25)]


class Reminder(KeyedProcessFunction[str, str, tuple[str, int, str]]):
    async def process_element(self, value, ctx):
        ctx.timer_service.register_processing_time_timer(ctx.now() + 100)
        ctx.get_value_state("last", str).update(value)
        return []

    async def on_timer(self, timestamp_ms, ctx):
        ctx.side_output("fired", ctx.time_domain)
        return [(ctx.current_key(), timestamp_ms, ctx.get_value_state("last", str).value())]


def test_timers_of_processing_time_fire_when_the_clock_goes_on():
    with FunctionHarness(Reminder(), key=lambda word: word[0], processing_time=1_000) as harness:
        harness.process("ada", "bob")
        assert harness.value("last", key="a") == "ada"
        assert harness.value("nothing", key="a") is None
        assert harness.advance_time(99) == []
        assert harness.advance_time(1) == [("a", 1_100, "ada"), ("b", 1_100, "bob")]
        assert harness.side_outputs("fired") == ["processing", "processing"]


@pytest.mark.parametrize("time_ms", [1.5, "1", None, 2**63, True])
def test_a_time_is_a_whole_number_of_milliseconds(context, time_ms):
    with pytest.raises(StateDefinitionError):
        context.timer_service.register_event_time_timer(time_ms)


def test_a_runtime_context_hands_out_states_too():
    assert RuntimeContext.standalone().get_value_state("n", int, default=3).value() == 3
