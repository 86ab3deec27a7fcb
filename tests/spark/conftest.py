"""Jobs on real Spark: a site for each test, and time for those that kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.jobsite import JobSite

_CRASH_ROUND_SECONDS_MAX = 400


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give crash tests time for their rounds: each starts Spark a dozen times."""
    seconds = _CRASH_ROUND_SECONDS_MAX * config.getoption("--crash-rounds")
    for item in items:
        if item.get_closest_marker("crash"):
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture
def site(tmp_path: Path, spark_cache: Path) -> Iterator[JobSite]:
    """A place to run a job; none of its processes outlives the test."""
    place = JobSite(tmp_path / "site", spark_cache)
    yield place
    place.kill_everything()
