"""Graphs of any shape: results are those of one undisturbed task, whatever befalls the job.

No operator here depends on the order in which records arrive, and no record is late; so
parallelism, epochs, crashes, rescales and backends must not show in what comes out.
"""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction, WatermarkStrategy
from bicycle_sdk.state import ValueStateDescriptor
from bicycle_sdk.windows import session_windows, sliding_windows, tumbling_windows
from tests.examples import examples
from tests.property.mishaps import ENGINES, act, actions

DISORDER_MS = 6
SOURCES = ("left", "right")


@dataclass(frozen=True)
class Row:
    key: int
    word: str
    at: int
    number: int


class Totals(KeyedProcessFunction[int, Row, Row]):
    """At each seventh millisecond, gives the total of a key so far."""

    total = ValueStateDescriptor("total", int)

    def process_element(self, value, ctx):
        ctx.get_value_state(self.total).update(self._total(ctx) + value.number)
        ctx.timer_service.register_event_time_timer(ctx.timestamp // 7 * 7 + 9)
        return []

    def on_timer(self, timestamp, ctx):
        return [Row(ctx.current_key(), "total", timestamp, self._total(ctx))]

    def _total(self, ctx):
        return ctx.get_value_state(self.total).value() or 0


def by_key(stream):
    return stream.key_by(lambda row: row.key)


def fold_windows(stream, number):
    """Return results of windows as rows, with the event time that windows give them."""
    keyed = by_key(stream) if number % 2 else stream.key_by(lambda row: row.word)
    opened = (
        keyed.tumbling_window(5),
        keyed.sliding_window(6, 3),
        keyed.session_window(3),
    )[number % 3]
    match number % 4:
        case 0:
            results = opened.count()
        case 1:
            results = opened.sum(lambda row: row.number)
        case 2:
            results = opened.max(lambda row: row.number)
        case _:
            results = opened.distinct(lambda row: row.number % 4)
    return results.map(
        lambda result: Row(
            len(str(result.key)),
            str(result.key),
            result.end - 1,
            result.value if isinstance(result.value, int) else len(result.value),
        )
    )


def join_windows(stream, other, number):
    windows = (tumbling_windows(4), sliding_windows(6, 3), session_windows(3))[number % 3]
    return by_key(stream).window_join(by_key(other), windows, join_rows)


def join_rows(left, right):
    return Row(left.key, "joined", max(left.at, right.at), left.number % 100 + right.number % 100)


def split(stream, number):
    return stream.split(lambda row: "even" if row.number % 2 == 0 else ["odd", "all"]).select(
        ("even", "odd", "all")[number % 3]
    )


STEPS = {
    "add": lambda stream, _, number: stream.map(
        lambda row: Row((row.key + number) % 4, row.word, row.at, row.number * 2 + number)
    ),
    "choose": lambda stream, _, __: stream.map(
        lambda row: Row(
            row.key, row.word.upper(), row.at, row.number if row.number > 3 else -row.number
        )
    ),
    "filter": lambda stream, _, number: stream.filter(lambda row: row.number % 5 != number % 5),
    "flat map": lambda stream, _, __: stream.flat_map(
        lambda row: (
            [row, Row(row.key + 1, row.word, row.at, 2 - row.number)] if row.number % 2 else [row]
        )
    ),
    "spread": lambda stream, _, number: getattr(
        stream, ("rebalance", "shuffle", "global_")[number % 3]
    )().map(lambda row: row),
    "parallelism": lambda stream, _, number: stream.map(
        lambda row: Row(row.key, row.word[:1], row.at, row.number)
    ).set_parallelism(1 + number % 3),
    "windows": lambda stream, _, number: fold_windows(stream, number),
    "union": lambda stream, other, _: stream.union(other),
    "keyed union": lambda stream, other, _: by_key(stream).union(
        other.key_by(lambda row: row.number)
    ),
    "keyed map": lambda stream, _, __: by_key(stream).map(
        lambda row: Row(row.key, "keyed", row.at, row.number + 1)
    ),
    "interval join": lambda stream, other, _: by_key(stream).interval_join(
        by_key(other), -2, 3, join_rows
    ),
    "window join": join_windows,
    "split": lambda stream, _, number: split(stream, number),
    "totals": lambda stream, _, __: by_key(stream).process_fn(Totals()).in_event_time_order(),
}
OF_TWO = {"union", "keyed union", "interval join", "window join"}
GRAPHS = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)), st.integers(0, 5), st.integers(0, 5), st.integers(0, 11)
    ),
    min_size=1,
    max_size=8,
)


def job_of(graph):
    """Return a job that collects every stream of a graph.

    Each step takes one of the newest streams, or two.
    """

    def job(env):
        times = WatermarkStrategy.bounded_out_of_orderness(DISORDER_MS)
        streams = [
            env.add_source(script_source(Row))
            .uid(name)
            .assign_timestamps(times.with_timestamps(lambda row: row.at))
            .uid(f"times-{name}")
            for name in SOURCES
        ]
        for word, one, another, number in graph:
            stream = streams[-1 - one % min(4, len(streams))]
            other = streams[-1 - another % len(streams)]
            if word not in OF_TWO or other is not stream:
                streams.append(STEPS[word](stream, other, number))
        for number, stream in enumerate(streams):
            stream.collect(f"stream-{number}")

    return job


@st.composite
def rows(draw):
    """Rows of one source, none older than the newest before it less the bound."""
    found, newest = [], 0
    for _ in range(draw(st.integers(0, 25))):
        newest += draw(st.sampled_from([0, 0, 1, 2, 5]))
        at = max(0, newest - draw(st.integers(0, DISORDER_MS)))
        found.append(
            Row(
                draw(st.integers(0, 3)), draw(st.sampled_from("xyz")), at, draw(st.integers(-5, 20))
            )
        )
    return found


def results_of(graph, left, actions_=(), **settings_):
    """Return what came out of each stream, however often."""
    waiting = {name: list(found) for name, found in left.items()}
    with Harness(job_of(graph), **settings_) as harness:
        for action in actions_:
            act(harness, action, waiting)
        for name, found in waiting.items():
            harness.push(found, source=name)
        harness.end()
        harness.run()
        return {name: Counter(harness.results(name)) for name in harness.sink_names()}


@pytest.mark.extended
@settings(deadline=None, max_examples=examples(40))
@given(GRAPHS, rows(), rows(), actions(SOURCES), st.sampled_from([1, 2, 3]), ENGINES)
def test_nothing_that_befalls_a_job_shows_in_its_results(
    graph, left, right, actions_, parallelism, engine
):
    rows_ = dict(zip(SOURCES, (left, right), strict=True))
    expected = results_of(graph, rows_, parallelism=1, engine=EngineOptions())

    assert results_of(graph, rows_, actions_, parallelism=parallelism, engine=engine) == expected
    assert expected["stream-0"] == Counter(left)
