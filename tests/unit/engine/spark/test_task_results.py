"""Results of Spark tasks: each is taken once, and none of another job."""

from types import SimpleNamespace

import pytest

from bicycle_runtime.engine.spark.task_results import TaskResults


class Accumulator:
    """What Spark's does within one process; no test can make a real one lose an answer."""

    def __init__(self):
        self.value = []

    def add(self, more):
        self.value.extend(more)


class Tasks:
    """An RDD whose tasks do something when they are counted."""

    def __init__(self, *tasks):
        self._jrdd = self
        self.tasks = tasks

    def rdd(self):
        return self

    def countApprox(self, _timeout_ms, _confidence):
        for task in self.tasks:
            task()


@pytest.fixture
def results():
    return TaskResults(SimpleNamespace(accumulator=lambda _value, _param: Accumulator()))


def leaving(box, *blocks):
    return lambda: box.leave(list(blocks))


def test_what_all_tasks_left_is_taken_once(results):
    box = results.box()
    tasks = Tasks(leaving(box, b"1", b"2"), leaving(box))
    assert results.of(tasks, 2) == [b"1", b"2"]

    again = results.box()
    assert results.of(Tasks(leaving(again, b"3")), 1) == [b"3"]


def test_a_late_task_of_a_job_that_failed_is_not_heard(results):
    def fail():
        raise ValueError("failed")

    former = results.box()
    with pytest.raises(ValueError, match="failed"):
        results.of(Tasks(leaving(former, b"old"), fail), 2)

    box = results.box()
    tasks = Tasks(leaving(former, b"late"), leaving(box, b"new"))
    assert results.of(tasks, 1) == [b"new"]


def test_results_that_are_lost_are_an_error(results):
    with pytest.raises(OSError, match="1 of 2 tasks ended without results"):
        results.of(Tasks(leaving(results.box(), b"1")), 2)
