"""What a Python worker lets go of when the job's image changes: in a process of its own."""

import os
import subprocess
import sys

from tests.waiting import PATIENCE_S

PROCESS = """
import gc, weakref
import cloudpickle
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.spark import worker
from bicycle_runtime.operators.tasks.orders import EpochOrder, TaskOrder
from bicycle_runtime.testing import bundle_of
from bicycle_runtime.layouts.state import RangeState
from bicycle_sdk import KeyedProcessFunction, StreamEnvironment



class Function(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return []


env = StreamEnvironment()
words = env.from_collection(["a"]).uid("words")
words.key_by(str).process_fn(Function()).uid("named").collect("out")
job = prepare_job(bundle_of(env), job_id="job", storage=LocalStorage("."))


class Box:
    def __init__(self, run_id):
        self.value = cloudpickle.dumps(job.image(run_id))


def run(run_id, epoch):
    todo = TaskOrder(states={"named": RangeState(first_group=0, end_group=128)})
    order = EpochOrder(epoch=epoch, now_ms=0, is_interval_over=False, tasks=[todo])
    task = worker.LevelTask(run_id, Box(run_id), 1, worker.encode_order(order))
    assert list(task(0, ()))


run("run", 1)
[old] = worker._workers.values()
[program] = old._programs.values()
table = weakref.ref(next(op for op in program.operators() if op.spec.uid == "named").context.keyed)
del program
assert gc.get_freeze_count() > 0 and table() is not None
del old
run("run-1", 2)
assert list(worker._workers) == ["run-1"]
assert table() is None, gc.get_referrers(table())
"""


def test_state_of_other_parallelism_is_freed_before_that_of_the_new_ones_is_loaded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
