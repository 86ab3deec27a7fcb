"""The ``runner`` of the conformance suite: every case runs on the harness and on Spark."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.testing import Runner


class KeptSpark:
    """One Spark for all jobs of a test session: a job's end leaves it running."""

    def __init__(self, spark):
        self.start, self.run = spark.start, spark.run

    def stop(self):
        """The session stops it."""


@pytest.fixture(scope="session")
def spark():
    """A Spark of this session; workers find the test modules where pytest found them."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    executor = SparkExecutor(
        "local[2,4]",
        settings={"spark.executorEnv.PYTHONPATH": path},
        cache_dir=Path(tempfile.gettempdir()) / "bicycle-test-cache",
        job="conformance",
    )
    executor.boot()
    yield executor
    executor.stop()
    executor.wait_ended()


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def runner(request):
    """Runs one job over one script: ``runner(job, ["ada", EPOCH, "bob", END]).published``."""
    if request.param == "local":
        return Runner()
    spark = request.getfixturevalue("spark")
    return Runner(lambda: KeptSpark(spark))
