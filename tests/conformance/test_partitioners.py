"""``partition_custom``: a function chooses subtasks, on the harness and on Spark alike."""

from collections import Counter

import pytest

from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import AsyncFunction, KeySelector, RichAsyncFunction

SIZES = [(1, 3), (3, 1), (2, 4), (3, 3)]


class Where(AsyncFunction[int, tuple[int, int]]):
    """Gives each record with the subtask that saw it."""

    def process(self, value, ctx):
        return [(value, ctx.task_info.subtask_index)]


class Tally(RichAsyncFunction[int, tuple[int, int, int]]):
    """Gives each record with its subtask, and how many this one has seen."""

    def __init__(self):
        self.seen = 0

    def process(self, value, ctx):
        self.seen += 1
        return [(value, ctx.task_info.subtask_index, self.seen)]


class Half(KeySelector[int, int]):
    def get_key(self, value):
        return value // 2


def from_the_end(key, n):
    return n - 1 - key % n


def beyond_the_end(key, n):
    return n if key == 3 else 0


def itself(value):
    return value


def placed(runner, partitioner, before, after, script, *, key=itself, **settings):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").set_parallelism(before)
        chosen = numbers.partition_custom(partitioner, key).uid("chosen")
        chosen.process(Where()).set_parallelism(after).collect("out")

    return runner(job, {"numbers": script}, **settings).results["out"]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_each_record_goes_to_the_subtask_that_the_function_returns(runner, before, after):
    found = placed(runner, from_the_end, before, after, range(40))

    assert sorted(found) == [(value, from_the_end(value, after)) for value in range(40)]


def test_the_function_is_asked_about_the_key_of_a_record(runner):
    found = placed(runner, from_the_end, 2, 3, range(12), key=Half())

    assert sorted(found) == [(value, from_the_end(value // 2, 3)) for value in range(12)]


@pytest.mark.core
def test_state_of_the_chosen_subtasks_goes_on_over_epochs_and_crashes(runner):
    #  epoch 1: 0 1 2 3 | epoch 2: 4 5 ✗      restart → epoch 2: 4 5 6 7 |
    def tallied(numbers):
        chosen = numbers.partition_custom(from_the_end, itself).uid("chosen")
        return chosen.process(Tally()).uid("tally").set_parallelism(2)

    done = runner(tallied, [0, 1, 2, 3, EPOCH, 4, 5, CRASH, 6, 7, END])

    # Even numbers go to subtask 1, odd ones to subtask 0.
    assert sorted(done.published) == [(n, 1 - n % 2, n // 2 + 1) for n in range(8)]
    assert done.crash_count == 1


def test_after_a_rescale_the_function_chooses_from_the_new_subtasks(runner):
    def job(env):
        chosen = env.add_source(script_source(int)).partition_custom(from_the_end, itself)
        chosen.uid("chosen").process(Where()).uid("where").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        harness.push(range(6))
        harness.run_epoch()
        harness.rescale(3)
        harness.push(range(6, 12))
        harness.run_epoch()
        harness.rescale_live(2)
        harness.push(range(12, 18))
        harness.run_epoch()

        parallelisms = {**dict.fromkeys(range(6), 2), **dict.fromkeys(range(6, 12), 3)}
        assert sorted(harness.published) == [
            (value, from_the_end(value, parallelisms.get(value, 2))) for value in range(18)
        ]


def test_a_subtask_out_of_bounds_fails_the_record_and_names_function_and_line(runner):
    with pytest.raises(FunctionFailedError) as caught:
        placed(runner, beyond_the_end, 1, 2, [1, 2, 3])

    facts = caught.value.facts
    line = beyond_the_end.__code__.co_firstlineno
    assert (facts["exception"], facts["operator"]) == ("SubtaskError", "chosen")
    assert facts["location"].endswith(f"test_partitioners.py:{line} in beyond_the_end")
    assert "beyond_the_end returned 2 for key 3" in facts["exception_message"]
    assert "expected a whole number 0..1" in facts["exception_message"]


@pytest.mark.parametrize("wrong", [-1, 1.0, True, None, "0"])
def test_what_is_no_subtask_is_left_out_where_errors_are_skipped(runner, wrong):
    def partitioner(key, n):
        return wrong if key == 3 else key % n

    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        chosen = numbers.partition_custom(partitioner, itself).on_error("skip")
        chosen.process(Where()).set_parallelism(2).collect("out")

    done = runner(job, {"numbers": [1, 2, 3, 4]})

    assert sorted(done.results["out"]) == [(1, 1), (2, 0), (4, 0)]


def test_event_times_go_along(runner):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").assign_timestamps(itself)
        chosen = numbers.partition_custom(from_the_end, itself)
        halves = chosen.map(itself).set_parallelism(2).key_by(lambda value: value % 2)
        halves.tumbling_window(10).count().collect("out")

    done = runner(job, {"numbers": [1, 2, 3, 11, 25]})

    counted = Counter((result.key, result.start, result.value) for result in done.results["out"])
    assert counted == Counter([(1, 0, 2), (0, 0, 1), (1, 10, 1), (1, 20, 1)])
