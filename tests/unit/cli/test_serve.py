"""``bicycle serve``: figures of all jobs behind a port, for Prometheus."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from bicycle_runtime.service.errors import METRICS_PORT_TAKEN
from bicycle_runtime.service.metrics.endpoint import serving_metrics
from bicycle_sdk.clock import SystemClock
from tests.raising import raises


def read(url):
    with urllib.request.urlopen(url) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_figures_of_all_jobs_are_told_as_text_and_of_jobs_that_come_later(shell):
    shell.put_job("words", record_count=7)
    with serving_metrics(shell.home, port=0, clock=SystemClock()) as url:
        kind, text = read(url)
        assert kind.startswith("text/plain")
        assert 'bicycle_job_records_total{job="words"} 7' in text
        assert "# TYPE pulse_dropped_records_total counter" in text
        shell.put_job("later", record_count=9)
        assert 'bicycle_job_records_total{job="later"} 9' in read(url)[1]

        with pytest.raises(urllib.error.HTTPError) as caught:
            read(url.replace("/metrics", "/jobs"))
        assert caught.value.code == 404
        caught.value.close()


def test_a_port_that_is_taken_is_told(shell):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            raises(METRICS_PORT_TAKEN),
            serving_metrics(shell.home, port=port, clock=SystemClock()),
        ):
            raise AssertionError("it listens at a port that is taken")
        assert shell.run("serve", "--port", str(port)).exit_code == 6


def test_the_command_serves_until_it_is_ended(shell):
    shell.put_job("words", record_count=7)
    command = [sys.executable, "-c", "from bicycle_runtime.cli import main; main()", "serve"]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=shell.environment
    ) as process:
        url = process.stdout.readline().strip()
        assert 'bicycle_job_records_total{job="words"} 7' in read(url)[1]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 0
