"""Jobs whose user code hangs: every way to end them ends them, and names the line that hangs."""

import json

import pytest

from bicycle_runtime.base.processes import is_alive
from tests.hanging import HANGING
from tests.plugin_zoo.zoo import install, whole
from tests.spark.cli_process import Bicycle
from tests.spark.jobsite import epoch_ms
from tests.waiting import until

pytestmark = pytest.mark.spark

PLUGIN = f"""{HANGING}
from dataclasses import dataclass

from bicycle_runtime.connectors.files.sink import JsonlFileSink
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_sdk import StreamEnvironment, bicycle_plugin
from bicycle_sdk.connectors import SinkDescriptor

"""
PLUGIN += """
WAYS = {"loop": loop, "lock": lock, "native": native, "frozen": frozen}


class DriverHangs(JsonlFileSink):
    def prepare(self, epoch, staged, *, is_last):
        native()


class PublicationHangs(JsonlFileSink):
    def publish(self, epoch, state):
        loop()


@connector_hook
def bicycle_sinks():
    return {"driver": "hanging:DriverHangs", "publication": "hanging:PublicationHangs"}


@dataclass(frozen=True, kw_only=True)
class Params:
    input: str
    output: str
    how: str


class Hang:
    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, line: str) -> str:
        if line == "bad":
            WAYS[self.how]()
        return line


@bicycle_plugin(name="hanging", version="1.0")
def job(env: StreamEnvironment, params: Params) -> None:
    kind = "jsonl_file" if params.how in WAYS else params.how
    sink = SinkDescriptor(connector_type=kind, properties={"path": params.output})
    lines = env.read_text(params.input, follow=True).uid("in")
    lines.map(Hang(params.how)).uid("hang").sink_to(sink).uid("out")
"""


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    install(bicycle.site, whole("hanging", PLUGIN))
    entries = bicycle.site / "hanging-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"{entries.read_text()}[bicycle.extensions]\nhanging = hanging\n")
    yield bicycle
    bicycle.kill_jobs()


def submit(bicycle, folder, how, *more):
    (folder / "in.txt").write_text("good\n")
    given = {"input": folder / "in.txt", "output": folder / "out", "how": how}
    settings = [f"--set={name}={value}" for name, value in given.items()]
    place = ("--checkpoint-dir", str(folder / "checkpoints"), "--name", "job")
    bicycle.answer("submit", "--plugin", "hanging", *settings, *place, *more)


def hangs(bicycle, folder):
    """Wait until the job is in its second epoch for some seconds."""
    bicycle.wait_until("job", lambda status: status["epoch"] == 1)
    with (folder / "in.txt").open("a") as stream:
        stream.write("bad\n")
    until(lambda: epoch_ms(bicycle.status("job")) > 6_000, "an epoch of six seconds")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("loop", ["stop", "job"]),
        ("lock", ["stop", "job", "--savepoint"]),
        ("native", ["stop", "job"]),
        ("loop", ["drain", "job"]),
        ("frozen", ["cancel", "job"]),
        ("native", ["cancel", "job"]),
    ],
)
def test_a_job_whose_function_hangs_ends_and_names_the_line(bicycle, tmp_path, how, words):
    submit(bicycle, tmp_path, how, "--stop-timeout-ms", "12000")
    hangs(bicycle, tmp_path)
    before = bicycle.status("job")
    done = bicycle.run(*words)

    assert done.returncode == 0, done.stderr
    status = bicycle.status("job")
    ended = {"cancel": "CANCELED", "--savepoint": "SUSPENDED"}
    assert status["state"] == next((ended[word] for word in words if word in ended), "STOPPED")
    [stuck] = status["stuck"]
    assert stuck["role"] == "worker"
    assert any(call.endswith(f" in {how}") for call in stuck["stack"]), stuck
    assert "hanging.py:" in stuck["location"]
    assert not is_alive(before["pid"], before["pid_started"])
    assert not is_alive(stuck["pid"], 0)
    assert ("savepoint" in done.stdout) == ("--savepoint" in words)
    assert stuck["location"] in bicycle.run("status", "job").stdout


@pytest.mark.parametrize("how", ["driver", "publication"])
def test_a_job_whose_sink_hangs_in_the_driver_ends_and_names_the_line(bicycle, tmp_path, how):
    submit(bicycle, tmp_path, how, "--stop-timeout-ms", "12000")
    if how == "driver":
        bicycle.wait_until("job", lambda status: status["epoch_began_ms"])
    else:
        bicycle.wait_until("job", lambda status: status["epoch"] == 1)
    before = bicycle.status("job")
    done = bicycle.run("stop", "job", "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["state"] == "STOPPED"
    locations = [stuck["location"] for stuck in answer["stuck"] if stuck["role"] == "driver"]
    assert any("hanging.py:" in location for location in locations), answer["stuck"]
    for role in ("pid", "supervisor_pid"):
        assert not is_alive(before[role], 0)


def test_the_default_limit_of_a_stop_leaves_time_for_the_stack(bicycle, tmp_path):
    submit(bicycle, tmp_path, "loop")
    hangs(bicycle, tmp_path)

    assert bicycle.answer("stop", "job")["stuck"]
