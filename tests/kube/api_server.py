"""A real API server with etcd, and operators beside it.

``nox -s kube`` installs etcd and builds ``kube-apiserver``.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import kopf
import yaml

from bicycle_operator.main import PEERING
from tests.operator.kubernetes import World
from tests.waiting import until

TOKEN = "of-the-tests"
CRDS = Path(__file__).parents[2] / "deploy/operator/src/bicycle_operator/crds.yaml"
INSECURE = ssl._create_unverified_context()
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterKopfPeering": "/apis/kopf.dev/v1/clusterkopfpeerings",
}


class ApiServer:
    """A client of the API server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method, path, body=None, kind="application/json"):
        """Return the code and the answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=INSECURE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def is_ready(self):
        try:
            return self.ask("GET", "/version")[0] == 200
        except OSError:
            return False

    def define(self):
        """Create the namespace, the definitions and the peering of operators."""
        meta = {"metadata": {"name": "shop"}}
        assert self.ask("POST", "/api/v1/namespaces", meta)[0] == 201
        for document in yaml.safe_load_all(CRDS.read_text("utf-8")):
            path = PATHS[document["kind"]]
            until(
                lambda d=document, p=path: self.ask("POST", p, d)[0] in (201, 409), "a definition"
            )
        group = "/apis/bicycle.dev/v1alpha1/bicyclejobs"
        until(lambda: self.ask("GET", group)[0] == 200, "the resources")
        until(
            lambda: self.ask("GET", f"{PATHS['ClusterKopfPeering']}/{PEERING}")[0] == 200, "peers"
        )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def started(binary, folder):
    """Start etcd and the API server, and yield a client."""
    etcd, peers, port = free_port(), free_port(), free_port()
    store = f"http://127.0.0.1:{etcd}"
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{TOKEN},tests,1,system:masters\n")
    programs = [
        [shutil.which("etcd"), "--data-dir", str(folder / "etcd"), "--listen-client-urls", store,
         "--advertise-client-urls", store, "--listen-peer-urls", f"http://127.0.0.1:{peers}"],
        [binary, f"--etcd-servers={store}", f"--service-account-key-file={key}",
         f"--service-account-signing-key-file={key}",
         "--service-account-issuer=https://kubernetes.default.svc",
         "--service-cluster-ip-range=10.0.0.0/24", f"--secure-port={port}",
         "--bind-address=127.0.0.1", f"--token-auth-file={folder / 'tokens.csv'}",
         "--authorization-mode=RBAC", f"--cert-dir={folder / 'certs'}",
         "--disable-admission-plugins=ServiceAccount"],
    ]  # fmt: skip
    processes = []
    try:
        for words in programs:
            with (folder / f"{Path(words[0]).name}.log").open("wb") as log:
                processes.append(subprocess.Popen(words, stdout=log, stderr=log))
        server = ApiServer(f"https://127.0.0.1:{port}")
        until(server.is_ready, "the API server")
        server.define()
        yield server
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


class RealWorld(World):
    """A real API server beside a service of jobs without processes."""

    @property
    def connection(self):
        return kopf.ConnectionInfo(server=self.url, token=TOKEN, insecure=True)

    async def _send(self, method, rest, body, *, plural="bicyclejobs"):
        path = f"/apis/bicycle.dev/v1alpha1/namespaces/shop/{plural}{rest}"
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        code, answer = self.api.ask(method, path, body, kind)
        assert code < 300, answer
        return answer

    async def scale(self, width, name="clicks"):
        """Change the parallelism as ``kubectl scale`` does."""
        return await self._send("PATCH", f"/{name}/scale", {"spec": {"replicas": width}})

    def forget_operators(self):
        """Remove the records of killed operators, which would expire after 15 s."""
        path = f"{PATHS['ClusterKopfPeering']}/{PEERING}"
        code, _ = self.api.ask("PATCH", path, {"status": None}, "application/merge-patch+json")
        assert code == 200

    def found(self, name="clicks"):
        path = f"/apis/bicycle.dev/v1alpha1/namespaces/shop/bicyclejobs/{name}"
        code, answer = self.api.ask("GET", path)
        return answer if code == 200 else None
