"""Certificates made for tests."""

import pytest

from tests.certificates import make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))
