"""Watermark strategies as values: what they accept, what the graph shows of them."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk import StreamEnvironment, WatermarkGenerator, WatermarkStrategy
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import JobGraph, OperatorKind
from bicycle_sdk.time import as_ms
from tests.unit.sdk.jobs import only


class Newest(WatermarkGenerator[int]):
    def on_event(self, timestamp_ms, record):
        return timestamp_ms


def assigned(strategy):
    env = StreamEnvironment()
    env.from_collection([1]).assign_timestamps(strategy).print()
    return env, env.execute("job")


def test_a_function_alone_allows_for_five_seconds_of_disorder_and_ten_of_silence():
    env, graph = assigned(float)
    vertex = only(graph, OperatorKind.ASSIGN_TIMESTAMPS)

    assert vertex.details == {
        "watermarks": "bounded", "delay_ms": 5_000, "idle_timeout_ms": 10_000,
    }  # fmt: skip
    assert env.payloads[f"{vertex.id}/function"] is float
    assert vertex.output_type == "int"


STRATEGIES = [
    (WatermarkStrategy.ascending(), {"watermarks": "ascending", "delay_ms": 0}),
    (
        WatermarkStrategy.bounded_out_of_orderness(timedelta(seconds=2)),
        {"watermarks": "bounded", "delay_ms": 2_000},
    ),
    (WatermarkStrategy.bounded_out_of_orderness(7), {"watermarks": "bounded", "delay_ms": 7}),
    (WatermarkStrategy.punctuated(lambda time, v: None), {"watermarks": "punctuated"}),
    (WatermarkStrategy.custom(Newest()), {"watermarks": "custom"}),
    (
        WatermarkStrategy.ascending().with_alignment("g", timedelta(minutes=1)),
        {"alignment_group": "g", "max_drift_ms": 60_000},
    ),
    (
        WatermarkStrategy.ascending().with_idle_timeout(timedelta(seconds=3)),
        {"idle_timeout_ms": 3_000},
    ),
]


@pytest.mark.parametrize(("strategy", "expected"), STRATEGIES)
def test_the_graph_shows_the_strategy_and_comes_back_from_json(strategy, expected):
    _, graph = assigned(strategy)

    assert expected.items() <= only(graph, OperatorKind.ASSIGN_TIMESTAMPS).details.items()
    assert JobGraph.from_json(graph.to_json()) == graph


def test_without_an_idle_timeout_the_graph_shows_none():
    _, graph = assigned(WatermarkStrategy.ascending().with_idle_timeout(None))

    assert "idle_timeout_ms" not in only(graph, OperatorKind.ASSIGN_TIMESTAMPS).details


def test_each_call_returns_a_changed_copy():
    strategy = WatermarkStrategy.ascending()
    changed = strategy.with_idle_timeout(5).with_timestamps(int).with_alignment("g", 1)

    assert (strategy.idle_timeout_ms, strategy.timestamps) == (10_000, None)
    assert (changed.idle_timeout_ms, changed.timestamps, changed.max_drift_ms) == (5, int, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: WatermarkStrategy.bounded_out_of_orderness(-1),
        lambda: WatermarkStrategy.bounded_out_of_orderness(2.5),
        lambda: WatermarkStrategy.bounded_out_of_orderness(True),
        lambda: WatermarkStrategy.ascending().with_idle_timeout(0),
        lambda: WatermarkStrategy.ascending().with_idle_timeout("10 s"),
        lambda: WatermarkStrategy.ascending().with_alignment("g", timedelta(seconds=-1)),
        lambda: WatermarkStrategy.ascending().with_timestamps("ts"),
        lambda: WatermarkStrategy.punctuated(None),
        lambda: WatermarkStrategy.custom(lambda time, record: time),
        lambda: assigned("ts"),
    ],
)
def test_what_is_no_strategy_is_refused_by_the_call(call):
    with pytest.raises(StreamDefinitionError):
        call()


ZONES = st.integers(-1_400, 1_400).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=ZONES))
def test_a_datetime_is_rounded_down_to_its_millisecond(moment):
    ms = as_ms(moment)
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)

    assert timedelta() <= moment - start < timedelta(milliseconds=1)


@given(st.integers(-(2**61), 2**61))
def test_a_number_is_a_number_of_milliseconds(ms):
    assert as_ms(ms) == ms


@pytest.mark.parametrize(
    "bad", [None, "1", True, float("nan"), float("-inf"), 2**62, datetime(2026, 1, 1), b"1"]  # noqa: DTZ001  # without a zone on purpose
)  # fmt: skip
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match="timestamp"):
        as_ms(bad)


def test_the_hour_that_comes_twice_when_clocks_change_is_two_hours():
    def at(hour, fold):
        return as_ms(datetime(2026, 10, 25, hour, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")))

    steps = [at(1, 0), at(2, 0), at(2, 1), at(3, 0)]
    assert [after - before for before, after in pairwise(steps)] == [3_600_000] * 3
