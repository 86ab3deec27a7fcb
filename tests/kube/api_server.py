"""A real API server with etcd, the resources of the chart in it, and operators beside it."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import kopf
import yaml

from bicycle_operator.main import PEERING
from tests.deploy.rendering import HELM, manifests, read_values
from tests.operator.kubernetes import World
from tests.waiting import until

ADMIN, OPERATOR, DRIVER = "of-an-admin", "of-the-operator", "of-a-driver"
CRDS = Path(__file__).parents[2] / "deploy/operator/src/bicycle_operator/crds.yaml"
INSECURE = ssl._create_unverified_context()
NAMESPACES = ("shop", "jobs")
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
JOBS = "/apis/bicycle.dev/v1alpha1/namespaces/shop/bicyclejobs"
PEERS = f"/apis/kopf.dev/v1/clusterkopfpeerings/{PEERING}"


class ApiServer:
    """An API server with its store, and a client with the rights of an administrator."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.folder, self.binary = folder, binary
        self.port, self.store = free_port(), f"http://127.0.0.1:{free_port()}"
        self.url = f"https://127.0.0.1:{self.port}"
        self.certificate = folder / "certs/apiserver.crt"
        self._etcd = self._process = None
        self._is_defined = False

    def ask(self, method, path, body=None, kind="application/json"):
        """Return the code and the answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=INSECURE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def path_of(self, document, namespace="jobs"):
        """Return the path of the collection of a document, which the server states itself."""
        version = document["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        code, found = self.ask("GET", root)
        assert code == 200, found
        [kind] = [
            each for each in found["resources"]
            if each["kind"] == document["kind"] and "/" not in each["name"]
        ]  # fmt: skip
        scope = f"/namespaces/{namespace}" if kind["namespaced"] else ""
        return f"{root}{scope}/{kind['name']}"

    def apply(self, document, query=""):
        """Create or change an object; return the code and the answer."""
        path = f"{self.path_of(document)}/{document['metadata']['name']}"
        query = f"?fieldManager=tests&force=true&fieldValidation=Strict{query}"
        return self.ask("PATCH", path + query, document, APPLY)

    def is_ready(self):
        try:
            return self.ask("GET", "/readyz?verbose=false")[0] == 200
        except OSError:
            return False
        except ValueError:  # The answer "ok" is not JSON.
            return True

    def start(self):
        """Start the API server, and the store if it does not run."""
        if self._etcd is None:
            peers = f"http://127.0.0.1:{free_port()}"
            self._etcd = self._run(
                shutil.which("etcd"), "--data-dir", self.folder / "etcd",
                "--listen-client-urls", self.store, "--advertise-client-urls", self.store,
                "--listen-peer-urls", peers,
            )  # fmt: skip
        key = self.folder / "sa.key"
        self._process = self._run(
            self.binary, f"--etcd-servers={self.store}", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24", f"--secure-port={self.port}",
            "--bind-address=127.0.0.1", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC", f"--cert-dir={self.folder / 'certs'}",
            "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        until(self.is_ready, "the API server")
        if self._is_defined:  # It serves the resources later than it is ready.
            self._wait_for_resources()

    def _wait_for_resources(self):
        until(lambda: self.ask("GET", JOBS)[0] == 200, "the resources")

    def _run(self, *words):
        with (self.folder / f"{Path(words[0]).name}.log").open("ab") as log:
            return subprocess.Popen([*map(str, words)], stdout=log, stderr=log)

    def kill(self):
        """Kill the API server; its store continues."""
        self._process.kill()
        self._process.wait()

    def end(self):
        self.kill()
        self._etcd.kill()
        self._etcd.wait()

    def define(self, documents):
        """Create the namespaces, the definitions, the peering of operators, and objects."""
        for name in NAMESPACES:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            assert self.apply(space)[0] in (200, 201)
        *definitions, peering = yaml.safe_load_all(CRDS.read_text("utf-8"))
        for document in definitions:
            code, answer = self.apply(document)
            assert code in (200, 201), answer
        self._wait_for_resources()
        self._is_defined = True
        until(lambda: self.ask("GET", PEERS)[0] != 403 and self._has(peering), "the peering")
        for document in documents:
            code, answer = self.apply(document)
            assert code in (200, 201), answer

    def _has(self, document):
        try:
            return self.apply(document)[0] in (200, 201)
        except AssertionError:  # The server does not serve the kind yet.
            return False

    def clear(self):
        """Remove all jobs, without an operator, and the records of killed operators."""
        for item in self.ask("GET", JOBS)[1]["items"]:
            path = f"{JOBS}/{item['metadata']['name']}"
            self.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            self.ask("DELETE", path)
        assert self.ask("PATCH", PEERS, {"status": None}, MERGE)[0] == 200


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def started(binary, folder):
    """Start etcd and the API server with the roles of the chart, and yield a client."""
    [helm] = HELM
    operator = manifests(helm, read_values("ci/all-values.yaml"), folder)
    driver = manifests(helm, read_values("ci/spark-executors-values.yaml"), folder)
    account = driver["ServiceAccount"]["metadata"]["name"]
    (folder / "tokens.csv").write_text(
        f'{ADMIN},tests,1,"system:masters"\n'
        f"{OPERATOR},system:serviceaccount:jobs:jobs-operator,2\n"
        f"{DRIVER},system:serviceaccount:jobs:{account},3\n"
    )
    words = ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"]
    subprocess.run(words, check=True, capture_output=True)
    server = ApiServer(binary, folder)
    try:
        server.start()
        server.define([
            each for each in (*operator.values(), *driver.values())
            if each["apiVersion"].startswith("rbac.")
        ])  # fmt: skip
        yield server
    finally:
        server.end()


class RealWorld(World):
    """A real API server beside a service; the operator has the rights that the chart grants."""

    @property
    def connection(self):
        return kopf.ConnectionInfo(server=self.url, token=OPERATOR, insecure=True)

    def session(self):
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False),
            headers={"Authorization": f"Bearer {OPERATOR}"},
        )

    async def _send(self, method, rest, body, *, plural="bicyclejobs"):
        path = f"/apis/bicycle.dev/v1alpha1/namespaces/shop/{plural}{rest}"
        kind = MERGE if method == "PATCH" else "application/json"
        code, answer = self.api.ask(method, path, body, kind)
        assert code < 300, answer
        return answer

    async def scale(self, width, name="clicks"):
        """Change the parallelism as ``kubectl scale`` does."""
        return await self._send("PATCH", f"/{name}/scale", {"spec": {"replicas": width}})

    def forget_operators(self):
        """Remove the records of killed operators, which would expire after 15 s."""
        assert self.api.ask("PATCH", PEERS, {"status": None}, MERGE)[0] == 200

    def found(self, name="clicks"):
        code, answer = self.api.ask("GET", f"{JOBS}/{name}")
        return answer if code == 200 else None

    def savepoint(self, name="before"):
        path = JOBS.replace("bicyclejobs", "bicyclesavepoints")
        return self.api.ask("GET", f"{path}/{name}")[1].get("status", {})

    def events(self):
        items = self.api.ask("GET", "/api/v1/namespaces/shop/events")[1]["items"]
        return {each["reason"] for each in items}


@asynccontextmanager
async def real_world(server, service_url, jobs=None):
    """Yield the cluster beside a service, without resources of other tests."""
    server.clear()
    yield RealWorld(server, server.url, jobs, service_url)
