"""State of reduces, windows, joins and broadcasts that goes on with changed records."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.state.errors import SCHEMA_REFUSED
from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from bicycle_sdk.windows import WindowFunction
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Run, keyed_job, sealed_by

BACKENDS = ["memory", "rocksdb"]


@dataclass(frozen=True)
class Hit:
    page: str
    count: int


@dataclass(frozen=True)
class PageHit:
    """Later code: another name, a wider count, one field more."""

    page: str
    count: float
    source: str = "web"


class Pages(WindowFunction):
    def process(self, elements, ctx):
        return [sorted(elements, key=lambda hit: hit.count)]


def page_of(hit):
    return hit.page


def joined(a, b):
    return type(a)(a.page, a.count + b.count)


def reducing(record_type):
    def build(env):
        hits = env.add_source(script_source(record_type)).uid("hits")
        hits.key_by(page_of).reduce(joined).uid("reduced").collect("out")

    return build


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_accumulator_of_a_reduce_has_the_schema_of_its_records(backend):
    sealed = sealed_by(reducing(Hit), [Hit("a", 1), Hit("b", 5)], backend=backend)

    with Run(reducing(PageHit), sealed, backend=backend) as run:
        assert run.put(PageHit("a", 0.5))[-1] == PageHit("a", 1.5)
        assert run.harness.state("reduced", "b") == PageHit("b", 5.0)


def windowed(record_type, *, size_ms=10_000):
    def build(env):
        hits = env.add_source(script_source(record_type)).uid("hits").key_by(page_of)
        hits.tumbling_window(size_ms).process(Pages()).uid("pages").collect("out")

    return build


def put_at(run, time_ms, *hits):
    run.harness.push(hits, timestamp=time_ms)
    run.harness.run_epoch()


def open_window():
    with Run(windowed(Hit)) as run:
        put_at(run, 1_000, Hit("a", 1))
        put_at(run, 2_000, Hit("a", 2))
        return run.harness.snapshot(), 2


def test_records_that_a_window_keeps_are_read_with_the_fields_of_now():
    with Run(windowed(PageHit), open_window()) as run:
        put_at(run, 3_000, PageHit("a", 0.5, "app"))
        run.harness.advance_watermark(20_000)

        (fired,) = run.harness.results("out")
        assert fired == [PageHit("a", 0.5, "app"), PageHit("a", 1.0), PageHit("a", 2.0)]


def test_a_window_that_begins_at_other_times_does_not_take_over_what_is_kept():
    with raises(SCHEMA_REFUSED) as refused:
        Run(windowed(Hit, size_ms=15_000), open_window())

    problems = {item["state"]: item["problems"] for item in refused.value.facts["refused"]}
    assert problems["$records"] == [
        "the window was every 10000 ms for 10000 ms from 0 ms and is "
        "every 15000 ms for 15000 ms from 0 ms"
    ]


class Prices(BroadcastProcessFunction):
    prices = MapStateDescriptor("prices", str, int)

    def process_element(self, pair, ctx):
        return [ctx.get_broadcast_state(self.prices).get(pair[0])]

    def process_broadcast_element(self, pair, ctx):
        ctx.get_broadcast_state(self.prices).put(*pair)
        return []


class FinePrices(Prices):
    prices = MapStateDescriptor("fine", str, float, aliases=("prices",))


def pricing(function):
    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("pairs").key_by(page_of_pair)
        prices = env.add_source(script_source(tuple[str, int])).uid("prices")
        pairs.connect(prices.broadcast()).process(function).uid("priced").collect("out")

    return build


def page_of_pair(pair):
    return pair[0]


def test_what_all_subtasks_hold_alike_is_renamed_and_widened_too():
    with Run(pricing(Prices()), parallelism=2) as run:
        run.harness.push([("a", 3)], source="prices")
        run.harness.run_epoch()
        sealed = run.harness.snapshot()
    with Run(pricing(FinePrices()), parallelism=3) as run:
        run.harness.push([None], source="prices")
        run.harness.restore(sealed)
        run.harness.push([("a", 1)], source="pairs")
        run.harness.run_epoch()

        assert [type(price) for price in run.harness.results("out")] == [float]


class AsValue(KeyedProcessFunction):
    state = ValueStateDescriptor("seen", int, default=0)

    def process_element(self, pair, ctx):
        ctx.get_value_state(self.state).update(pair[1])
        return [pair]


class AsList(KeyedProcessFunction):
    state = ListStateDescriptor("seen", int)

    def process_element(self, pair, ctx):
        ctx.get_list_state(self.state).add(pair[1])
        return [pair]


def test_a_state_of_another_kind_is_refused():
    sealed = sealed_by(keyed_job(AsValue()), [("a", 1)])

    with raises(SCHEMA_REFUSED) as refused:
        Run(keyed_job(AsList()), sealed)

    (item,) = refused.value.facts["refused"]
    assert item["problems"] == ["it was value state and is now list state"]
