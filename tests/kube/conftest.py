"""One API server for all tests here; without its programs they are skipped."""

import runpy
import shutil
from pathlib import Path

import pytest

from tests.deploy.rendering import HELM
from tests.kube.api_server import started

BINARY = runpy.run_path(str(Path(__file__).parents[2] / "tools/kube_apiserver.py"))["BINARY"]
FOUND = [str(BINARY)] if BINARY.exists() and shutil.which("etcd") and HELM else []


@pytest.fixture(scope="session", params=FOUND, ids=["real" for _ in FOUND])
def server(request, tmp_path_factory):
    with started(request.param, tmp_path_factory.mktemp("cluster")) as found:
        yield found
