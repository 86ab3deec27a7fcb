import pytest

from bicycle_sdk import StreamEnvironment


@pytest.fixture
def env():
    return StreamEnvironment()


@pytest.fixture
def words(env):
    return env.from_collection(["a", "b"])
