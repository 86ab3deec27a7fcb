"""Replaying dead letters of a real job: by command and request, over the death of its driver."""

import json
import threading

import pytest
from click.testing import CliRunner

from bicycle_runtime.base.faults import InjectedFault, arm_fault, disarm_faults
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.control.letter_replay import letters_to_replay
from bicycle_runtime.jobs.control.requests import ask_job
from bicycle_runtime.jobs.errors import (
    DEAD_LETTER_REPLAYED,
    DEAD_LETTER_UNKNOWN,
    DEAD_LETTERS_NOT_LOADED,
    LETTER_REQUEST_UNREADABLE,
    JobNotRunningError,
)
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.unit.jobs.control.letter_job import Letters
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def strict(tmp_path):
    found = Letters(tmp_path)
    yield found
    disarm_faults()
    if not found.running.done():
        found.job.end(found.running)


ALL = [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]


def test_commands_replay_letters_once(strict, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(strict.job.home.path))

    def run(*words):
        return CliRunner().invoke(main, ["dlq", *words])

    (strict.root / "strict").unlink()
    newest = strict.letters()[0]
    one = run("replay", "job", newest.id)
    rest = json.loads(run("replay", "job", "--operator", "even", "--json").stdout)
    again = run("replay", "job", newest.id)
    none = run("replay", "job", "--all")
    listed = json.loads(run("list", "job", "--json").stdout)["items"]
    vague = run("replay", "job", newest.id, "--all")

    assert "1 dead letter replayed in epoch" in one.stdout
    assert rest["letters"] == [each.id for each in strict.letters()[:0:-1]]
    assert DEAD_LETTER_REPLAYED.code in again.stderr
    assert "all dead letters are already replayed" in none.stdout
    assert all(each["replayed_epoch"] for each in listed)
    assert vague.exit_code == 2
    until(lambda: strict.results() == ALL, "the results")


def test_a_record_that_is_refused_again_leaves_a_letter_that_can_be_replayed(strict):
    first = letters_to_replay(strict.job.home, "job")
    strict.replay(first)
    until(lambda: len(strict.letters()) == 6, "the new letters")
    (strict.root / "strict").unlink()
    second = letters_to_replay(strict.job.home, "job")
    strict.replay(second)

    assert {each.replay_of for each in second} == {each.id for each in first}
    assert letters_to_replay(strict.job.home, "job") == []
    until(lambda: strict.results() == ALL, "the results")


@pytest.mark.parametrize("point", ["operator", "before_seal", "after_seal", "after_publish"])
def test_who_asks_again_after_the_death_of_the_driver_loses_and_repeats_nothing(strict, point):
    (strict.root / "strict").unlink()
    letters = letters_to_replay(strict.job.home, "job")
    arm_fault(point)
    # Driver and asker are one process here, so the asker does not see the driver's end.
    threading.Thread(target=strict.ask_in_vain, args=(letters, "mine"), daemon=True).start()
    assert isinstance(strict.running.exception(PATIENCE_S), InjectedFault)

    strict.start()
    done = strict.replay(letters, token="mine")
    assert strict.replay(letters, token="mine") == done
    with raises(DEAD_LETTER_REPLAYED):
        strict.replay(letters, token="another's")

    assert len(done.epochs) == 1
    assert {each.replayed_epoch for each in strict.letters()} == set(done.epochs)
    until(lambda: strict.results() == ALL, "the results")


def test_one_letter_that_is_unknown_keeps_all_from_being_replayed(strict):
    (strict.root / "strict").unlink()
    newest, *others = strict.letters()
    unknown = type(newest)(**{
        **{name: getattr(newest, name) for name in newest.__struct_fields__}, "id": "x.jsonl:1",
    })  # fmt: skip
    with raises(DEAD_LETTER_UNKNOWN):
        strict.replay([*others, unknown])
    assert letters_to_replay(strict.job.home, "job") == [*others[::-1], newest]


def test_a_request_of_another_form_and_a_job_without_pickles_refuse(strict, tmp_path_factory):

    with raises(LETTER_REQUEST_UNREADABLE):
        ask_job(strict.job.home, "job", "replay", {}, clock=SystemClock(), timeout_ms=9_000)
    strict.job.end(strict.running)
    with raises(JobNotRunningError):
        strict.replay(strict.letters())

    careful = Letters(tmp_path_factory.mktemp("careful"), no_pickle=True)
    with raises(DEAD_LETTERS_NOT_LOADED):
        careful.replay(careful.letters())
    careful.job.end(careful.running)
