"""Dead letters that are replayed while the driver is killed, and hooks that never come back."""

import json

import pytest

from bicycle_runtime.jobs.status import JobState
from tests.spark.cli_process import Bicycle
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spark

LETTERS = """
from pathlib import Path
from bicycle_sdk import StreamEnvironment, bicycle_plugin, dead_letter, file_sink

FOLDER = Path("FOLDER_PATH")

def even(line: str) -> int:
    if int(line) % 2 and (FOLDER / "strict").exists():
        raise ValueError(f"{line} is odd")
    return int(line)

@bicycle_plugin(name="letters", version="1.0")
def letters(env: StreamEnvironment) -> None:
    lines = env.read_text(str(FOLDER / "in.txt")).uid("lines")
    numbers = lines.map(even).uid("even").on_error(dead_letter())
    counts = numbers.key_by(lambda n: n).count().uid("counts")
    counts.sink_to(file_sink(str(FOLDER / "out"), roll_ms=1)).uid("out")
"""
ENDLESS = """
from pathlib import Path
from bicycle_sdk import Context, RichAsyncFunction, StreamEnvironment, bicycle_plugin

def loop() -> None:
    Path("FOLDER_PATH", "begun").touch()
    while True:
        pass

def endless_map(value: str) -> str:
    loop()
    return value

class Opened(RichAsyncFunction[str, str]):
    def open(self, context):
        loop()

    async def process(self, value: str, context: Context) -> list[str]:
        return [value]

class Processed(RichAsyncFunction[str, str]):
    async def process(self, value: str, context: Context) -> list[str]:
        loop()
        return [value]

@bicycle_plugin(name="endless", version="1.0")
def endless(env: StreamEnvironment) -> None:
    env.from_collection(["a"]).HOOK.uid("endless").collect("out")
"""


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    found = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    yield found
    found.kill_jobs()


def plugin(folder, text):
    path = folder / "plugin.py"
    path.write_text(text.replace("FOLDER_PATH", str(folder)))
    return str(path)


def replayed(bicycle):
    letters = bicycle.answer("dlq", "list", "letters")["items"]
    return sorted(each["replayed_epoch"] is not None for each in letters)


def results(folder):
    lines = (line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return sorted(tuple(json.loads(line)) for line in lines)


@pytest.mark.parametrize("point", ["before_seal", "after_seal"])
def test_a_driver_killed_in_a_replay_of_letters_loses_and_repeats_none(bicycle, tmp_path, point):
    (tmp_path / "in.txt").write_text("0\n1\n2\n3\n1\n")
    (tmp_path / "strict").touch()
    (tmp_path / "fired").mkdir()
    faults = {
        "BICYCLE_FAULTS": f"{point}@2=kill", "BICYCLE_FAULTS_ONCE": str(tmp_path / "fired"),
    }  # fmt: skip
    words = ["--name", "letters", "--follow", "--master", "local[1]"]
    bicycle.answer("submit", plugin(tmp_path, LETTERS), *words, **faults)
    bicycle.wait_until("letters", lambda status: status["epoch"] == 1)
    (tmp_path / "strict").unlink()

    bicycle.run("dlq", "replay", "letters", "--all")
    bicycle.wait_until("letters", lambda status: status["restart_count"] == 1)
    bicycle.wait_until("letters", lambda status: status["state"] == JobState.RUNNING.value)
    # Whatever the first one was told: it asks for what is not replayed yet.
    bicycle.run("dlq", "replay", "letters", "--all")
    until(lambda: replayed(bicycle) == [True] * 3, "the letters")
    bicycle.answer("stop", "letters")

    assert list((tmp_path / "fired").iterdir())
    assert results(tmp_path / "out") == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]


@pytest.mark.parametrize("hook", ["map(endless_map)", "process(Opened())", "process(Processed())"])
def test_an_endless_loop_in_a_hook_leaves_page_metrics_and_cancel_working(bicycle, tmp_path, hook):
    text = ENDLESS.replace("HOOK", hook)
    job = bicycle.start(
        "submit", plugin(tmp_path, text), "--name", "endless", "--master", "local[1]"
    )
    served = Served(tmp_path / "home").start()
    try:
        until((tmp_path / "begun").exists, "the hook")
        before = bicycle.status("endless")["updated_ms"]
        pages = [
            served.ask("GET", path)[0]
            for path in ("/", "/jobs", "/jobs/endless", "/jobs/endless/graph", "/workers")
        ]
        metrics = served.ask("GET", "/metrics")[2].decode()
        bicycle.wait_until("endless", lambda status: status["updated_ms"] > before)
        canceled = served.post("/api/v1/jobs/endless/cancel")
    finally:
        served.end()
        job.communicate(timeout=PATIENCE_S)

    assert pages == [200] * 5
    assert 'bicycle_job_last_status_age_seconds{job="endless"}' in metrics
    assert (canceled["state"], canceled["result"]["state"]) == ("done", "CANCELED")
