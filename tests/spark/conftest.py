"""Jobs on real Spark: a site for each test, with one cache of start-up files for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.jobsite import JobSite

_CRASH_ROUND_SECONDS_MAX = 400
# For jobs that live for seconds: no second compiler, and a collector without threads.
_SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give crash tests time for their rounds: each starts Spark a dozen times."""
    seconds = _CRASH_ROUND_SECONDS_MAX * config.getoption("--crash-rounds")
    for item in items:
        if item.get_closest_marker("crash"):
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture(scope="session")
def spark_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes Spark start faster from the second time on."""
    return tmp_path_factory.mktemp("spark-cache")


@pytest.fixture
def site(tmp_path: Path, spark_cache: Path) -> Iterator[JobSite]:
    """A place to run a job; none of its processes outlives the test."""
    place = JobSite(tmp_path / "site", spark_cache)
    place.environment |= _SHORT_LIVED_JAVA
    yield place
    place.kill_everything()
