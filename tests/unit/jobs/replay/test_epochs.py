"""``bicycle replay`` as a user has it: its plugin, a child process, a debugger on a terminal."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.checkpoints.job_file import note_run
from bicycle_runtime.jobs.errors import (
    EPOCH_NOT_REPLAYABLE,
    REPLAY_ENDED,
    REPLAY_OPERATOR_UNKNOWN,
    REPLAY_PLUGIN_UNKNOWN,
)
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.replay.epochs import NEXT, ReplayRequest, replay
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import BicycleError
from tests.plugin_zoo.zoo import install, whole
from tests.raising import raises
from tests.waiting import PATIENCE_S

PLUGIN = """
    import os
    import random
    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin


    @dataclass(frozen=True, kw_only=True)
    class Params:
        words: str
        stirs: bool = False


    def weigh(word):
        if word == "poison":
            raise ValueError("not eatable")
        if word == "death":
            os._exit(3)
        weight = len(word)
        return (word, weight)


    def add(one, other):
        return (one[0], one[1] + other[1])


    def stir(word):
        return (word, random.random())


    @bicycle_plugin(name="scales", version="1.0")
    def job(env, params: Params):
        words = env.from_collection(params.words.split()).uid("words")
        pairs = words.map(stir if params.stirs else weigh).uid("weights")
        pairs.key_by(lambda pair: pair[0]).reduce(add).uid("sums").collect("out")
"""
PROGRAM = "from bicycle_runtime.cli import main; main()"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the plugin, on the path."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, whole("scales", PLUGIN))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


class Scales:
    """Runs the plugin in this process, and replays it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.prepare()
        self.url = str(folder / "checkpoints/scales")
        self.params: dict[str, str] = {}

    def run(self, **params: str) -> BicycleError | None:
        self.params = params
        storage = LocalStorage(self.url, is_synced=False)
        bundle = extract(discover().find("scales"), params)
        setup = prepare_job(bundle, job_id="scales", storage=storage)
        note_run(setup, now_ms=1)
        services = LoopServices(clock=ManualClock(1), console=print, on_epoch=lambda _: None)
        options = EngineOptions(max_records_per_epoch=3, retained_epochs=9)
        loop = EpochLoop(setup, LocalExecutor(), options=options, run_id="r", services=services)
        try:
            with loop:
                while not loop.step().is_finished:
                    pass
        except BicycleError as error:
            return error
        return None

    def replay(self, epoch, **asked):
        request = ReplayRequest(
            **{"checkpoint_dir": self.url, "params": self.params, "epoch": epoch, **asked}
        )
        return replay(request, self.home)


@pytest.fixture
def scales(tmp_path, site):
    return Scales(tmp_path)


def test_a_replay_tells_what_operators_and_sinks_got_and_what_changed(scales):
    scales.run(words="ada bob ada cid ada bob")
    report = scales.replay(2, shown_count=1)

    assert (report["was_sealed"], report["differences"], report["error"]) == (True, [], None)
    counts = {
        row["operator"]: (row["records_in"], row["records_out"]) for row in report["operators"]
    }
    assert counts["weights"] == counts["sums"] == (3, 3)
    (sink,) = report["sinks"]
    assert (sink["record_count"], len(sink["records"])) == (3, 1)
    (state,) = report["states"]
    assert (state["added"], state["removed"], state["changed"]) == (1, 0, 2)
    assert len(state["changes"]) == 1


def test_what_is_not_deterministic_is_found_and_named(scales):
    scales.run(words="ada bob cid dan", stirs="true")
    report = scales.replay(1)

    (difference,) = report["differences"]
    assert "'sums'" in difference


def test_a_poisoned_epoch_is_replayed_and_passes_with_other_parameters(scales):
    error = scales.run(words="ada bob cid poison dan")
    failed = scales.replay(NEXT)
    corrected = scales.replay(NEXT, params={"words": "ada bob cid bread dan"})

    assert failed["former_error"]["code"] == failed["error"]["code"] == error.code
    assert failed["epoch"] == 2
    assert not failed["was_sealed"]
    assert (corrected["error"], corrected["is_same_plugin"]) == (None, False)


def test_one_key_shows_only_the_state_of_that_key(scales):
    scales.run(words="ada bob ada cid ada bob")
    report = scales.replay(1, key="ada", operator="sums")

    (row,) = report["operators"]
    assert (row["operator"], row["records_in"]) == ("sums", 2)
    assert [change["key"] for change in report["states"][0]["changes"]] == ["ada"]


def test_a_function_that_ends_its_process_is_told_with_the_exit_code(scales):
    scales.run(words="ada bob cid")
    with raises(REPLAY_ENDED) as caught:
        scales.replay(1, params={"words": "ada death cid"})
    assert caught.value.facts["how"] == "exit code 3"


def test_an_operator_that_the_job_does_not_have_is_refused_with_those_that_it_has(scales):
    scales.run(words="ada")
    with raises(REPLAY_OPERATOR_UNKNOWN) as caught:
        scales.replay(1, operator="nobody")
    assert "nobody" not in caught.value.facts["known_text"].split(", ")


@pytest.mark.parametrize("epoch", [NEXT, 7])
def test_an_epoch_that_is_not_there_is_refused_with_those_that_are(scales, epoch):
    scales.run(words="ada bob cid dan")
    with raises(EPOCH_NOT_REPLAYABLE) as caught:
        scales.replay(epoch)
    assert caught.value.facts["known_text"] == "1, 2"


def test_an_epoch_whose_predecessor_is_gone_is_refused(scales):
    scales.run(words="ada bob cid dan")
    (Path(scales.url) / "epochs/000000000001.manifest").unlink()
    with raises(EPOCH_NOT_REPLAYABLE) as caught:
        scales.replay(2)
    assert caught.value.facts["known_text"] == "none"


def test_without_a_job_file_the_plugin_must_be_named(scales):
    scales.run(words="ada bob cid dan")
    (Path(scales.url) / "job.json").unlink()
    with raises(REPLAY_PLUGIN_UNKNOWN):
        scales.replay(1)
    assert scales.replay(1, plugin="scales")["differences"] == []


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, scales: Scales, site: Path, *words: str) -> None:
        self._screen, side = pty.openpty()
        self._seen = ""
        given = [f"--set=words={scales.params['words']}"]
        place = ("--checkpoint-dir", scales.url)
        path = os.pathsep.join([str(site), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "replay", *place, *words, *given],
            stdin=side, stdout=side, stderr=side,
            env={**os.environ, "PYTHONPATH": path, "BICYCLE_HOME": str(scales.home.path)},
        )  # fmt: skip
        os.close(side)

    def until(self, text: str) -> str:
        """Read up to a text and return what came before it."""
        while text not in self._seen:
            ready, _, _ = select.select([self._screen], [], [], PATIENCE_S)
            assert ready, self._seen
            try:
                self._seen += os.read(self._screen, 4096).decode()
            except OSError:
                raise AssertionError(self._seen) from None
        before, _, self._seen = self._seen.partition(text)
        return before

    def type(self, line: str) -> str:
        """Type a line, and return what the debugger says up to its next prompt."""
        self.send(line)
        return self.until("(Pdb)")

    def send(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def close(self) -> int:
        code = self.process.wait(PATIENCE_S)
        os.close(self._screen)
        return code


def test_the_debugger_stops_at_the_first_record_of_the_function(scales, site):
    scales.run(words="ada bob ada cid ada bob")
    terminal = Terminal(scales, site, "--epoch", "2", "--operator", "weights", "--pdb")

    assert "weigh" in terminal.until("(Pdb)")
    assert "'cid'" in terminal.type("p word")
    assert "def weigh" in terminal.type("list")
    terminal.send("continue")
    terminal.until("the result equals the sealed result")
    assert terminal.close() == 0


def test_the_debugger_stops_where_the_poisoned_record_fails(scales, site):
    scales.run(words="ada bob cid dan poison ada")
    terminal = Terminal(scales, site, "--epoch", "next", "--pdb")

    assert "not eatable" in terminal.until("(Pdb)")
    assert "'poison'" in terminal.type("p word")
    terminal.send("continue")
    terminal.until("BIC-")
    assert terminal.close() == 1


def test_leaving_the_debugger_ends_the_replay(scales, site):
    scales.run(words="ada bob cid")
    terminal = Terminal(scales, site, "--epoch", "1", "--pdb")

    terminal.until("(Pdb)")
    terminal.send("quit")
    terminal.until("the debugger was quit")
    assert terminal.close() == 0


def test_the_command_answers_with_one_document(scales, site):
    scales.run(words="ada bob cid")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    words = ["replay", "--checkpoint-dir", scales.url, "--epoch", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "--set", "words=ada bob cid"],
        env={**os.environ, "PYTHONPATH": path, "BICYCLE_HOME": str(scales.home.path)},
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epoch"] == 1
