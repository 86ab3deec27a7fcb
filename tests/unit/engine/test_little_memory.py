"""A task that runs out of memory outside of user code: an error with a code, nothing is lost."""

import resource

from bicycle_runtime.base.faults import arm_fault
from bicycle_runtime.jobs.supervision.restarts import may_pass
from bicycle_runtime.operators.errors import TaskMemoryError
from bicycle_runtime.testing import Harness, script_source
from tests.raising import raises


def count(env):
    keyed = env.add_source(script_source(str)).uid("in").key_by(str).uid("key")
    keyed.count().uid("count").collect("out")


def lack_memory():
    raise MemoryError


def test_a_task_without_memory_is_an_error_with_a_code_and_nothing_is_lost():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with Harness(count) as harness:
        harness.push(["a", "b", "a"])
        harness.run()
        harness.push(["a", "b"])
        arm_fault("delta_written", act=lack_memory)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 44, hard))
        try:
            with raises(TaskMemoryError) as caught:
                harness.run()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        harness.crash()
        harness.run()

        assert sorted(harness.results("out")) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
    assert f"{1 << 44:,} bytes" in caught.value.facts["limit_text"]
    assert may_pass(caught.value)
