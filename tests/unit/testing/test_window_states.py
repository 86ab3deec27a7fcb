"""What a test sees of the states that the windows of a key share."""

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import ListStateDescriptor, StateTtl, WindowFunction
from bicycle_sdk.windows import EventTimeTrigger


class Sizes(WindowFunction[str, tuple[str, int], int]):
    """Keeps how many records the windows of a key had, and how many windows there were."""

    sizes = ListStateDescriptor("sizes", int)

    def process(self, elements, ctx):
        ctx.get_list_state(self.sizes).add(len(elements))
        windows = ctx.get_value_state("windows", int, default=0)
        windows.update(windows.value() + 1)
        return [len(elements)]


CUTS = {
    "tumbling": lambda keyed: keyed.tumbling_window(10),
    "session": lambda keyed: keyed.session_window(3),
    "triggered": lambda keyed: keyed.tumbling_window(10).trigger(EventTimeTrigger()),
}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("cut", CUTS)
def test_states_of_a_key_are_shown_by_name_beside_what_its_windows_hold(cut, backend):
    def job(env):
        timed = env.add_source(script_source()).assign_timestamps(lambda record: record[1])
        keyed = timed.key_by(lambda record: record[0])
        CUTS[cut](keyed).process(Sizes()).uid("window").collect("out")

    with Harness(job, engine=EngineOptions(state_backend=backend)) as harness:
        harness.push([("a", 1), ("a", 2), ("b", 3), ("a", 15), ("a", 26)])
        harness.advance_watermark(20)

        assert harness.value("window", key="a", name="sizes") == [2, 1]
        assert harness.value("window", key="a", name="windows") == 2
        assert harness.value("window", key="b", name="sizes") == [1]
        assert harness.value("window", key="c", name="sizes") is None
        assert [*harness.state("window", "a").values()] == [[("a", 26)]]


class Firings(WindowFunction[str, tuple[str, int], tuple[int, int]]):
    """Counts the windows of a key until there was none for five seconds of event time."""

    def process(self, elements, ctx):
        count = ctx.get_value_state("count", int, default=0, ttl=StateTtl(5_000, time="event"))
        count.update(count.value() + 1)
        return [(elements[0][1], count.value())]


@pytest.mark.parametrize("epochs", [[[0, 60_000]], [[0], [60_000]]], ids=["one", "two"])
def test_states_of_windows_that_fire_at_a_record_expire_by_its_time(epochs):
    def job(env):
        timed = env.add_source(script_source()).assign_timestamps(lambda record: record[1])
        counted = timed.key_by(lambda record: record[0]).count_window(1)
        counted.process(Firings()).uid("window").collect("out")

    with Harness(job) as harness:
        for times in epochs:
            harness.push([("a", time) for time in times])
            harness.run()

        assert harness.results("out") == [(0, 1), (60_000, 1)]
