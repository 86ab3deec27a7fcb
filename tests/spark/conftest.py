"""Jobs on real Spark: a site for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.jobsite import JobSite


@pytest.fixture
def site(tmp_path: Path, spark_cache: Path) -> Iterator[JobSite]:
    """A place to run a job; none of its processes outlives the test."""
    place = JobSite(tmp_path / "site", spark_cache)
    yield place
    place.kill_everything()
