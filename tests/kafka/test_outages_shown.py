"""A broker that dies while a job publishes: status, API, page, metrics and an alert show it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from bicycle_runtime.jobs.epoch_ages import STALLED_MS
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from tests.docs.test_grafana import FOLDER
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.spark, pytest.mark.extended]

JOB, FAILED = "wordcount_kafka", "another-job"
FAULT = "transaction_marked@5=hold"
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: bicycle
    honor_labels: true
    params: {{older_names: ["false"]}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def served() -> Iterator[Callable[[Path], Served]]:
    """Start a service beside the jobs of a home."""
    started: list[Served] = []

    def serve(home: Path) -> Served:
        started.append(Served(home).start())
        return started[-1]

    yield serve
    for each in started:
        each.end()


@pytest.fixture
def alerts(tmp_path: Path) -> Iterator[Callable[[Served], Callable[[], set[tuple[str, str]]]]]:
    """Start Prometheus, where it is installed, with our rules; return what tells its alerts."""
    started: list[subprocess.Popen[bytes]] = []

    def watch(service: Served) -> Callable[[], set[tuple[str, str]]]:
        target = service.url.removeprefix("http://")
        config = tmp_path / "prometheus.yml"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config.write_text(CONFIG.format(rules=FOLDER / "alerts.yml", target=target))
        with (tmp_path / "prometheus.log").open("wb") as log:
            words = [
                f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ]  # fmt: skip
            started.append(subprocess.Popen(["prometheus", *words], stdout=log, stderr=log))

        def firing() -> set[tuple[str, str]]:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=PATIENCE_S) as answer:
                found = json.loads(answer.read())["data"]["alerts"]
            return {
                (each["labels"]["alertname"], each["labels"].get("job", ""))
                for each in found
                if each["state"] == "firing"
            }

        return firing

    yield watch
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_broker_that_dies_while_a_job_publishes_shows_everywhere(
    number, new_kafka_broker, new_load, new_spark_site, served, alerts
):
    broker = new_kafka_broker()
    load = new_load(broker, lines_per_s=100)
    load.start()
    site = new_spark_site(load)
    put_job(Home(site.home), FAILED, state=JobState.FAILED, started_ms=1, ended_ms=2)
    life = site.start(faults=FAULT)
    life.wait_for_fault(FAULT)
    load.rely_on(life)
    service = served(site.home)
    firing = alerts(service) if shutil.which("prometheus") else None

    broker.pause() if number == signal.SIGSTOP else broker.kill()
    life.release()
    summary = until(
        lambda: shown if "stalled" in (shown := summary_of(service))["attention"] else None,
        lambda: f"attention: {summary_of(service)}; {life.stderr[-2_000:]}",
    )  # fmt: skip

    assert summary["state"] == "RUNNING"
    assert summary["attention"][0] == "stalled"
    detail = service.get(f"/api/v1/jobs/{JOB}")["status"]
    publication, epoch = detail["publication"], detail["epoch"]
    assert (publication["epoch"], publication["sink"]) == (epoch, "kafka-sink-counts-v1")
    words = f"publishing epoch {epoch} for "
    assert words in page(service, f"/jobs/{JOB}")
    dashboard = page(service, "/")
    assert 0 < dashboard.index(JOB) < dashboard.index(FAILED)
    bicycle = str(Path(sys.executable).with_name("bicycle"))
    asked = site.launch([bicycle, "status", JOB])
    assert asked.wait() == 0
    assert words in asked.stdout, asked.stdout
    assert metric(service, "bicycle_job_stalled_seconds") >= STALLED_MS / 1_000
    if firing is not None:
        until(lambda: ("BicycleNoEpochSealed", JOB) in firing(), "the alert")

    broker.resume() if number == signal.SIGSTOP else broker.start()
    until(lambda: "stalled" not in summary_of(service)["attention"], "the end of the outage")
    load.finish()
    until(lambda: "publishing epoch" not in page(service, f"/jobs/{JOB}"), "the last publication")
    if firing is not None:
        until(lambda: ("BicycleNoEpochSealed", JOB) not in firing(), "the end of the alert")
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0


def summary_of(service: Served) -> dict:
    return service.get(f"/api/v1/jobs/{JOB}")["summary"]


def page(service: Served, path: str) -> str:
    code, _, data = service.ask("GET", path, accept="text/html")
    assert code == 200
    return data.decode()


def metric(service: Served, name: str) -> float:
    _, _, data = service.ask("GET", "/metrics")
    [value] = [
        float(line.rpartition(" ")[2])
        for line in data.decode().splitlines()
        if line.startswith(f'{name}{{job="{JOB}"')
    ]
    return value
