"""``partition_custom`` against its own words, whatever happens to the job."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction
from tests.examples import examples
from tests.property.mishaps import FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

MANY = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow]
)
EVENTS = st.none() | FAULTS | RESCALES | LOSSES
STEPS = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=12), EVENTS), max_size=5)


class Where(AsyncFunction[tuple[int, int], tuple[int, int, int, int]]):
    """Gives each record with its subtask and the number of them."""

    def process(self, value, ctx):
        return [(*value, ctx.task_info.subtask_index, ctx.task_info.parallelism)]


@MANY
@given(table=st.lists(st.integers(0, 10**9), min_size=1, max_size=7), steps=STEPS)
def test_every_record_comes_once_to_the_subtask_of_its_key(table, steps):
    def partitioner(key, n):
        return table[key % len(table)] % n

    def job(env):
        numbers = env.add_source(script_source()).uid("numbers")
        chosen = numbers.partition_custom(partitioner, lambda record: record[1]).uid("chosen")
        chosen.process(Where()).uid("where").collect("out")

    rows = []
    with Harness(job, parallelism=2) as harness:
        for keys, event in steps:
            fresh = [(len(rows) + number, key) for number, key in enumerate(keys)]
            rows += fresh
            fail_in_next_epoch(harness, event)
            harness.push(fresh)
            harness.run_epoch()
            happen(harness, event)
        harness.end()
        harness.run()
        found = harness.results("out")

    assert sorted((number, key) for number, key, _, _ in found) == rows
    assert all(subtask == partitioner(key, n) for _, key, subtask, n in found)
