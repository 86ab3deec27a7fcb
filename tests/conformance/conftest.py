"""The ``runner`` of the conformance suite: every case runs on the harness and on Spark.

On Spark, the cases marked ``core`` run in every `make test`; the others are extended tests.
"""

from dataclasses import replace

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Runner
from tests.tiers import CORE

WITH_STATE = {
    "test_broadcast",
    "test_connected",
    "test_exact_values",
    "test_failed_attempts",
    "test_failed_joins",
    "test_installed_functions",
    "test_joins",
    "test_keyed_functions",
    "test_keyed_state",
    "test_live_rescale",
    "test_local_classes",
    "test_operator_lists",
    "test_replayed_letters",
    "test_restarts",
    "test_sessions",
    "test_shared_records",
    "test_time_order",
    "test_timers",
    "test_windows",
}


class KeptSpark:
    """One Spark for all jobs of a test session: a job's end leaves it running."""

    def __init__(self, spark):
        self.start, self.run, self.rest = spark.start, spark.run, spark.rest

    def stop(self):
        """The session stops it."""


class DiskRunner(Runner):
    """Runs jobs in this process, with state on disk."""

    def harness(self, job, *, engine=None, **settings):
        options = replace(engine or EngineOptions(), state_backend="rocksdb")
        return super().harness(job, engine=options, **settings)


def pytest_generate_tests(metafunc):
    if "runner" in metafunc.fixturenames:
        marks = [pytest.mark.spark]
        if CORE not in {mark.name for mark in metafunc.definition.iter_markers()}:
            marks.append(pytest.mark.extended)
        kinds = ["local", pytest.param("spark", marks=marks)]
        if metafunc.module.__name__.rpartition(".")[2] in WITH_STATE:
            kinds.insert(1, "disk")
        metafunc.parametrize("runner", kinds, indirect=True)


@pytest.fixture
def runner(request):
    """Runs one job over one script: ``runner(job, ["ada", EPOCH, "bob", END]).published``."""
    if request.param == "local":
        return Runner()
    if request.param == "disk":
        return DiskRunner()
    spark = request.getfixturevalue("spark")
    return Runner(lambda: KeptSpark(spark))
