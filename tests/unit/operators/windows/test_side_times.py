"""Event times of side outputs of windows: those of the results, and none without event time."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import ProcessFunction


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        return [(value, ctx.timestamp)]


def sends(records, ctx):
    ctx.side_output("seen", "side")
    return ["main"]


@pytest.mark.parametrize(("is_timed", "time"), [(True, 2), (False, None)])
def test_side_outputs_of_count_windows_have_event_times_only_if_the_records_have(is_timed, time):
    def job(env):
        records = env.add_source(script_source(int))
        if is_timed:
            records = records.assign_timestamps(lambda number: number)
        main = records.key_by(lambda _: "a").count_window(2).process(sends).uid("window")
        for name, stream in (("main", main), ("side", main.side_output("seen"))):
            stream.process_fn(Times()).collect(name)

    with Harness(job) as harness:
        harness.push([1, 2])
        harness.run()
        assert harness.results("main") == [("main", time)]
        assert harness.results("side") == [("side", time)]
