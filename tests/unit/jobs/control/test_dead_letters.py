"""Dead letters of a real job: listed, followed, shown, and never unpickled."""

import json
import pickle

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.control import dead_letters as dead_letters_module
from bicycle_runtime.jobs.control.dead_letters import (
    dead_letter,
    dead_letters,
    dead_letters_folder,
)
from bicycle_runtime.jobs.control.letter_replay import chosen_letters
from bicycle_runtime.jobs.errors import DEAD_LETTER_UNKNOWN
from tests.raising import raises
from tests.unit.jobs.running.light_jobs import LETTERS, LightJob


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "letters.py"
    file.write_text(LETTERS)
    found = LightJob(tmp_path, str(file))
    found.run()
    return found


def test_letters_are_listed_newest_first_and_page_by_page(job):
    whole, more = dead_letters(job.home, "job")
    first, after = dead_letters(job.home, "job", limit=2)
    second, last = dead_letters(job.home, "job", limit=3, after=after)

    assert [each.message for each in whole] == [f"{n} is odd" for n in (9, 7, 5, 3, 1)]
    assert more is None
    assert [*first, *second] == whole
    assert last is None
    assert {each.operator for each in whole} == {"even"}
    assert all(each.location.endswith("in even") for each in whole)
    assert dead_letters(job.home, "job", operator="other") == ([], None)


def test_letters_and_the_failures_that_a_job_counts_have_times(job):
    before_ms, after_ms = job.status.started_ms, job.status.ended_ms
    letters, _ = dead_letters(job.home, "job")
    [failure] = job.status.operators["even"].failures.values()

    assert all(before_ms <= each.time_ms <= after_ms for each in letters)
    assert before_ms <= failure.first_ms <= failure.last_ms <= after_ms


def test_a_value_is_told_on_request_only(job):
    (newest,), _ = dead_letters(job.home, "job", limit=1)

    hidden = dead_letter(job.home, "job", newest.id)
    shown = dead_letter(job.home, "job", newest.id, is_revealed=True)

    assert "value" not in hidden
    assert (shown["encoding"], shown["exception"]) == ("pickle", "ValueError")
    assert shown.items() >= hidden.items()


def test_a_letter_is_not_unpickled_to_be_shown(job):
    folder = dead_letters_folder(job.home, "job")
    (path,) = folder.glob("*.jsonl")
    letter = json.loads(path.read_text().splitlines()[0])

    class Trap:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    letter["value"] = __import__("base64").b64encode(pickle.dumps(Trap())).decode()
    (folder / "part-zzz.jsonl").write_text(json.dumps(letter) + "\n")

    (newest, *_), _ = dead_letters(job.home, "job")

    assert newest.id == "part-zzz.jsonl:1"
    assert dead_letter(job.home, "job", newest.id, is_revealed=True)["value"] == letter["value"]


def test_letters_are_found_by_name_with_one_look_at_each_file(job, monkeypatch):
    letters, _ = dead_letters(job.home, "job")
    names = [each.id for each in letters]
    opened = []
    plain = dead_letters_module._lines
    monkeypatch.setattr(
        dead_letters_module, "_lines", lambda path: opened.append(path) or plain(path)
    )

    assert chosen_letters(job.home, "job", names) == letters
    assert len(opened) == len({name.partition(":")[0] for name in names}) < len(names)
    assert chosen_letters(job.home, "job", [names[2], names[0]]) == [letters[2], letters[0]]
    with raises(DEAD_LETTER_UNKNOWN) as caught:
        chosen_letters(job.home, "job", [names[0], f"{names[0]}99"])
    assert caught.value.facts["letter"] == f"{names[0]}99"


@pytest.mark.parametrize("name", ["", "x", "x:y", "../job.json:1", "nowhere.jsonl:1", ":1"])
def test_a_name_that_is_no_letter_is_an_error(job, name):
    with raises(DEAD_LETTER_UNKNOWN):
        dead_letter(job.home, "job", name)


def test_the_commands_say_the_same(job, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(job.home.path))
    listed = json.loads(CliRunner().invoke(main, ["dlq", "list", "job", "--json"]).stdout)
    words = ["dlq", "show", "job", listed["items"][0]["id"]]
    shown = CliRunner().invoke(main, [*words, "--reveal"]).stdout
    text = CliRunner().invoke(main, ["dlq", "list", "job", "--limit", "1"]).stdout

    assert len(listed["items"]) == 5
    assert listed["next"] is None
    assert "9 is odd" in shown
    assert "value: " in shown
    assert "--after" in text
