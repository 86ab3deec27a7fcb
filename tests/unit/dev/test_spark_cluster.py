import contextlib
import http.server
import json
import threading

import pytest

from bicycle_runtime.dev.cluster_processes import ClusterProcesses
from bicycle_runtime.dev.cluster_record import ClusterOptions
from bicycle_runtime.dev.errors import (
    CLUSTER_HOST_UNUSABLE,
    CLUSTER_NOT_STARTED,
    PORT_TAKEN,
    ClusterMissingError,
)
from bicycle_runtime.dev.spark_cluster import SparkCluster, read_state
from bicycle_sdk.errors import OptionError
from tests.raising import raises
from tests.waiting import until


@pytest.fixture
def new_cluster(tmp_path):
    """Make clusters of one folder; whatever runs there in the end is killed."""
    made = []

    def make(**options):
        settings = {"folder": tmp_path / "spark", "start_timeout_ms": 1_000, **options}
        made.append(SparkCluster(ClusterOptions(**settings)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.kill()


@contextlib.contextmanager
def page(text, status=200):
    """Serve one answer as a master's page; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def worker(host, state="ALIVE", used=0):
    return {
        "host": host, "state": state, "cores": 2, "coresused": used, "memory": 1024,
        "memoryused": 512,
    }  # fmt: skip


def test_a_host_whose_worker_died_and_came_back_is_alive():
    workers = [worker("b"), worker("a", used=2), worker("a", "DEAD"), worker("c", "DEAD")]
    jobs = [{"id": "app-1", "name": "bicycle-orders", "cores": 2}]
    with page(json.dumps({"workers": workers, "activeapps": jobs})) as port:
        state = read_state("127.0.0.1", port)

    assert [(host.host, host.state) for host in state.hosts] == [
        ("a", "ALIVE"), ("b", "ALIVE"), ("c", "DEAD"),
    ]  # fmt: skip
    assert state.alive_hosts() == {"a", "b"}
    assert (state.hosts[0].cores_used, state.jobs[0].name) == (2, "bicycle-orders")


@pytest.mark.parametrize("text", ["no json", "{}", '{"workers": 3, "activeapps": []}'])
def test_an_answer_of_somebody_else_is_no_state(text):
    with page(text) as port, pytest.raises(ValueError):
        read_state("127.0.0.1", port)


def test_where_no_cluster_runs_everything_says_so(new_cluster):
    cluster = new_cluster()

    assert cluster.record() is None
    assert not cluster.is_running()
    assert cluster.hosts() == []
    for ask in (lambda: cluster.url, cluster.state, cluster.stop, cluster.add_host):
        with pytest.raises(ClusterMissingError):
            ask()
    assert not cluster.folder.exists()


@pytest.mark.parametrize("memory", ["", "1", "1t", "0m", "-1g", "1.5g", "g"])
def test_memory_is_written_as_spark_does(tmp_path, memory):
    with pytest.raises(OptionError):
        ClusterOptions(folder=tmp_path, memory=memory)


def test_a_port_that_is_taken_is_refused_before_anything_starts(new_cluster):
    with page("") as port, raises(PORT_TAKEN):
        new_cluster(port=port).start()


def test_without_java_the_start_says_what_is_needed(new_cluster, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with raises(CLUSTER_NOT_STARTED) as error:
        new_cluster().start()

    assert "Java 17" in error.value.facts["reason"]


def test_a_master_that_ends_at_once_is_told_with_what_it_printed(new_cluster, fake_java):
    fake_java(running="echo boom; exit 3")

    with raises(CLUSTER_NOT_STARTED) as error:
        new_cluster(start_timeout_ms=20_000).start()

    assert error.value.facts["tail"] == ["boom"]
    assert new_cluster().processes() == []


def test_workers_that_are_not_ready_in_time_are_ended(new_cluster, fake_java):
    fake_java(running="exec sleep 60")

    with raises(CLUSTER_NOT_STARTED) as error:
        new_cluster().start()

    assert "127.0.0.2, 127.0.0.3" in error.value.facts["reason"]
    assert new_cluster().processes() == []


def test_what_is_left_of_a_cluster_without_its_record_is_found_and_ended(
    new_cluster, fake_java, tmp_path
):
    """As when the command was killed right after it had started a process."""
    fake_java(running="exec sleep 60")
    cluster = new_cluster()
    java = str(tmp_path / "java-home" / "bin" / "java")
    killed = ClusterProcesses(cluster.folder)
    killed.start(java, "master", "127.0.0.1", [])
    assert not (cluster.folder / "cluster.json").exists()
    # A process has no environment to be known by while it becomes another program.
    until(lambda: len(cluster.processes()) == 1, "the process")

    assert not new_cluster(stop_timeout_ms=0).stop()

    assert cluster.processes() == []
    killed.wait()


def test_an_address_of_another_machine_is_no_host(new_cluster, monkeypatch):
    monkeypatch.setattr("bicycle_runtime.dev.spark_cluster.host_address", lambda _: "192.0.2.1")

    with raises(CLUSTER_HOST_UNUSABLE):
        new_cluster().start()
