"""What every test may use: the sizes of the long forms. Other fixtures stand beside their tests."""

import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from bicycle_sdk.clock import ManualClock
from tests.examples import EXAMPLES_MAX
from tests.spark.jobsite import JobSite

if TYPE_CHECKING:
    from bicycle_runtime.engine.spark.executor import SparkExecutor

SPARK_CACHE = Path(__file__).parents[1] / ".build/spark-cache"

# How fast an example is, is never what a test is about. `make test` draws a quarter of them.
settings.register_profile("all", deadline=None, max_examples=EXAMPLES_MAX)
settings.register_profile("some", deadline=None, max_examples=EXAMPLES_MAX // 4)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("all" if config.getoption("--extended") == "all" else "some")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bicycle", "how long the long tests are")
    group.addoption(
        "--crash-rounds", type=int, default=1, help="How often each crash point is visited."
    )
    group.addoption(
        "--soak-epochs", type=int, default=300, help="How many epochs a soak test runs."
    )
    group.addoption(
        "--outage-seconds", type=int, default=20, help="How long a broker stands still."
    )
    group.addoption(
        "--backlog-messages", type=int, default=300_000, help="How many messages wait for a job."
    )
    group.addoption(
        "--driver-schedules", type=int, default=60,
        help="How many schedules of frozen and replaced drivers are played.",
    )  # fmt: skip
    group.addoption(
        "--cluster-schedules", type=int, default=1,
        help="How many schedules of losses and rescales are played on the cluster.",
    )  # fmt: skip
    group.addoption(
        "--operator-kills", type=int, default=10,
        help="How often the operator is killed beside a real API server.",
    )  # fmt: skip


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """State that tests with a real API server were skipped."""
    skipped = terminalreporter.stats.get("skipped", ())
    if count := sum(report.nodeid.startswith("tests/kube/") for report in skipped):
        text = f"{count} tests with a real API server were skipped, because kube-apiserver, etcd "
        text += "or helm is missing: run make kube"
        terminalreporter.write_line(text, yellow=True, bold=True)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command that ran inside of a test did to logging."""
    root, ours = logging.getLogger(), logging.getLogger("bicycle_runtime")
    handlers, level = set(root.handlers), ours.level
    yield
    for handler in set(root.handlers) - handlers:
        root.removeHandler(handler)
    ours.setLevel(level)


@pytest.fixture(scope="session")
def crash_round_count(request: pytest.FixtureRequest) -> int:
    """How often a crash test visits each of its points: 1, or many in `make crash`."""
    return int(request.config.getoption("--crash-rounds"))


@pytest.fixture(scope="session")
def soak_epoch_count(request: pytest.FixtureRequest) -> int:
    """How many epochs a soak test runs: a few hundred, or 20 000 in ``make soak``."""
    return int(request.config.getoption("--soak-epochs"))


@pytest.fixture(scope="session")
def outage_seconds(request: pytest.FixtureRequest) -> int:
    """How long a broker stands still in a test of outages."""
    return int(request.config.getoption("--outage-seconds"))


@pytest.fixture(scope="session")
def backlog_messages(request: pytest.FixtureRequest) -> int:
    """How many messages wait for a job: 300 000, or 5 million in ``make backlog-kafka``."""
    return int(request.config.getoption("--backlog-messages"))


@pytest.fixture(scope="session")
def spark_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes Spark start faster from the second time on; it is kept from run to run.

    Java leaves its classes at a clean end only: jobs that are killed would never have them.
    """
    SPARK_CACHE.mkdir(parents=True, exist_ok=True)
    with (SPARK_CACHE / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(SPARK_CACHE.glob("*.jsa*")):
            first = JobSite(tmp_path_factory.mktemp("first-start") / "site", SPARK_CACHE)
            (first.input / "lines.txt").write_text("once\n")
            first.finish()
            for archive in SPARK_CACHE.glob("*.jsa.*"):
                archive.replace(archive.with_suffix(""))  # Java has ended: it is whole.
    return SPARK_CACHE


@pytest.fixture(scope="session")
def spark_clock() -> ManualClock:
    """Return the clock by which the workers of ``spark`` rest."""
    return ManualClock()


@pytest.fixture(scope="session")
def spark(spark_clock: ManualClock, spark_cache: Path) -> Iterator["SparkExecutor"]:
    """Start the Spark of this session; workers find the test modules where pytest found them.

    A process can have one only, so all suites share it.
    """
    from bicycle_runtime.engine.spark.executor import SparkExecutor  # Few tests need it.

    path = os.pathsep.join(entry for entry in sys.path if entry)
    executor = SparkExecutor(
        "local[2,4]",
        settings={"spark.executorEnv.PYTHONPATH": path},
        cache_dir=spark_cache,
        job="conformance",
        clock=spark_clock,
    )
    executor.boot()
    yield executor
    executor.stop()
    executor.wait_ended()
