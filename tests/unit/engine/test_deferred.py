"""An executor that starts when there is something to run."""

from contextlib import nullcontext

from bicycle_runtime.engine.deferred import DeferredExecutor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.testing import Harness, script_source


class Counted(LocalExecutor):
    """Counts what is asked of it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def boot(self):
        self.calls.append("boot")

    def start(self, image):
        self.calls.append("start")
        super().start(image)

    def run(self, orders):
        self.calls.append("run")
        return super().run(orders)


def job(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("counts").collect("out")


def harness(executor, *, has_work=False):
    def deferred():
        return DeferredExecutor(executor, starting=nullcontext, has_work=lambda: has_work)

    return Harness(job, new_executor=deferred)


def test_nothing_starts_before_there_is_something_to_run():
    executor = Counted()
    with harness(executor) as test:
        assert test.run_epoch() is None
        assert test.run_epoch() is None
        assert set(executor.calls) == {"boot"}  # It gets ready while the job waits.
        test.push(["a"])
        test.run_epoch()
        test.push(["a"])
        test.run_epoch()
        assert [call for call in executor.calls if call != "boot"] == ["start", "run", "run"]
        assert test.results("out") == [("a", 1), ("a", 2)]


def test_a_restart_and_a_rescale_before_the_first_record_lose_nothing():
    executor = Counted()
    with harness(executor) as test:
        test.push(["a", "b"])
        test.run_epoch()
        test.crash()
        test.rescale_live(2)
        test.push(["a"])
        test.run_epoch()
        assert sorted(test.results("out")) == [("a", 1), ("a", 2), ("b", 1)]


def test_an_executor_that_has_work_starts_with_the_job():
    executor = Counted()
    with harness(executor, has_work=True) as test:
        assert executor.calls == ["start"]
        test.push(["a"])
        test.run_epoch()
        assert executor.calls == ["start", "run"]
