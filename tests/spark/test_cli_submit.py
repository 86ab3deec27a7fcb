"""Jobs in processes of their own: submit, look at, stop, cancel."""

import json
import os

import pytest

from tests.plugin_zoo.zoo import install, whole
from tests.spark.cli_process import (
    Bicycle,
    counts_in,
    expected_counts,
    java_children,
)
from tests.waiting import until

pytestmark = pytest.mark.spark

POISONED = whole(
    "poisoned",
    """
    from dataclasses import dataclass

    from bicycle_sdk import AsyncFunction, bicycle_plugin


    class Fail(AsyncFunction[int, int]):
        def __init__(self, place):
            self.place = place

        def open(self, ctx):
            if self.place == "open":
                raise ConnectionError("no database")

        def process(self, value, ctx):
            raise ValueError(value)


    @dataclass(frozen=True, kw_only=True)
    class Params:
        place: str


    @bicycle_plugin(name="poisoned", version="1.0")
    def job(env, params: Params):
        failing = env.from_collection([1]).uid("in").process(Fail(params.place)).uid("fail")
        failing.print().uid("out")
    """,
)


@pytest.fixture(scope="module")
def bicycle(tmp_path_factory, spark_cache):
    place = tmp_path_factory.mktemp("cli-submit")
    bicycle = Bicycle(place / "home", place / "site", spark_cache)
    yield bicycle
    bicycle.kill_jobs()


def words(folder, name, *more):
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    place = ("--checkpoint-dir", str(folder / "checkpoints"), "--name", name)
    return ["submit", "--plugin", "wordcount", *settings, *place, *more]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_submitted_job_can_be_listed_followed_and_stopped(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a b a\n")
    submitted = bicycle.run(*words(tmp_path, "followed", "--follow"))
    assert (submitted.returncode, submitted.stdout) == (0, "followed\n"), submitted.stderr

    bicycle.wait_until("followed", lambda status: status["record_count"] == 1)
    with source.open("a") as stream:
        stream.write("b c\n")
    bicycle.wait_until("followed", lambda status: status["record_count"] == 2)
    listed = bicycle.answer("list", "--state", "running")
    again = bicycle.run(*words(tmp_path, "followed"), "--json")
    stopped = bicycle.answer("stop", "followed")
    log = bicycle.answer("logs", "followed")

    assert [job["id"] for job in listed] == ["followed"]
    assert again.returncode == 5
    assert json.loads(again.stdout)["facts"]["job"] == "followed"
    assert stopped["state"] == "STOPPED"
    assert any("job_started" in line for line in log["lines"])
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
    assert bicycle.answer("stop", "followed") == stopped

    refused = bicycle.run(*words(tmp_path, "followed"), "--set", "inptu=x")
    assert refused.returncode == 4, refused.stderr
    [listed] = [job for job in bicycle.answer("list") if job["id"] == "followed"]
    assert listed == bicycle.answer("status", "followed", "--exit-code") == stopped


def test_a_canceled_job_is_gone_with_its_java_and_continues_when_submitted_again(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("x y x\n")
    bicycle.answer(*words(tmp_path, "canceled", "--follow"))
    status = bicycle.wait_until("canceled", lambda status: status["record_count"] == 1)
    java = java_children(status["pid"])
    canceled = bicycle.answer("cancel", "canceled")

    assert java == [status["java_pid"]]
    assert canceled["state"] == "CANCELED"
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
    assert canceled["waiting"] == {}
    until(lambda: all(map(is_gone, [status["pid"], *java])), "the end of all")

    bicycle.answer(*words(tmp_path, "canceled"))
    bicycle.wait_until("canceled", lambda status: status["state"] == "FINISHED")

    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())


def test_a_stopped_job_is_resumed_from_any_directory_and_reads_no_record_twice(
    bicycle, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in.txt"
    source.write_text("x y x\n")
    settings = ("--set", "input=in.txt", "--set", "output=out", "--checkpoint-dir", "checkpoints")
    bicycle.answer("submit", "--plugin", "wordcount", *settings, "--name", "resumed", "--follow")
    bicycle.wait_until("resumed", lambda status: status["record_count"] == 1)
    while_running = bicycle.run("resume", "resumed", "--json")
    bicycle.answer("stop", "resumed")
    with source.open("a") as stream:
        stream.write("x z\n")
    monkeypatch.chdir("/")
    resumed = bicycle.answer("resume", "resumed")
    bicycle.wait_until("resumed", lambda status: status["event_count"] == 2)
    bicycle.answer("stop", "resumed")

    assert (while_running.returncode, json.loads(while_running.stdout)["code"]) == (5, "BIC-1901")
    assert resumed["state"] == "RUNNING"
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())


def test_a_job_that_cannot_start_fails_at_once_with_its_own_error(bicycle, tmp_path):
    failed = bicycle.run(*words(tmp_path, "missing"), "--json")

    assert failed.returncode == 4
    assert json.loads(failed.stdout)["code"] == "BIC-1710"
    assert bicycle.answer("status", "missing")["state"] == "FAILED"


@pytest.fixture(scope="module")
def poisoned(bicycle):
    return install(bicycle.site, POISONED)


@pytest.mark.extended
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("where", "code"), [("open", "BIC-1402"), ("record", "BIC-1401")])
def test_a_job_that_fails_in_open_or_at_its_first_record_is_an_error_of_submit(
    bicycle, tmp_path, where, code
):
    place = ("--checkpoint-dir", str(tmp_path), "--restart-attempts", "1")
    place = (*place, "--set", f"place={where}")
    failed = bicycle.run("submit", "--plugin", "poisoned", *place, "--json")

    assert failed.returncode == 1, failed.stderr
    assert json.loads(failed.stdout)["code"] == code
    job = json.loads(failed.stdout)["facts"].get("job", "poisoned")
    assert bicycle.run("status", job, "--exit-code").returncode == 1
