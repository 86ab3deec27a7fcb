"""One job as a person sees it from its wheel to its end, through everything that can happen to it.

`bicycle up` serves it, a browser watches and asks, the service is killed twice on the way; what was
counted in the end is exact.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from tests.browser.conftest import ARTEFACTS, is_live
from tests.cluster.wheels import write_wheel
from tests.unit.service_process.served import Served
from tests.unit.service_process.test_uploads import upload
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spark

PLUGIN = """
from dataclasses import dataclass
from bicycle_sdk import StreamEnvironment, bicycle_plugin, dead_letter, file_sink

@dataclass(frozen=True, kw_only=True)
class Places:
    input: str
    output: str

def parse(line: str) -> str:
    {body}

def shown(pair: tuple[str, int]) -> dict[str, object]:
    return {{"word": pair[0], "count": pair[1], "by": "{version}"}}

@bicycle_plugin(name="tally", version="{version}")
def tally(env: StreamEnvironment, places: Places) -> None:
    lines = env.read_text(places.input).uid("lines")
    words = lines.map(parse).uid("parse"){policy}
    counts = words.key_by(lambda word: word).count().uid("count")
    counts.map(shown).uid("shown").sink_to(file_sink(places.output)).uid("out")
"""
LETTERS = ".on_error(dead_letter())"
# Two refuses "?" no more; three fails at every record.
VERSIONS = {
    "1.0": ("return {'ada': 'ada', 'bob': 'bob', 'eve': 'eve'}[line]", LETTERS),
    "2.0": ("return line.strip('?') or 'nobody'", LETTERS),
    "3.0": ("raise RuntimeError('three is broken')", ""),
}


class Life:
    """A home with its service, a job's places, and the page of the job in a browser."""

    def __init__(self, root: Path, spark_cache: Path, context) -> None:
        self.root, self.complaints = root, []
        self.home = Home(root / "home")
        self.home.prepare()
        (self.home.path / "cache").symlink_to(spark_cache)
        self.input, self.output = root / "in.txt", root / "out"
        self.input.write_text("")
        self.fed: list[str] = []
        self.served = Served(self.home.path)  # Only its client: `bicycle up` starts the process.
        self.port = 0
        self.context = context
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1_000)  # In ms.
        self.page.on("console", self._hear)

    def _hear(self, message) -> None:
        # It tells of a service that is killed, and goes on asking.
        is_expected = any(word in message.text for word in ("net::ERR", "htmx:sse:error"))
        if message.type == "error" and not is_expected:
            self.complaints.append(f"{message.text} {message.location['url']}")

    def bicycle(self, *words: str) -> dict:
        done = CliRunner().invoke(main, [*words, "--json"])
        return {"exit_code": done.exit_code, **json.loads(done.stdout)}

    def up(self) -> None:
        told = self.bicycle("up", "--detach", "--no-grpc", "--port", str(self.port))
        self.served.url, self.pid = told["url"], told["pid"]
        self.port = int(told["url"].rpartition(":")[2])

    def kill_service(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        until(lambda: not is_alive(self.pid, 0), "the end of the service")

    def wheel(self, version: str) -> Path:
        body, policy = VERSIONS[version]
        text = PLUGIN.format(version=version, body=body, policy=policy)
        entries = {"tally": "tally:tally"}
        return write_wheel(self.root, "tally", version, {"tally.py": text}, plugins=entries)

    def feed(self, *words: str) -> None:
        with self.input.open("a") as stream:
            stream.write("".join(f"{word}\n" for word in words))
        self.fed += words

    def job(self) -> dict:
        return self.served.get("/api/v1/jobs/tally")

    def rows(self) -> list[dict]:
        files = [path for path in self.output.glob("*") if path.name.startswith("part")]
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def look(self, tab: str, name: str) -> None:
        self.page.goto(f"{self.served.url}/jobs/tally/{tab}".rstrip("/"))
        is_live(self.page)
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(ARTEFACTS / f"life-{name}.png"), full_page=True)

    def press(self, action: str) -> None:
        """Ask for something by a button of the page, and answer its question."""
        self.page.click(f"[data-dialog=ask-{action}]")
        self.page.locator("dialog[open] button[type=submit]").click()

    def asked(self, kind: str, state: str) -> None:
        """Wait until the page shows what became of what was asked."""
        words = re.compile(rf"{state}\s+{kind}", re.IGNORECASE)
        self.page.locator("#job-head .line.small", has_text=words).wait_for()


@pytest.fixture
def life(browser, tmp_path, spark_cache, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("BICYCLE_HOME", str(tmp_path / "home"))
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    found = Life(tmp_path, spark_cache, context)
    yield found
    context.close()
    found.bicycle("cancel", "tally")
    found.bicycle("down")


def begin(life: Life) -> None:
    """Upload the first version, start its job, watch its records come, rescale it."""
    life.up()
    uploaded = upload(life.served, life.wheel("1.0"))
    assert uploaded[0] == 201, uploaded
    life.feed("ada", "bob", "ada")
    body = {
        "plugin": "tally", "digest": json.loads(uploaded[2])["digest"], "name": "tally",
        "params": {"input": str(life.input), "output": str(life.output)},
        "options": {"follow": True, "master": "local[2]", "restart_attempts": 0},
    }  # fmt: skip
    started = life.served.post("/api/v1/jobs", body)
    assert started["state"] == "done", started
    life.look("", "running")
    life.page.wait_for_selector("#section .tile:has-text('3 in this run')")
    life.press("rescale")
    life.page.wait_for_url("**/jobs/tally")
    life.asked("rescale", "done")


def refuse(life: Life) -> None:
    """Kill the service, feed a record that is refused, see its letter, have it refused again."""
    life.look("", "rescaled")
    life.kill_service()
    life.feed("bob", "?")
    life.page.wait_for_selector("#as-of.silent")
    life.up()
    life.page.wait_for_selector("#section .tile.bad:has-text('Errors')")  # The page came back.
    life.look("dead-letters", "letter")
    life.page.click("text=Replay all")
    life.page.click("button:has-text('Replay')")
    life.page.wait_for_selector("text=failed again")


def upgrade(life: Life) -> None:
    """Upgrade to a version that takes the record, and replay its letter."""
    uploaded = upload(life.served, life.wheel("2.0"))
    life.page.goto(f"{life.served.url}/jobs/tally")
    life.page.click("#job-head a:has-text('Upgrade')")
    life.page.select_option("[name=digest]", json.loads(uploaded[2])["digest"])
    life.page.fill("[name=watch_ms]", "1000")
    life.page.click("button:has-text('Show the plan')")
    life.page.wait_for_selector("td:has-text('kept')")
    life.page.screenshot(path=str(ARTEFACTS / "life-plan.png"), full_page=True)
    assert life.job()["summary"]["plugin_version"] == "1.0"  # Nothing was done yet.
    life.page.click("button:has-text('Upgrade tally')")
    life.page.wait_for_url("**/jobs/tally")
    life.asked("upgrade", "done")
    assert life.job()["summary"]["plugin_version"] == "2.0"
    life.feed("eve")
    replayed = life.bicycle("dlq", "replay", "tally", "--all")
    assert replayed["exit_code"] == 0, replayed
    life.look("dead-letters", "replayed")
    assert life.page.locator("text=Replay all").count() == 0


def roll_back(life: Life) -> None:
    """Upgrade to a version that fails, kill the service meanwhile, and see the former one again."""
    uploaded = upload(life.served, life.wheel("3.0"))
    digest = json.loads(uploaded[2])["digest"]
    sent = life.served.ask("POST", "/api/v1/jobs/tally/upgrade", {"digest": digest})
    assert sent[0] == 202, sent
    status = life.home.folder("tally").status
    until(lambda: (s := status()) and s.plugin_version == "3.0" and s.has_begun, "version 3.0")
    life.kill_service()
    life.feed("ada", "bob")
    life.up()
    number = json.loads(sent[2])["id"]
    path = f"/api/v1/operations/{number}?wait=60"
    until(lambda: life.served.get(path)["state"] == "failed", "the way back")
    assert "three is broken" in json.dumps(life.served.get(path)["error"])
    until(lambda: life.job()["summary"]["state"] == "RUNNING", "the former version")
    life.look("exceptions", "rolled-back")
    life.asked("upgrade", "failed")
    assert "three is broken" in life.page.inner_text("#section")


def stop_and_resume(life: Life) -> None:
    """Stop the job, and start it again, both from its page."""
    life.look("", "before-stop")
    life.press("stop")
    life.page.wait_for_selector("#job-head .badge.STOPPED")
    life.feed("eve")
    life.look("", "stopped")
    life.press("resume")
    life.page.wait_for_selector("#job-head .badge.RUNNING")
    life.asked("resume", "done")


def drain(life: Life) -> None:
    """Drain the job from its page once it has read everything: a drain reads nothing more."""
    life.feed("eve", "ada")
    until(lambda: len(life.rows()) == len(life.fed), "the results of all words")
    life.look("", "before-drain")
    life.press("drain")
    life.page.wait_for_selector("#job-head .badge.FINISHED")
    life.look("", "drained")


def test_a_job_lives_through_all_that_a_person_does_and_its_results_are_exact(life):
    for step in (begin, refuse, upgrade, roll_back, stop_and_resume, drain):
        step(life)

    counted: dict[str, list[int]] = {}
    for row in life.rows():
        counted.setdefault(str(row["word"]), []).append(int(row["count"]))
    wanted = Counter("nobody" if word == "?" else word for word in life.fed)
    assert {word: sorted(numbers) for word, numbers in counted.items()} == {
        word: list(range(1, number + 1)) for word, number in wanted.items()
    }
    assert {row["by"] for row in life.rows()} == {"1.0", "2.0"}
    states = [each["new"] for each in life.served.get("/api/v1/jobs/tally/states")["items"]]
    assert states[0] == "FINISHED"
    assert life.complaints == []
