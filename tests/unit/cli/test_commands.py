import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.cli.log_reading import local_pieces
from bicycle_runtime.cli.run import run_command, submit_command
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.status import (
    EndedWorker,
    JobState,
    OpenPublication,
    OperatorStatus,
    ShardLag,
    WaitingOutput,
)
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.options import describe
from tests.plugin_zoo.zoo import at_import, in_builder, install, whole
from tests.waiting import PATIENCE_S

SOURCES = [
    Path(__file__).parents[3] / folder
    for folder in ("plugin_sdk/src", "streams/src", "runtime/src")
]
COUNTING = whole(
    "counting",
    """
    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass
    class Params:
        output: str = ""


    @bicycle_plugin(name="counting", version="2.0")
    def job(env, params: Params) -> None:
        counted = env.read_text("in").uid("lines").key_by(str).count().uid("counts")
        if params.output:
            counted.sink_to(file_sink(params.output)).uid("files")
        else:
            counted.print().uid("screen")
    """,
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def names(command):
    return {name for parameter in command.params for name in parameter.opts}


@pytest.mark.parametrize("command", [run_command, submit_command], ids=lambda c: c.name)
def test_every_declared_option_has_a_flag(command):
    declared = {info.flag for cls in (JobOptions, EngineOptions) for info in describe(cls)}

    service = {"--wheel", "--lock", "--service", "--token-file", "--tls-ca"}
    own = service if command is submit_command else {"--http-port"}
    shared = {"file", "-c", "--config", "--set", "--params", "--conf", "--json", "--debug"}

    assert declared | shared | own == names(command)


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (("--parallelism", "0"), 4, "BIC-1101"),
        (("--retained-epochs", "one"), 4, "BIC-1101"),
        (("--set", "input"), 2, "BIC-2001"),
        (("--set", "a=1", "--set", "a=2"), 2, "BIC-2001"),
        (("--conf", "hadoop.x=1"), 2, "BIC-2001"),
        ((), 3, "BIC-1601"),
        (("--name", "../x"), 3, "BIC-1601"),
    ],
)
def test_a_run_that_cannot_begin_leaves_no_trace(shell, words, exit_code, code):
    found_exit_code, error = shell.error("run", "--plugin", "not-there", *words)

    assert (found_exit_code, error["code"]) == (exit_code, code)
    assert shell.answer("list") == []


def test_jobs_are_listed_newest_first_and_by_state(shell):
    assert shell.run("list").stdout == "no jobs\n"
    shell.put_job("old", started_ms=1)
    shell.put_job("new", started_ms=2, state=JobState.FAILED)

    assert [job["id"] for job in shell.answer("list")] == ["new", "old"]
    assert [job["id"] for job in shell.answer("list", "-s", "failed")] == ["new"]
    lines = shell.run("list").stdout.splitlines()
    assert lines[0].split()[:2] == ["JOB", "STATE"]
    assert lines[1].split()[:2] == ["new", "FAILED"]


def test_a_status_shows_operators_and_error(shell):
    shell.put_job(
        "job",
        state=JobState.FAILED,
        epoch=7,
        operators={"split": OperatorStatus(records_in=1_234, failed=2)},
        error={"code": "BIC-1401", "message": "boom", "fix": "correct it", "facts": {}},
    )

    text = shell.run("status", "job").stdout
    assert "split: 1,234 in, 0 out, 2 failed" in text
    assert "error: BIC-1401 boom" in text
    assert "fix: correct it" in text
    assert shell.answer("status", "job")["epoch"] == 7


def test_a_status_shows_how_far_event_time_has_come_and_what_was_late(shell):
    late = OperatorStatus(records_in=9, late=2, watermark_ms=1_000, slowest_input="clicks: b.csv")
    shell.put_job(
        "job",
        watermark_ms=2**63 - 1,
        late_dropped_count=2,
        operators={"count": late},
    )

    text = shell.run("status", "job").stdout
    assert "9 in, 0 out, 2 late, watermark 1970-01-01T00:00:01Z" in text
    assert "limited by clicks: b.csv" in text
    assert "at the end" in text
    assert "2 late records" in text


def test_a_status_shows_the_partitions_that_are_behind(shell):
    lags = {"t/0": ShardLag(records=1_200, waiting_ms=2_100), "t/1": ShardLag(records=0)}
    shell.put_job("job", lag_records=1_200, lag_ms=2_100, lags={"in": lags})

    text = shell.run("status", "job").stdout
    assert "lag        1,200 records, 2.1 s" in text
    assert "lag        t/0: 1,200 records, 2.1 s" in text
    assert "t/1" not in text
    assert shell.answer("status", "job")["lags"]["in"]["t/1"]["records"] == 0


def test_a_lag_that_nobody_tells_any_more_is_unknown_with_what_was_known_last(shell):
    lags = {"in": {"t/0": ShardLag(records=5), "t/1": ShardLag(records=2)}}
    shell.put_job("job", updated_ms=14_500, silent_sources={"in": 2_000}, lags=lags)

    text = shell.run("status", "job").stdout
    assert "lag        unknown: in has not responded for 12.5 s (7 records when last known)" in text
    assert "lag        t/0: 5 records when last known" in text
    answer = shell.answer("status", "job")
    assert (answer["lag_records"], answer["silent_sources"]) == (None, {"in": 2_000})


def test_a_lag_that_was_never_known_is_unknown(shell):
    shell.put_job("job", updated_ms=3_000, silent_sources={"in": 2_000})

    text = shell.run("status", "job").stdout
    assert "lag        unknown: in has not responded for 1.0 s\n" in text


def test_a_full_storage_is_shown_with_its_reason(shell):
    pid, now_ms = os.getpid(), SystemClock().now_ms()
    shell.put_job(
        "job", state=JobState.RUNNING, pid=pid, pid_started=start_ticks(pid), updated_ms=now_ms,
        checkpoint="/mnt/job", silent_storage_ms=now_ms - 4_000, storage_reason="BIC-1133 full",
    )  # fmt: skip

    text = shell.run("status", "job").stdout
    assert "checkpoint /mnt/job: refused since" in text
    assert "(4.0 s): BIC-1133 full" in text


def test_a_target_that_does_not_answer_and_the_fixed_part_of_epochs_are_shown(shell):
    pid, now_ms = os.getpid(), SystemClock().now_ms()
    shell.put_job(
        "job", state=JobState.RUNNING, pid=pid, pid_started=start_ticks(pid), updated_ms=now_ms,
        publication=OpenPublication(epoch=7, sink="out", since_ms=now_ms - 90_000),
        fixed_ms=9_000.0, epoch_p50_ms=20_000.0,
    )  # fmt: skip

    text = shell.run("status", "job").stdout
    assert "now        publishing epoch 7 for 1 min 30 s, sink out has not finished" in text
    assert "epochs     fixed time per epoch: 9.0 s of 20.0 s" in text
    assert shell.answer("status", "job")["publication"]["sink"] == "out"


@pytest.mark.parametrize(("age_ms", "is_shown"), [(125_000, True), (1_000, False)])
def test_a_status_that_is_old_says_so(shell, age_ms, is_shown):
    now_ms = SystemClock().now_ms()
    pid = os.getpid()
    alive = {"state": JobState.RUNNING, "pid": pid, "pid_started": start_ticks(pid)}
    shell.put_job("job", updated_ms=now_ms - age_ms, **alive)

    assert ("as of      2 min 5 s ago" in shell.run("status", "job").stdout) is is_shown


def test_a_status_shows_what_functions_counted_themselves(shell):
    metrics = {
        "counters": {"orders": 1_200},
        "gauges": {"depth": {"0": 1.0, "1": 2.5}},
        "histograms": {"size": {"count": 4, "sum": 10.0, "min": 1.0, "max": 5.0}},
    }
    shell.put_job("job", operators={"parse": OperatorStatus(metrics=metrics)})

    text = shell.run("status", "job").stdout
    assert "metric     parse: orders 1,200" in text
    assert "metric     parse: depth 1 to 2.5" in text
    assert "metric     parse: size 4 values, mean 2.5, 1 to 5" in text
    assert shell.answer("status", "job")["operators"]["parse"]["metrics"] == metrics


def test_stop_and_cancel_tell_the_last_state_of_a_job_that_has_ended(shell):
    shell.put_job("job", epoch=3)

    assert shell.run("stop", "job").stdout == "job: FINISHED, epoch 3\n"
    assert shell.answer("cancel", "job")["state"] == "FINISHED"


def test_logs_are_shown_whole_or_by_their_end(shell):
    shell.put_job("job")
    shell.home.folder("job").log_path.write_text("one\ntwo\nthree\n")

    assert shell.run("logs", "job").stdout == "one\ntwo\nthree\n"
    assert shell.run("logs", "job", "-n", "1").stdout == "three\n"
    assert shell.answer("logs", "job", "-n", "2")["lines"] == ["two", "three"]
    assert shell.run("logs", "job", "--follow").stdout == "one\ntwo\nthree\n"


def test_following_logs_shows_what_is_written_until_the_job_ends(shell):
    pid = os.getpid()
    alive = {"pid": pid, "pid_started": start_ticks(pid), "state": JobState.RUNNING}
    shell.put_job("job", **alive)
    log = shell.home.folder("job").log_path
    log.write_text("one\n")
    follower = subprocess.Popen(
        [sys.executable, "-c", "from bicycle_runtime.cli import main; main()", "logs", "job", "-f"],
        env=environment(shell.home.path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout.readline() == "one\n"
    with log.open("a") as stream:
        stream.write("two\n")
    assert follower.stdout.readline() == "two\n"
    shell.put_job("job", state=JobState.FINISHED)

    assert follower.communicate(timeout=PATIENCE_S)[0] == ""
    assert follower.returncode == 0


def test_a_letter_that_a_log_has_in_two_pieces_is_shown_whole(shell):
    shell.put_job("job", state=JobState.FINISHED)
    log = shell.home.folder("job").log_path
    log.write_text("one\n")
    text = "a" * (2**16 - 1) + "ö\n"  # A piece is 2**16 bytes.

    pieces = local_pieces(shell.home, "job", line_count=None, follow=True)
    assert next(pieces) == "one\n"
    with log.open("a", encoding="utf-8") as stream:
        stream.write(text)

    assert "".join(pieces) == text


def test_the_graph_has_three_forms(shell, site):
    install(site, COUNTING)
    words = ("graph", "--plugin", "counting", "--parallelism", "2")

    view = shell.answer(*words)
    assert view == json.loads(shell.run(*words, "--format", "json").stdout)
    assert view["stages"] == [2, 2]
    assert shell.run(*words).stdout.startswith("job counting: 4 operators in 2 chains, 2 stages")
    assert shell.run(*words, "--format", "mermaid").stdout.startswith("flowchart LR\n")


def test_the_plan_names_the_weakest_link_and_can_insist(shell, site):
    install(site, COUNTING)
    words = ("plan", "--plugin", "counting")

    assert shell.answer(*words)["weakest"]["operator"] == "screen"
    assert "weakest link: sink 'screen' (console)" in shell.run(*words).stdout
    exit_code, error = shell.error(*words, "--require", "exactly-once")
    assert (exit_code, error["code"]) == (4, "BIC-1909")
    strong = (*words, "--set", "output=out", "--require", "exactly-once")
    assert shell.answer(*strong)["guarantee"] == "exactly-once"


def test_plugins_are_listed_and_checked_and_a_broken_one_fails_the_check(shell, site):
    install(site, in_builder("good", "pass"))
    install(site, at_import("broken", "raise ValueError('oh no')"))

    listed = {plugin["name"] for plugin in shell.answer("plugins")["plugins"]}
    done = shell.run("plugins", "check", "good", "broken", "--json")
    checked = json.loads(done.stdout)
    text = shell.run("plugins", "check", "broken").stdout

    assert {"good", "broken"} <= listed
    assert (done.exit_code, checked["ok"]) == (3, ["good"])
    assert checked["failed"][0]["error"]["code"] == "BIC-1604"
    assert "oh no" in text
    assert 'broken.py", line' in text
    assert shell.run("plugins", "check", "good").exit_code == 0


def test_the_check_of_a_named_plugin_shows_its_parameters(shell, site):
    install(site, COUNTING)

    text = shell.run("plugins", "check", "counting").stdout
    assert "  --set output=…: a text; optional." in text
    [parameter] = shell.answer("plugins", "check", "counting")["parameters"]["counting"]
    assert (parameter["name"], parameter["required"]) == ("output", False)


def test_two_plugins_of_one_name_are_listed_as_refused(shell, site):
    install(site, in_builder("twin", "pass"))
    install(site, in_builder("twin", "pass"), dist="other")

    refused = shell.answer("plugins")["refused"]
    assert [item["name"] for item in refused] == ["twin"]
    assert "refused" in shell.run("plugins").stdout


def test_a_hundred_plugins_are_listed_without_loading_what_only_others_need(shell, site):
    for number in range(95):
        install(site, in_builder(f"plugin{number}", "pass"))
    for number, code in enumerate(["raise ValueError", "import sys; sys.exit(3)", "while 1: pass"]):
        install(site, at_import(f"broken{number}", code))
    install(site, at_import("killed", "import os; os.kill(os.getpid(), 9)"))
    install(site, at_import("lacking", "import not_there"))
    code = (
        "import sys; from bicycle_runtime.cli import main\n"
        "main(['plugins', '--json'], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)) if (json := sys.modules['json']) else '')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(shell.home.path, site),
        capture_output=True,
        text=True,
        check=True,
    )
    answer, modules = map(json.loads, done.stdout.splitlines())

    assert len(answer["plugins"]) >= 100
    assert not {"pyspark", "rich", "msgspec", "cloudpickle", "fsspec"} & set(modules)


def environment(home, *more):
    path = os.pathsep.join(map(str, [*more, *SOURCES]))
    return {**os.environ, "BICYCLE_HOME": str(home), "PYTHONPATH": path}


def test_a_new_project_is_made_where_asked(shell, tmp_path):
    answer = shell.answer("new", "my-job", "--dir", str(tmp_path))

    assert answer["folder"] == str(tmp_path / "my-job")
    assert "src/my_job/__init__.py" in answer["files"]
    exit_code, error = shell.error("new", "my-job", "--dir", str(tmp_path))
    assert (exit_code, error["code"]) == (4, "BIC-1911")


def test_the_doctor_lists_checks_and_fails_when_one_does(shell, tmp_path, monkeypatch):
    assert {check["name"] for check in shell.answer("doctor")["checks"]} >= {"Java", "Python"}
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    done = shell.run("doctor")
    assert done.exit_code == 6
    assert "FAIL  Java" in done.stdout
    assert "fix:" in done.stdout
    exit_code, error = shell.error("doctor")
    assert (exit_code, error["facts"]["names"]) == (6, "Java")


def test_what_is_sealed_and_not_visible_is_shown_of_jobs_that_run_and_that_ended(shell):
    waiting = {"out": WaitingOutput(records=1_200, bytes=4_096, visible_ms=1)}
    pid = os.getpid()
    shell.put_job("ended", state=JobState.CANCELED, waiting=waiting)
    shell.put_job(
        "running", state=JobState.RUNNING, pid=pid, pid_started=start_ticks(pid), waiting=waiting
    )

    text = "out: 1,200 records, 4 KiB, visible"
    assert f"{text} when the job runs again" in shell.run("status", "ended").stdout
    assert f"{text} when the job runs again" in shell.run("cancel", "ended").stdout
    assert f"{text} soon" in shell.run("status", "running").stdout


def test_status_tells_of_a_failed_job_by_its_exit_code_when_asked_to(shell):
    error = {"code": "BIC-1401", "message": "no", "fix": "none", "facts": {}}
    shell.put_job("good", state=JobState.FINISHED)
    shell.put_job("bad", state=JobState.FAILED, error=error)

    found = {
        (job, *flags): shell.run("status", job, *flags).exit_code
        for job in ("good", "bad")
        for flags in ((), ("--exit-code",), ("--exit-code", "--json"))
    }
    assert {words for words, code in found.items() if code} == {
        ("bad", "--exit-code"), ("bad", "--exit-code", "--json"),
    }  # fmt: skip
    assert set(found.values()) == {0, 1}


def test_an_exit_code_is_that_of_one_job(shell):
    exit_code, error = shell.error("status", "--exit-code")

    assert (exit_code, error["code"]) == (2, "BIC-2001")


def test_status_counts_ended_workers_and_shows_how_the_last_one_ended(shell):
    last = EndedWorker(
        time_ms=2_000, pid=71, how="signal 9 (SIGKILL)", host="two", peak_bytes=5_242_880,
        operator="parse",
    )  # fmt: skip
    shell.put_job("job", ended_worker_count=3, ended_workers=[last])

    text = shell.run("status", "job").stdout
    assert "workers    3 ended unexpectedly, the last at 1970-01-01 " in text
    assert "pid 71 on two, signal 9 (SIGKILL), 5 MiB at most, in 'parse'" in text


def test_status_tells_since_when_it_waits_for_storage(shell):
    shell.put_job(
        "job", state=JobState.RESTARTING, checkpoint="s3://bucket/job",
        updated_ms=62_000, silent_storage_ms=2_000,
        pid=os.getpid(), pid_started=start_ticks(os.getpid()),
    )  # fmt: skip

    text = shell.run("status", "job").stdout
    assert "s3://bucket/job: waiting for storage since 1970-01-01" in text
    assert "(1 min)" in text
