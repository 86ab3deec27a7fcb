"""What every test may use: the sizes of the long forms. Other fixtures stand beside their tests."""

import pytest
from hypothesis import settings

# How fast an example is, is never what a test is about.
settings.register_profile("bicycle", deadline=None)
settings.load_profile("bicycle")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bicycle", "how long the long tests are")
    group.addoption(
        "--crash-rounds", type=int, default=1, help="How often each crash point is visited."
    )
    group.addoption(
        "--soak-epochs", type=int, default=300, help="How many epochs a soak test runs."
    )


@pytest.fixture(scope="session")
def crash_round_count(request: pytest.FixtureRequest) -> int:
    """How often a crash test visits each of its points: 1, or many in ``nox -s crash``."""
    return int(request.config.getoption("--crash-rounds"))


@pytest.fixture(scope="session")
def soak_epoch_count(request: pytest.FixtureRequest) -> int:
    """How many epochs a soak test runs: a few hundred, or 20 000 in ``nox -s soak``."""
    return int(request.config.getoption("--soak-epochs"))
