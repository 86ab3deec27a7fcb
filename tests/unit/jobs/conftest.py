import pytest

from bicycle_runtime.jobs.home import Home


@pytest.fixture
def home(tmp_path):
    """A home of its own, without jobs."""
    home = Home(tmp_path / "home")
    home.prepare()
    return home
