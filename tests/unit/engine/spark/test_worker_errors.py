"""What is known of a Python worker behind Spark: its own errors, and how it ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bicycle_runtime
from bicycle_runtime.base.errors import STORAGE_MISSING
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.spark.worker import OwnError
from bicycle_runtime.engine.spark.worker_ends import worker_ended
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import StreamEnvironment
from tests.waiting import PATIENCE_S

OURS = Path(bicycle_runtime.__file__).parent / "operators" / "functions" / "transform.py"
CRASH = f"""
Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault

Thread 0x00007f8e2f7fd640 (most recent call first):
  File "{OURS}", line 4 in _answer
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f8e2f7fe740 (most recent call first):
  File "/usr/lib/python3.11/site-packages/numpy/core.py", line 70 in dot
  File "/home/ada/job/shapes.py", line 12 in turned
  File "/home/ada/job/job.py", line 3 in <lambda>
  File "{OURS}", line 5 in apply
  File "/usr/lib/python3.11/site-packages/pyspark/worker.py", line 9 in main

Thread 0x00007f8e2f7fc640 (most recent call first):
  File "/home/ada/job/poll.py", line 8 in wait
"""


WORKER = """
import cloudpickle
from bicycle_runtime.base.errors import STORAGE_MISSING
from bicycle_runtime.engine.spark.worker import EpochOrder, LevelTask, encode_order

def refuse():
    raise STORAGE_MISSING(url="s3://none", action="read", path="a\\nb")

class Refusing:
    def __reduce__(self):
        return refuse, ()

class Box:
    value = cloudpickle.dumps(Refusing())

order = encode_order(EpochOrder(epoch=1, now_ms=0, is_interval_over=False, tasks=[]))
list(LevelTask("unknown-run", Box(), 0, order)(0, ()))
"""


def test_an_error_of_ours_goes_through_spark_as_one_line():
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip

    found = OwnError.found_in(f"PythonException: {done.stderr}\n\tat org.apache.spark")

    assert found.code == STORAGE_MISSING.code, done.stderr
    assert found.facts == {"url": "s3://none", "action": "read", "path": "a\nb"}
    assert OwnError.found_in("java.io.IOException: Broken pipe") is None


@pytest.fixture
def plan():
    env = StreamEnvironment()
    env.from_collection(["a"]).uid("words").map(str.strip).uid("strip").collect("out")
    return prepare_job(bundle_of(env), job_id="job", storage=LocalStorage(".")).plan


def ended(plan, code, reason="", **more):
    place = LastPosition(run_id="run", epoch=4, level=0, subtask=1, code=code, **more)
    return worker_ended(place, plan, job="job", reason=reason)


@pytest.mark.parametrize(
    ("code", "how", "hint"),
    [
        (-signal.SIGKILL, "signal 9 (SIGKILL)", "possibly out of memory"),
        (-signal.SIGSEGV, "signal 11 (SIGSEGV)", "native code"),
        (-signal.SIGTERM, "signal 15 (SIGTERM)", "the sender of this signal"),
        (3, "exit code 3", "raise an exception"),
        (None, "no word", "logs of the workers"),
    ],
)
def test_how_a_worker_ended_leads_to_what_to_do(plan, code, how, hint):
    error = ended(plan, code, operator="strip", source="words", shard="0", offset=2, end_offset=9)

    assert error.facts["how"] == how
    assert hint in error.remedy
    assert error.facts["told"].startswith(f"'strip' (Map, {__file__}:")
    assert "source 'words', 0, offsets 2 to 9" in error.summary


def test_the_line_of_the_function_is_that_of_the_users_own_code(plan):
    error = ended(plan, -signal.SIGSEGV, CRASH, operator="strip")

    assert error.facts["location"] == "/home/ada/job/shapes.py:12"
    assert "no batch of input" in error.summary


def test_without_an_operator_or_a_crash_neither_is_made_up(plan):
    error = ended(plan, -signal.SIGKILL)

    assert error.facts["told"] == "none yet"
    assert "location" not in error.facts
