"""The image: its entry point, and the files from which it is built."""

import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import click
import pytest
import yaml

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import write_address
from tests.deploy.rendering import ROOT
from tests.lock_file import DEVELOPMENT, locked

IMAGE = ROOT / "deploy/image"
EXECUTOR = {
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": '-Dq="x$y"',
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
}


def started(tmp_path, *words, **variables):
    """Return the words of the program that the entry point starts."""
    printer = '#!/bin/sh\necho "$(basename "$0")"\nfor word; do echo "$word"; done\n'
    programs = {
        "tini": '#!/bin/sh\nshift 2\nexec "$@"\n', "java": printer, "bicycle": printer,
        "python3": "#!/bin/sh\necho /jars\n",
    }  # fmt: skip
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [IMAGE / "entrypoint", *words]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return found.stdout.splitlines(), found.stderr


def test_a_container_runs_the_command_of_its_arguments(tmp_path):
    words, _ = started(tmp_path, "token", "create", "a b")

    assert words == ["bicycle", "token", "create", "a b"]


def test_the_pod_of_an_executor_runs_the_backend_of_spark_with_all_java_options(tmp_path):
    words, _ = started(tmp_path, "executor", **EXECUTOR)

    assert words == [
        *("java", "-Da=b c", '-Dq="x$y"', "-Xms512m", "-Xmx512m", "-cp", "/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://driver", "--executor-id", "1", "--cores", "2"),
        *("--app-id", "app", "--hostname", "10.0.0.1", "--resourceProfileId", "0"),
        *("--podName", "pod"),
    ]


def test_an_executor_without_its_variables_does_not_start(tmp_path):
    words, error = started(tmp_path, "executor")

    assert words == []
    assert "SPARK_EXECUTOR_MEMORY" in error


class Health(BaseHTTPRequestHandler):
    """A service whose health is a status."""

    status = 200

    def do_GET(self):
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_words):
        """Keep the output of tests free of requests."""


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [(["bicycle", "up"], 200, 0), (["bicycle", "up"], 503, 1), (["bicycle", "run"], 503, 0)],
)
def test_a_container_is_healthy_if_its_service_responds(tmp_path, words, status, code):
    check = runpy.run_path(str(IMAGE / "healthcheck.py"))["main"]
    handler = type("Health", (Health,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "service").mkdir()
        write_address(Home(tmp_path), url, is_open=True, grpc=None)
        found = check(tmp_path, words)
        server.shutdown()

    assert found == code


def test_a_service_that_has_not_started_is_not_healthy(tmp_path):
    check = runpy.run_path(str(IMAGE / "healthcheck.py"))["main"]

    assert check(tmp_path, ["bicycle", "up"]) == 1


def test_the_extras_of_the_image_have_the_entries_of_the_lock_file():
    entries_of = runpy.run_path(str(IMAGE / "lock_extras.py"))["entries_of"]
    entries = entries_of(DEVELOPMENT.read_text("utf-8"))

    assert entries.keys() == locked(DEVELOPMENT).keys()
    assert all("--hash=sha256:" in entry for entry in entries.values())


def test_the_image_contains_only_files_that_exist_and_are_not_ignored():
    text = (IMAGE / "Containerfile").read_text("utf-8")
    copied = [
        word
        for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for word in words.split()[:-1]
    ]
    kept = re.findall(r"^!(.*)$", (IMAGE / "containerignore").read_text("utf-8"), re.MULTILINE)

    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert [word for word in copied if not any(Path(word).is_relative_to(k) for k in kept)] == []


def test_the_image_installs_each_distribution_that_the_chart_runs():
    text = (IMAGE / "Containerfile").read_text("utf-8")
    folders = re.findall(r" \./([\w/]+)", text[text.index("--no-build-isolation") :])
    scripts = {
        script
        for folder in folders
        for script in tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))[
            "project"
        ].get("scripts", {})
    }

    assert {"bicycle", "bicycle-operator"} <= scripts


COMPOSE = ROOT / "deploy/compose.yaml"
_FOUND = shutil.which("promtool")
PROMTOOL = [_FOUND] if _FOUND or "CI" not in os.environ else ["promtool"]


def services():
    return yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]


def mounts():
    """Return the mounted files: where each is in the container."""
    words = [text.split(":") for each in services().values() for text in each.get("volumes", ())]
    return {target: COMPOSE.parent / source for source, target, *_ in words if source[0] == "."}


def test_compose_has_the_profiles_of_the_docs_and_mounts_files_that_exist():
    page = (ROOT / "docs/how-to/containers.md").read_text("utf-8")
    profiles = {name for each in services().values() for name in each.get("profiles", ())}

    assert profiles == {"cli", "kafka", "monitoring"}
    assert all(f"| `{name}` |" in page for name in profiles)
    assert [str(path) for path in mounts().values() if not path.is_file()] == []


def test_compose_runs_commands_of_the_image():
    own = [each for each in services().values() if "bicycle" in each["image"].lower()]

    assert len(own) == 3
    for service in own:
        assert command_of(service["command"]).name in ("list", "start", "up")


@pytest.mark.parametrize("promtool", [path for path in PROMTOOL if path])
def test_prometheus_accepts_its_configuration_with_the_alert_rules(tmp_path, promtool):
    for target, path in mounts().items():
        if "prometheus" in target:
            shutil.copy(path, tmp_path / Path(target).name)
    command = [promtool, "check", "config", tmp_path / "prometheus.yml"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")
    assert "rules found" in checked.stdout


def test_each_port_of_the_compose_file_belongs_to_one_program_and_is_on_the_page():
    page = (ROOT / "docs/how-to/containers.md").read_text("utf-8")
    words = [word for each in services().values() for word in each.get("command", ())]
    variables = [each.get("environment", {}) for each in services().values()]
    named = [port for each in variables for name, port in each.items() if name.endswith("_PORT")]
    after = [words[index + 1] for index, word in enumerate(words) if word == "--port"]
    listening = [word.rpartition(":")[2] for word in words if "listen-address" in word]
    ports = ["9000", *named, *after, *listening]

    assert sorted(ports) == ["3000", "8081", "8082", "9000", "9090", "9092"]
    assert [port for port in ports if not re.search(rf"\| [\d, ]*\b{port}\b[\d, ]*\|", page)] == []


def test_grafana_finds_the_dashboard_and_its_data_source():
    files = {Path(target).parent: path for target, path in mounts().items()}
    provisioning = Path("/etc/grafana/provisioning")
    source, providers = (
        yaml.safe_load(files[provisioning / name].read_text("utf-8"))
        for name in ("datasources", "dashboards")
    )
    folder = Path(providers["providers"][0]["options"]["path"])
    dashboard = json.loads(files[folder].read_text("utf-8"))
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]

    assert variables["source"]["query"] == source["datasources"][0]["type"] == "prometheus"
    assert {each["datasource"]["uid"] for each in targets} == {"${source}"}
    assert {name for each in targets for name in re.findall(r"\$(\w+)", each["expr"])} == {"job"}


def test_prometheus_asks_the_service_and_grafana_asks_prometheus():
    scraped = yaml.safe_load(mounts()["/etc/prometheus/prometheus.yml"].read_text("utf-8"))
    targets = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    paths = [path for target, path in mounts().items() if "datasources" in target]
    source = yaml.safe_load(paths[0].read_text("utf-8"))["datasources"][0]

    assert targets == [services()["cli"]["environment"]["BICYCLE_SERVICE"].removeprefix("http://")]
    address = source["url"].removeprefix("http://")
    assert f"--web.listen-address={address}" in services()["prometheus"]["command"]


def command_of(words):
    """Return the command that words start with, after it has read them."""
    command = main
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(click.Context(command), list(words))
    return command.make_context(command.name, words).command
