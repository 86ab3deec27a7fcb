"""The end of a Python worker by SIGHUP or by closed ears, in a process of its own."""

import signal
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

PROCESS = """
import os, signal, sys, threading
import pyspark.worker
from bicycle_runtime.engine.spark import worker

lock = threading.Lock()

class Client:
    in_call = False

    def read(self):
        self.in_call = True
        try:
            with lock:
                os.kill(os.getpid(), signal.SIGHUP)
                signal.pause()
        finally:
            self.in_call = False

    def run(self, level, subtask, order, inbox):
        yield (0, b"first")
        if sys.argv[1] == "reading":
            self.read()
        yield (0, b"second")

    def close(self):
        with lock:
            print("closed", "within the call" if self.in_call else "behind it", flush=True)
        if sys.argv[2] == "fails":
            raise ConnectionError("it is gone")
        if sys.argv[2] == "stuck":
            threading.Event().wait()

def main(infile, outfile):
    if sys.argv[1] == "waiting":  # Spark's own code waits for a task, and holds what it holds.
        client.read()
    for parcel in worker.LevelTask("run", None, 0, order)(0, ()):
        if sys.argv[1] == "between":
            os.kill(os.getpid(), signal.SIGHUP)
            signal.pause()

worker._END_PATIENCE_S = 1 if sys.argv[2] == "stuck" else 600
client = worker._workers["run"] = Client()
order = worker.encode_order(worker.EpochOrder(epoch=1, now_ms=0, is_interval_over=False, tasks=[]))
pyspark.worker.main = main
worker._close_at_end()
if sys.argv[1] == "outside":  # Spark's daemon tidies up between two tasks.
    os.kill(os.getpid(), signal.SIGHUP)
    print("tidied up", flush=True)
pyspark.worker.main(None, open(os.devnull, "wb"))
"""

UNHEARD = """
import os, sys
import pyspark.worker
from bicycle_runtime.engine.spark import worker

class Client:
    def close(self):
        print("closed", flush=True)

def main(infile, outfile):
    outfile.write(b"an answer")
    if sys.argv[1] == "exits":
        sys.exit(-1)

pyspark.worker.main = main
worker._close_at_end()
worker._workers["run"] = Client()
reading, writing = os.pipe()
os.close(reading)
pyspark.worker.main(None, open(writing, "wb"))
"""

REPORTING = """
import os, signal, sys
import pyspark.worker
from pyspark.util import handle_worker_exception
from bicycle_runtime.engine.spark import worker

class Client:
    def close(self):
        print("closed", flush=True)

class Hearing:
    def write(self, data):
        os.kill(os.getpid(), signal.SIGHUP)  # Spark stops while the worker reports an error.

    def flush(self):
        pass

def main(infile, outfile):
    try:
        raise ConnectionResetError("Spark has closed the connection")
    except BaseException as error:
        handle_worker_exception(error, outfile)
        sys.exit(-1)

pyspark.worker.main = main
worker._close_at_end()
worker._workers["run"] = Client()
pyspark.worker.main(None, Hearing())
"""


def end_of(*words: str, process: str = PROCESS) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", process, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("moment", ["reading", "between", "waiting"])
def test_a_worker_that_must_end_leaves_its_call_before_it_closes(moment):
    end = end_of(moment, "closes")

    assert end.stdout == "closed behind it\n", end.stderr
    assert end.returncode == 0


def test_a_signal_between_two_tasks_ends_the_worker_in_the_next():
    end = end_of("outside", "closes")

    assert end.stdout == "tidied up\nclosed behind it\n", end.stderr
    assert end.returncode == 0


def test_a_function_that_fails_to_close_is_told_and_the_worker_ends():
    end = end_of("between", "fails")

    assert end.returncode == 0
    assert "functions_not_closed" in end.stderr
    assert "it is gone" in end.stderr


@pytest.mark.parametrize("moment", ["reading", "between"])
def test_a_worker_that_cannot_close_ends_all_the_same(moment):
    assert end_of(moment, "stuck").returncode == -signal.SIGALRM


@pytest.mark.parametrize("way", ["exits", "returns"])
def test_a_worker_that_spark_hears_no_more_closes_and_ends_without_a_traceback(way):
    end = end_of(way, process=UNHEARD)

    assert (end.returncode, end.stdout, end.stderr) == (0, "closed\n", "")


def test_a_signal_while_spark_reports_an_error_ends_the_worker_without_a_traceback():
    end = end_of(process=REPORTING)

    assert (end.returncode, end.stdout, end.stderr) == (0, "closed\n", "")
