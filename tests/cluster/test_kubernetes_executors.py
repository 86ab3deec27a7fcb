"""Executors on Kubernetes: Spark's requests, and the entry point of the image in each pod.

The API server is a model: it starts the entry point as a process for each pod that Spark creates,
with the variables of the pod, as a node does.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.clustersite import ClusterSite
from tests.cluster.pods import ADDRESS, DEPLOY, Pods
from tests.spark.jobsite import expected_counts, visible_counts

_ADDRESS = re.compile(r"/api/v1/namespaces/jobs/(?P<resource>\w+)(?P<name>/[^?]+)?(?P<query>\?.*)?")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def right_of(method: str, path: str) -> tuple[str, str]:
    """Return the resource and the verb that a role must contain for a request."""
    address = _ADDRESS.fullmatch(path)
    assert address, path
    if method == "GET":
        verb = "get" if address["name"] else "list"
        verb = "watch" if "watch=true" in (address["query"] or "") else verb
    else:
        verb = _VERBS[method]
        verb += "collection" if verb == "delete" and not address["name"] else ""
    return address["resource"], verb


def rights_of_the_chart() -> set[tuple[str, str]]:
    """Return the resources and verbs of the role that the chart creates for drivers."""
    lines = (DEPLOY / "chart/templates/role.yaml").read_text("utf-8").splitlines()
    role, _ = yaml.safe_load_all("\n".join(line for line in lines if "{{" not in line))
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Kubernetes:
    """The pods that clients have created, each with a process."""

    def __init__(self, folder: Path) -> None:
        self.processes = Pods(folder)
        self.requests: set[tuple[str, str]] = set()  # Methods and paths.
        self.pods: dict[str, dict[str, Any]] = {}

    def create(self, pod: dict[str, Any]) -> None:
        pod["status"] = {"phase": "Running", "podIP": ADDRESS}
        pod["metadata"]["uid"] = pod["metadata"]["name"]
        self.pods[pod["metadata"]["name"]] = pod
        self.processes.start(pod)

    def delete_all(self) -> None:
        self.pods.clear()
        self.processes.end_all()


def _handler(kubernetes: Kubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def _answer(self, body: dict[str, Any], code: int = 200) -> None:
            kubernetes.requests.add((self.command, self.path))
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> dict[str, Any]:
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")

        def do_GET(self) -> None:
            items = list(kubernetes.pods.values()) if "/pods?" in self.path else []
            self._answer({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})

        def do_POST(self) -> None:
            body = self._body()
            if self.path.partition("?")[0] == "/api/v1/namespaces/jobs/pods":
                kubernetes.create(body)
            self._answer(body, 201)

        def do_DELETE(self) -> None:
            self._body()
            if "/pods" in self.path:
                kubernetes.delete_all()
            self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    return Handler


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[tuple[Kubernetes, str]]:
    model = Kubernetes(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(model)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield model, f"k8s://http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    model.delete_all()


def test_pods_with_the_entry_point_of_the_image_run_the_tasks_of_a_job(
    kubernetes, tmp_path, spark_cache
):
    model, master = kubernetes
    site = ClusterSite(tmp_path / "site", spark_cache, master=master, host_python=sys.executable)
    words = site.write_words(lines=50)
    settings = {
        "spark.kubernetes.container.image": "bicycle:1",
        "spark.kubernetes.namespace": "jobs",
        "spark.executor.instances": "1",
        "spark.driver.host": "127.0.0.1",
        # The model has no watches.
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
    }
    try:
        given = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        life = site.start("--cluster-timeout-ms", "150000", *given)
        assert life.wait() == 0, (life.stderr, model.processes.log)
    finally:
        site.kill_everything()

    assert visible_counts(site.output) == expected_counts(words)
    [container] = model.processes.created[0]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("bicycle:1", ["executor"])
    assert model.pods == {}  # The driver deletes its executors.
    needed = {right_of(*request) for request in model.requests}
    assert needed >= {("pods", "create"), ("pods", "list"), ("pods", "deletecollection")}
    assert needed - rights_of_the_chart() == set()
