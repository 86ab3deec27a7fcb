"""Windows as values: which windows hold a time, what is refused, what the graph shows."""

import math
import random
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bicycle_sdk import AggregateFunction, StreamEnvironment
from bicycle_sdk.errors import InvalidWindowError, MergeMissingError, StreamDefinitionError
from bicycle_sdk.graph import JobGraph, OperatorKind, Partitioning
from bicycle_sdk.windows import (
    ApproximateDistinct,
    Average,
    ContinuousEventTimeTrigger,
    Count,
    CountEvictor,
    CountTrigger,
    Distinct,
    EventTimeTrigger,
    Maximum,
    Minimum,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Sum,
    TimedValue,
    TimeEvictor,
    Trigger,
    TriggerResult,
    Window,
    WindowFunction,
    cumulative_windows,
    sliding_windows,
    tumbling_windows,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)


class Noted(WindowFunction):
    name = "noted"

    def process(self, elements, ctx):
        return elements


def itself(value):
    return value


def keyed():
    return StreamEnvironment().from_collection([("a", 1)]).key_by(lambda pair: pair[0])


def built(make):
    env = StreamEnvironment()
    make(env.from_collection([("a", 1)]).key_by(lambda pair: pair[0])).uid("w").print()
    return env.execute("job")


# --- which windows -------------------------------------------------------------------------------


def test_a_window_holds_its_start_and_not_its_end():
    window = Window(-10, 0)

    assert window.contains(-10)
    assert not window.contains(0)
    assert window.max_timestamp == -1


def test_a_window_that_holds_no_time_is_refused():
    with pytest.raises(InvalidWindowError) as caught:
        Window(5, 5)

    assert caught.value.facts == {"start": 5, "end": 5}


@pytest.mark.parametrize(
    ("other", "overlaps", "touches"),
    [
        ((10, 20), False, True),
        ((9, 12), True, True),
        ((11, 20), False, False),
        ((2, 3), True, True),
    ],
)
def test_windows_overlap_or_only_touch(other, overlaps, touches):
    window, other = Window(0, 10), Window(*other)

    assert window.overlaps(other) == other.overlaps(window) == overlaps
    assert window.touches(other) == other.touches(window) == touches
    assert window.cover(other) == other.cover(window)


@given(
    size=st.integers(1, 50),
    slide=st.integers(1, 50),
    offset=st.integers(-60, 60),
    time=st.integers(-500, 500),
)
def test_windows_of_a_time_are_all_that_hold_it(size, slide, offset, time):
    found = sliding_windows(size, slide, offset=offset).windows_of(time)

    starts = range(time - size + 1, time + 1)
    assert [(w.start, w.end) for w in found] == [
        (start, start + size) for start in starts if (start - offset) % slide == 0
    ]


@given(
    step=st.integers(1, 20),
    count=st.integers(1, 6),
    offset=st.integers(-60, 60),
    time=st.integers(-500, 500),
)
def test_cumulative_windows_of_a_time_share_their_start(step, count, offset, time):
    size = step * count
    found = cumulative_windows(step, size, offset=offset).windows_of(time)

    [start] = [s for s in range(time - size + 1, time + 1) if (s - offset) % size == 0]
    ends = range(start + step, start + size + 1, step)
    assert [(w.start, w.end) for w in found] == [(start, end) for end in ends if end > time]


def test_the_size_of_cumulative_windows_is_a_multiple_of_their_step():
    with pytest.raises(StreamDefinitionError) as caught:
        keyed().cumulative_window(20, 50)

    assert caught.value.facts["problem"] == "50 ms is not a multiple of the step of 20 ms"


def test_an_offset_moves_the_bounds_of_tumbling_windows():
    days = tumbling_windows(timedelta(days=1), offset=timedelta(hours=-8))

    assert days.windows_of(0) == [Window(-8 * 3_600_000, 16 * 3_600_000)]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, timedelta(0), timedelta(microseconds=1_500)])
def test_a_length_is_a_positive_number_of_whole_milliseconds(size):
    with pytest.raises(StreamDefinitionError) as caught:
        keyed().tumbling_window(size)

    assert caught.value.facts["call"] == "size"


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda k: k.sliding_window(10, 0), "slide"),
        (lambda k: k.tumbling_window(10, offset="-5s"), "offset"),
        (lambda k: k.session_window(0), "gap"),
        (lambda k: k.session_window(5, min_records=0), "min_records"),
        (lambda k: k.count_window(0), "size"),
        (lambda k: k.count_window(3, 0), "slide"),
        (lambda k: k.tumbling_window(5).allowed_lateness(-1), "allowed_lateness"),
        (
            lambda k: k.tumbling_window(5).distinct(itself, approximate=True, precision=30),
            "distinct",
        ),
        (lambda k: k.tumbling_window(5).aggregate(), "aggregate"),
        (lambda k: k.tumbling_window(5).aggregate(len), "aggregate"),
        (lambda k: k.tumbling_window(5).sum("price"), "Sum"),
        (lambda k: k.tumbling_window(5).distinct(None, approximate=True), "ApproximateDistinct"),
        (lambda k: k.tumbling_window(5).aggregate(Count("price")), "Count"),
        (lambda k: k.aggregate(Sum("price")), "Sum"),
        (lambda k: k.tumbling_window(5).process("no"), "process"),
        (lambda k: k.tumbling_window(5).process(Noted), "process"),
        (lambda k: k.count_window(5).late_to("late").count(), "window"),
        (lambda k: k.global_window().allowed_lateness(5).count(), "window"),
        (lambda k: k.count_window(5).trigger(NeverTrigger()).count(), "window"),
        (lambda k: k.session_window(5).trigger(NoMerge()).count(), "window"),
        (lambda k: EventTimeTrigger().early(), "early"),
        (lambda k: EventTimeTrigger().late(every=5, count=5), "late"),
        (lambda k: CountTrigger(0), "count"),
        (lambda k: CountEvictor(0), "count"),
        (lambda k: TimeEvictor(0), "span"),
    ],
)
def test_what_cannot_be_is_refused_by_the_call_itself(call, fact):
    with pytest.raises(StreamDefinitionError) as caught:
        call(keyed())

    assert caught.value.facts["call"] == fact


# --- what the graph shows ------------------------------------------------------------------------


def test_a_window_shows_its_settings_in_the_graph():
    graph = built(
        lambda k: (
            k.sliding_window(60, 15, offset=5)
            .allowed_lateness(30)
            .late_to("late")
            .trigger(EventTimeTrigger().early(count=3))
            .evictor(CountEvictor(2))
            .count()
        )
    )

    (window,) = [v for v in graph.vertices if v.kind is OperatorKind.WINDOW]
    assert window.details == {
        "window_type": {"Sliding": {"size_ms": 60, "slide_ms": 15, "offset_ms": 5}},
        "allowed_lateness_ms": 30,
        "late_tag": "late",
        "trigger": "watermark, early every 3 records",
        "evictor": "the last 2",
        "is_keyed": True,
    }
    assert JobGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize(
    ("cut", "shown"),
    [
        (lambda k: k.tumbling_window(5), {"Tumbling": {"size_ms": 5}}),
        (
            lambda k: k.cumulative_window(5, 15, offset=1),
            {"Cumulative": {"step_ms": 5, "size_ms": 15, "offset_ms": 1}},
        ),
        (lambda k: k.session_window(5), {"Session": {"gap_ms": 5}}),
        (lambda k: k.count_window(5), {"Count": {"count": 5}}),
        (lambda k: k.count_window(5, 2), {"Count": {"count": 5, "slide": 2}}),
        (lambda k: k.global_window(), {"Global": {}}),
    ],
)
def test_each_kind_of_window_is_written_as_graphs_write_it(cut, shown):
    graph = built(lambda k: cut(k).count())

    assert [v.details["window_type"] for v in graph.vertices if v.id == "w"] == [shown]


def test_records_are_folded_before_they_travel_in_a_vertex_that_belongs_to_the_window():
    def job(k):
        return k.tumbling_window(5).count().set_max_parallelism(16).on_error("skip")

    graph = built(job)

    combine = next(v for v in graph.vertices if v.kind is OperatorKind.WINDOW_COMBINE)
    assert [v.id for v in graph.vertices] == ["vertex_1", "vertex_2", "w", "w-combine", "vertex_4"]
    assert combine.max_parallelism == 16
    assert combine.on_error.action.value == "skip"
    assert [(e.source_id, e.target_id, e.partitioning) for e in graph.edges][1:3] == [
        ("vertex_2", "w-combine", Partitioning.FORWARD),
        ("w-combine", "w", Partitioning.HASH),
    ]


@pytest.mark.parametrize(
    "compute",
    [
        lambda w: w.pre_combine(False).count(),
        lambda w: w.process(lambda elements, ctx: elements),
        lambda w: w.reduce(lambda a, b: a, associative=False),
        lambda w: w.aggregate(NoMergeFunction()),
        lambda w: w.trigger(CountTrigger(2)).count(),
        lambda w: w.evictor(CountEvictor(2)).count(),
    ],
)
def test_records_travel_whole_where_folding_them_early_could_change_results(compute):
    graph = built(lambda k: compute(k.tumbling_window(5)))

    assert OperatorKind.WINDOW_COMBINE not in {v.kind for v in graph.vertices}


def test_a_job_of_windows_names_the_types_of_its_results():
    env = StreamEnvironment()

    def key(word: str) -> str:
        return word

    env.from_collection(["a"]).key_by(key).tumbling_window(5).count().uid("w").print()

    (window,) = [v for v in env.execute("job").vertices if v.id == "w"]
    assert window.output_type == "bicycle_sdk.windows.panes.WindowResult[str, int]"


# --- aggregates ----------------------------------------------------------------------------------


def folded(function, values):
    accumulator = function.create_accumulator()
    for value in values:
        accumulator = function.add(accumulator, value)
    return accumulator


@given(values=st.lists(FLOATS | st.integers(-(10**20), 10**20), min_size=1, max_size=20))
@example(values=[-8.988465674311579e307, -8.98846567431158e307, 1.0])
@example(values=[1e308, 1e308, 1e308, -1e308, -1e308, 0.5])
@example(values=[1e308] * 20 + [-1e308] * 19)
def test_a_sum_is_the_exact_sum_rounded_once(values):
    found = Sum(itself).get_result(folded(Sum(itself), values))

    exact = sum(map(Fraction, values))
    if any(type(value) is float for value in values):
        try:
            assert found == float(exact)
        except OverflowError:
            assert math.isinf(found)
    else:
        assert found == exact


MERGEABLE = [Count(), Sum(itself), Average(itself), Minimum(itself), Maximum(itself),
             Distinct(itself), ApproximateDistinct(itself)]  # fmt: skip
SMALL = st.integers(-1_000, 1_000) | st.floats(-1e9, 1e9)


@pytest.mark.parametrize("function", MERGEABLE, ids=lambda f: type(f).__name__)
@given(values=st.lists(SMALL, min_size=1, max_size=12), seed=st.integers())
def test_an_aggregate_is_the_same_in_any_order_and_grouping(function, values, seed):
    source = random.Random(seed)
    whole = function.get_result(folded(function, values))
    shuffled = source.sample(values, len(values))
    cut = source.randrange(len(values) + 1)
    parts = [folded(function, shuffled[:cut]), folded(function, shuffled[cut:])]

    assert function.get_result(function.merge(*parts)) == whole


def test_a_nan_shows_in_the_extremes_wherever_it_came():
    for values in ([1.0, math.nan, 2.0], [math.nan, 1.0], [1.0, math.nan]):
        for function in (Minimum(itself), Maximum(itself)):
            assert math.isnan(function.get_result(folded(function, values)))


@pytest.mark.parametrize("function", [Sum(itself), Average(itself), Minimum(itself)])
def test_none_is_no_value_to_aggregate(function):
    with pytest.raises(TypeError):
        function.add(function.create_accumulator(), None)


def test_a_sum_takes_whatever_can_be_added():
    lengths = [timedelta(seconds=1), timedelta(seconds=2)]

    assert Sum(itself).get_result(folded(Sum(itself), lengths)) == timedelta(seconds=3)


class NoMergeFunction(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, accumulator, value):
        return accumulator

    def get_result(self, accumulator):
        return accumulator


class NoMerge(Trigger):
    def on_element(self, value, timestamp, window, ctx):
        return TriggerResult.CONTINUE


def test_what_cannot_be_merged_says_so():
    with pytest.raises(MergeMissingError):
        NoMergeFunction().merge(0, 0)
    with pytest.raises(MergeMissingError):
        NoMerge().on_merge([], Window(0, 1), None)


# --- triggers and evictors -----------------------------------------------------------------------


class PaneScript:
    """A trigger context whose timers are read by the test."""

    def __init__(self):
        self.events, self.moments, self.state = set(), set(), {}
        self.watermark, self.now = -(10**9), 0
        self.register_event_time_timer = self.events.add
        self.register_processing_time_timer = self.moments.add
        self.delete_event_time_timer = self.events.discard
        self.delete_processing_time_timer = self.moments.discard
        self.get_state = self.state.get

    def save_state(self, name, value):
        self.state[name] = value
        if value is None:
            del self.state[name]

    def current_watermark(self):
        return self.watermark

    def current_processing_time(self):
        return self.now


def answers(trigger, ctx, count, window=None):
    window = Window(0, 100) if window is None else window
    return [trigger.on_element(0, 5, window, ctx).value for _ in range(count)]


def test_a_count_trigger_fires_at_every_nth_record():
    assert answers(CountTrigger(2), PaneScript(), 4) == ["continue", "fire", "continue", "fire"]


def test_a_count_trigger_that_has_fired_keeps_no_state_so_that_a_purged_window_goes():
    ctx = PaneScript()
    answers(CountTrigger(2), ctx, 2)

    assert ctx.state == {}


def test_a_purging_trigger_lets_the_records_go_when_the_other_fires():
    assert answers(PurgingTrigger(CountTrigger(2)), PaneScript(), 2) == [
        "continue",
        "fire_and_purge",
    ]


def test_a_processing_time_trigger_runs_from_the_first_record_after_a_firing():
    ctx, trigger = PaneScript(), ProcessingTimeTrigger(10)
    ctx.now = 3
    answers(trigger, ctx, 2)

    assert ctx.moments == {13}
    assert trigger.on_processing_time(13, Window(0, 100), ctx) is TriggerResult.FIRE
    ctx.now = 20
    answers(trigger, ctx, 1)
    assert ctx.moments == {13, 30}


def test_a_continuous_trigger_fires_at_multiples_of_its_interval_and_at_the_end():
    ctx = PaneScript()
    answers(ContinuousEventTimeTrigger(40), ctx, 1)

    assert ctx.events == {40, 100}


def test_late_results_keep_their_own_pace_and_the_last_one_is_not_lost():
    ctx, trigger, window = PaneScript(), EventTimeTrigger().late(count=2), Window(0, 100)
    assert answers(trigger, ctx, 1) == ["continue"]
    assert trigger.on_event_time(100, window, ctx) is TriggerResult.FIRE
    ctx.watermark = 100

    assert answers(trigger, ctx, 3) == ["continue", "fire", "continue"]
    assert trigger.on_expiry(window, ctx) is TriggerResult.FIRE
    assert trigger.on_expiry(window, ctx) is TriggerResult.CONTINUE


def test_evictors_keep_the_last_records_or_those_near_the_newest():
    elements = [TimedValue(time, time) for time in (5, 30, 10, 21)]

    assert [e.value for e in CountEvictor(2).before(elements, Window(0, 60))] == [10, 21]
    assert [e.value for e in TimeEvictor(10).before(elements, Window(0, 60))] == [30, 21]


def test_a_window_function_gives_the_vertex_its_name():
    graph = built(lambda k: k.tumbling_window(5).process(Noted()))

    assert next(v.name for v in graph.vertices if v.id == "w") == "noted"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda window: window.allowed_lateness(5),
        lambda window: window.trigger(EventTimeTrigger()),
        lambda window: window.evictor(CountEvictor(2)),
    ],
    ids=["lateness", "trigger", "evictor"],
)
def test_sessions_of_limited_length_refuse_what_would_move_their_cuts(spoil):
    with pytest.raises(StreamDefinitionError) as caught:
        spoil(keyed().session_window(10, max_duration=30)).count()

    assert "max_duration" in caught.value.facts["problem"]


@pytest.mark.parametrize("length", [0, -1, 1.5])
def test_the_length_of_sessions_is_at_least_a_millisecond(length):
    with pytest.raises(StreamDefinitionError) as caught:
        keyed().session_window(10, max_duration=length)

    assert caught.value.facts["call"] == "max_duration"


def test_the_graph_shows_the_length_of_sessions_and_that_nothing_is_folded_before():
    graph = built(lambda k: k.session_window(10, max_duration=30).count())
    [window] = [v for v in graph.vertices if v.kind is OperatorKind.WINDOW]

    assert window.details["window_type"] == {"Session": {"gap_ms": 10, "max_duration_ms": 30}}
    assert all(v.kind is not OperatorKind.WINDOW_COMBINE for v in graph.vertices)
