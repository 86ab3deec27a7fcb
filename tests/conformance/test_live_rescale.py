"""Other parallelism while a job runs, on the harness and on Spark: the same results."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction
from bicycle_sdk.windows import Count

WORDS = [f"w{number % 13}" for number in range(60)]


@dataclass
class Sums(RichAsyncFunction[str, int]):
    """State by subtask, that can be merged."""

    numbers: list[int] = field(default_factory=list)

    def process(self, value, ctx):
        self.numbers.append(int(value[1:]))
        return []

    def merge_state(self, states):
        return {"numbers": sorted(n for state in states for n in state["numbers"])}


class Later(KeyedProcessFunction[str, str, tuple]):
    """Tells how often a key came when a timer fires a minute after the first."""

    def process_element(self, value, ctx):
        count = ctx.get_value_state("count", int, default=0)
        if not count.value():
            ctx.timer_service.register_event_time_timer(ctx.timestamp + 60_000)
        count.update(count.value() + 1)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), ctx.get_value_state("count", int).value())]


def job(env):
    words = env.add_source(script_source(str)).uid("words")
    keyed = words.key_by(str)
    keyed.count().uid("count").collect("count")
    keyed.process_fn(Later()).uid("later").collect("later")
    keyed.tumbling_window(20_000).aggregate(Count()).uid("windows").collect("windows")
    words.rebalance().process(Sums()).uid("sums").collect("sums")
    loop = words.map(len).iterate()
    shorter = loop.map(lambda n: n - 1)
    loop.feedback(shorter.filter(lambda n: n > 0).rebalance())
    shorter.collect("loop")


def results(runner, parallelisms):
    """Run the job, with other parallelism behind each part of the input; return what came out."""
    with runner.harness(job, parallelism=2) as harness:
        for start in range(0, len(WORDS), 15):
            part = WORDS[start : start + 15]
            harness.push(part, timestamp=range(start * 1_000, (start + len(part)) * 1_000, 1_000))
            harness.run()
            for parallelism in parallelisms:
                done = harness.rescale_live(**parallelism)
                assert (
                    done.new.items()
                    >= {k: v for k, v in parallelism.items() if k != "parallelism"}.items()
                )
        harness.end()
        harness.run()
        sums = sorted(n for state in harness.state("sums").values() for n in state["numbers"])
        assert harness.read_count() == len(WORDS)
        return {name: Counter(harness.results(name)) for name in harness.sink_names()}, sums


@pytest.mark.core
def test_results_are_those_of_a_job_that_kept_its_parallelism(runner):
    parallelisms = [{"parallelism": 4}, {"parallelism": 1, "windows": 3}, {"sums": 2}]

    assert results(runner, parallelisms) == results(runner, [])
