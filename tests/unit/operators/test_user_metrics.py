"""What functions count themselves: added up over tasks and sealed epochs, nothing twice."""

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.metrics import add_metrics, grown_metrics
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, Context
from bicycle_sdk.contexts import Metrics

EPOCHS = st.lists(st.lists(st.integers(-100, 100), max_size=5), max_size=5)


@given(EPOCHS)
def test_what_epochs_added_comes_to_what_there_is(epochs):
    metrics, total = Metrics(), {}
    for values in epochs:
        before = metrics.snapshot()
        for value in values:
            metrics.counter("sum").inc(value)
            metrics.gauge("last").set(value)
            metrics.histogram("all").observe(value)
        add_metrics(total, grown_metrics(before, metrics.snapshot(), subtask=0))

    snapshot = metrics.snapshot()
    snapshot["gauges"] = {name: {"0": value} for name, value in snapshot["gauges"].items()}
    assert total == {kind: values for kind, values in snapshot.items() if values}


def test_gauges_of_subtasks_stand_side_by_side_and_bounds_are_joined():
    total = {}
    for subtask, value in enumerate((3.0, 7.0)):
        metrics = Metrics()
        before = metrics.snapshot()
        metrics.gauge("depth").set(value)
        metrics.histogram("size").observe(value)
        add_metrics(total, grown_metrics(before, metrics.snapshot(), subtask=subtask))

    assert total["gauges"] == {"depth": {"0": 3.0, "1": 7.0}}
    assert total["histograms"] == {"size": {"count": 2, "sum": 10.0, "min": 3.0, "max": 7.0}}


def test_a_function_without_metrics_reports_none():
    empty = Metrics().snapshot()

    assert grown_metrics(empty, empty, subtask=0) == {}


class Counting(AsyncFunction[str, str]):
    def open(self, ctx: Context) -> None:
        self.seen = ctx.metrics.counter("seen")

    async def process(self, value: str, ctx: Context) -> list[str]:
        self.seen.inc()
        ctx.metrics.counter(value).inc()
        return [value]


def build(env):
    env.add_source(script_source(str)).uid("in").process(Counting()).uid("count").collect("out")


def test_each_epoch_tells_what_it_added_though_functions_live_on():
    with Harness(build, parallelism=1) as job:
        job.push(["a", "b"])
        first = job.run_epoch()
        job.push(["a"])
        second = job.run_epoch()

    assert first.counts["count"].metrics == {"counters": {"a": 1, "b": 1, "seen": 2}}
    assert second.counts["count"].metrics["counters"] == {"a": 1, "b": 0, "seen": 1}
