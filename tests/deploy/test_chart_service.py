"""The service runs with the arguments of the chart."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import make_certificates
from tests.deploy.rendering import manifests, needs_helm, read_values, with_value
from tests.waiting import PATIENCE_S, until

BICYCLE = [str(Path(sys.executable).with_name("bicycle"))]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def free_ports():
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def token_in(file, home):
    words = [*BICYCLE, "token", "create", "anybody", "--home", str(home)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return text.strip()


def command_of(container, *, secrets):
    """Return the command of a container, with the secrets in a folder of this machine."""
    return [*BICYCLE, *(a.replace("/run/secrets/bicycle", str(secrets)) for a in container["args"])]


def ask(port, path, cafile, **headers):
    context = ssl.create_default_context(cafile=str(cafile))
    line = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
    try:
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


@needs_helm
def test_the_service_starts_and_accepts_probes_tokens_and_names_of_the_chart(
    helm, tmp_path, certificates
):
    secrets, (port, grpc_port) = tmp_path / "secrets", free_ports()
    tls, client_ca = secrets / "tls", secrets / "client-ca"
    for folder, name, source in (
        (tls, "tls.crt", "service.pem"), (tls, "tls.key", "service.key"),
        (client_ca, "ca.crt", "ca.pem"),
    ):  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((certificates / source).read_bytes())
    token = token_in(secrets / "tokens/first", tmp_path / "elsewhere")
    values = with_value(read_values("ci/all-values.yaml"), ("port",), port)
    values = with_value(values, ("grpc", "port"), grpc_port)
    pod = manifests(helm, values, tmp_path)["StatefulSet"]["spec"]["template"]["spec"]
    [service], [register] = pod["containers"], pod["initContainers"]
    environment = {**os.environ, "BICYCLE_HOME": str(tmp_path / "home")}

    for _ in range(2):  # A pod that starts again registers its tokens again.
        subprocess.run(
            command_of(register, secrets=secrets), check=True, env=environment, capture_output=True
        )
    process = subprocess.Popen(
        command_of(service, secrets=secrets), env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        url = until(process.stdout.readline, "the address of the service").strip()
        probe = service["livenessProbe"]["httpGet"]
        sent = {each["name"]: each["value"] for each in probe["httpHeaders"]}
        trusted = certificates / "service.pem"
        login = {"Authorization": f"Bearer {token}"}

        assert url == f"https://jobs.jobs.svc:{port}"
        assert probe["scheme"] == "HTTPS"
        assert ask(port, probe["path"], trusted, **sent)[0] == 200
        assert ask(port, "/health", trusted, Host="elsewhere")[0] == 403
        for host in ("jobs.example:8443", "jobs.internal:8443", f"jobs:{port}"):
            status, body = ask(port, "/api/v1/slots", trusted, Host=host, **login)
            assert (status, "local" in body.decode()) == (200, True)
        status, _ = ask(port, "/api/v1/slots", trusted, Host=f"jobs:{port}")
        assert status == 401
        used = json.loads(ask(port, "/api/v1/slots", trusted, Host=f"jobs:{port}", **login)[1])
        assert "spark://head:7077" in json.dumps(used)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)
        process.stdout.close()
