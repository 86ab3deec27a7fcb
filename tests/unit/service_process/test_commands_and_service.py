"""Commands with a service and without one: the same words, the same objects, the same errors."""

import json
import os
import signal

import pytest
from click.testing import CliRunner

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.recovery.history import EpochHistory
from tests.unit.jobs.job_samples import put_job
from tests.unit.jobs.running.light_jobs import LETTERS, LightJob
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until


class Commands:
    """Runs a command by the service, and by the files of the same jobs."""

    def __init__(self, root, served):
        self.root = root
        self.served = served
        files = root / "files"
        files.mkdir()
        (files / "jobs").symlink_to(served.home.path / "jobs")
        self.files = files

    def run(self, *words, by_service, **variables):
        home = {"BICYCLE_HOME": str(self.files)}
        there = {"BICYCLE_SERVICE": self.served.url} if by_service else {}
        return CliRunner().invoke(main, [*words, "--json"], env={**home, **there, **variables})

    def both(self, *words):
        """Return exit code and document, after both ways were compared in nothing but facts."""
        answers = [self.run(*words, by_service=way) for way in (True, False)]
        home = str(self.served.home.path)  # The same jobs, and another name of their folder.
        plain = [json.loads(answer.stdout.replace(str(self.files), home)) for answer in answers]
        if answers[0].exit_code:
            for each in plain:
                each.pop("facts")
        assert plain[0] == plain[1], words
        assert answers[0].exit_code == answers[1].exit_code
        return answers[0].exit_code, plain[0]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    file = root / "letters.py"
    file.write_text(LETTERS)
    LightJob(root, str(file)).run()
    home = Home(root / "home")
    put_job(home, "failed", state=JobState.FAILED, error={
        "code": "BIC-1234", "message": "no", "fix": "yes", "facts": {}}, started_ms=3)  # fmt: skip
    put_job(home, "alive", is_ours=True, started_ms=2)
    home.folder("job").log_path.write_bytes("eins\nzw\u00f6lf\nno end".encode())
    served = Served(root / "home").start()
    found = Commands(root, served)
    saved = found.run("savepoint", "create", "job", "--name", "one", by_service=True)
    assert saved.exit_code == 0, saved.output
    yield found
    served.end(signal.SIGKILL)


@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["list", "--state", "failed"], ["status", "job"], ["status", "failed"],
        ["logs", "job"], ["logs", "job", "-n", "2"], ["logs", "job", "-n", "0"],
        ["logs", "job", "--follow"], ["logs", "job", "-n", "900"], ["logs", "failed"],
        ["dlq", "list", "job"], ["dlq", "list", "job", "--limit", "2", "--operator", "even"],
        ["savepoint", "list", "job"], ["savepoint", "list"], ["metrics", "job"],
        ["stream", "graph"],
        ["stop", "job"], ["stop", "job", "--drain"], ["drain", "job"], ["cancel", "job"],
        ["info", "job"], ["info", "failed"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_answers_the_same_object_with_a_service_and_without(commands, words):
    code, answer = commands.both(*words)

    assert code == 0
    assert answer


@pytest.mark.parametrize("words", [["drain"], ["stop", "--drain"]], ids=" ".join)
def test_a_drain_is_one_operation_of_the_service(commands, words):
    done = commands.run(*words, "job", by_service=True)

    [asked] = commands.served.get("/api/v1/operations?limit=1")["items"]
    assert (done.exit_code, asked["kind"], asked["state"]) == (0, words[0], "done")
    assert asked["facts"].get("drain") is (True if words[1:] else None)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["status", "nobody"], "BIC-1902"), (["status", "no body/ä"], None),
        (["logs", "nobody"], "BIC-1902"), (["stop", "nobody"], "BIC-1902"),
        (["info", "nobody"], "BIC-1902"), (["drain", "nobody"], "BIC-1902"),
        (["metrics", "nobody"], "BIC-1902"), (["rescale", "nobody", "--parallelism", "2"], None),
        (["dlq", "show", "job", "x"], "BIC-1943"), (["dlq", "list", "nobody"], "BIC-1902"),
        (["savepoint", "create", "job", "--name", "a/b"], "BIC-1101"),
    ],
)  # fmt: skip
def test_an_error_has_the_same_code_message_fix_and_exit_code(commands, words, error):
    if error is None:
        answers = [commands.run(*words, by_service=way) for way in (True, False)]
        assert all(answer.exit_code for answer in answers)
        return
    code, told = commands.both(*words)

    assert (told["code"], bool(told["fix"])) == (error, True)
    assert code


def test_a_savepoint_is_looked_into_and_removed_by_both(commands):
    inspected, removed = [], []
    for way in (True, False):
        made = commands.run("savepoint", "create", "job", "--name", "other", by_service=True)
        assert made.exit_code == 0, made.output
        words = ("savepoint", "inspect", "one", "--job", "job", "--verify")
        found = json.loads(commands.run(*words, by_service=way).stdout)
        assert found["checkpoint"].pop("age_ms") > 0
        inspected.append(found)
        words = ("savepoint", "delete", "other", "--job", "job")
        removed.append(json.loads(commands.run(*words, by_service=way).stdout))
        text = CliRunner().invoke(
            main, ["savepoint", "inspect", "one", "--job", "job"],
            env={"BICYCLE_HOME": str(commands.files),
                 "BICYCLE_SERVICE": commands.served.url if way else ""},
        )  # fmt: skip
        assert "savepoint one in " in text.output
    code, told = commands.both("savepoint", "inspect", "other", "--job", "job")

    assert inspected[0] == inspected[1]
    assert inspected[0]["is_verified"]
    assert removed[0] == removed[1]
    assert (bool(code), told["code"]) == (True, "BIC-1530")


def test_a_savepoint_is_restored_by_both_once_and_the_job_goes_on_there(commands, tmp_path):
    url = json.loads(commands.run("savepoint", "list", "job", by_service=True).stdout)[0]["url"]
    answers, again = [], []
    for way in (True, False):
        words = ("savepoint", "restore", url, "--name", "other", "--checkpoint-dir")
        place = str(tmp_path / str(way))
        # The home of the files has no key of its own: to it the savepoint is a foreign one.
        answers.append(json.loads(commands.run(*words, place, "--trust", by_service=way).stdout))
        again.append(json.loads(commands.run(*words, place, "--trust", by_service=way).stdout))

    for way, answer in zip((True, False), answers, strict=True):
        assert answer["url"] == str(tmp_path / str(way) / "other")
        assert (answer["job"], answer["epoch"], answer["origin"]) == ("other", 2, url)
        assert EpochHistory(LocalStorage(answer["url"])).epochs() == [2]
    assert {each["code"] for each in again} == {"BIC-1528"}
    refused = commands.run(
        "savepoint", "restore", url, "--name", "a/b", "--checkpoint-dir", str(tmp_path),
        by_service=True,
    )  # fmt: skip
    assert json.loads(refused.stdout)["code"] == "BIC-1101"


def test_a_dead_letter_is_revealed_by_both_and_the_service_notes_who_looked(commands):
    _, listed = commands.both("dlq", "list", "job")
    letter = listed["items"][0]["id"]
    _, hidden = commands.both("dlq", "show", "job", letter)
    _, shown = commands.both("dlq", "show", "job", letter, "--reveal")

    assert "value" not in hidden
    assert shown["value"]
    audit = commands.served.get("/api/v1/audit?limit=500")["items"]
    seen = [each for each in audit if each["action"] == "reveal"]
    assert [(each["target"], each["facts"]) for each in seen] == [("job", {"letter": letter})]


def test_processes_and_totals_are_told_by_both(commands):
    rows = [commands.run("workers", by_service=way) for way in (True, False)]
    totals = [
        commands.run(word, by_service=way) for word in ("info", "status") for way in (True, False)
    ]

    by_service, by_files = (json.loads(each.stdout)["items"] for each in rows)
    assert [each["worker_id"] for each in by_service] == ["alive"]
    assert [each.keys() for each in by_service] == [each.keys() for each in by_files]
    assert os.getpid() in {process["pid"] for process in by_service[0]["processes"]}
    found = [json.loads(each.stdout) for each in totals]
    own = ("home", "started_ms", "uptime_ms")
    plain = [{k: v for k, v in each.items() if k not in own} for each in found]
    assert plain == [plain[0]] * 4
    assert [each["uptime_ms"] is None for each in found] == [False, True] * 2


def test_people_read_figures_processes_and_totals(commands):
    runs = {
        words: CliRunner().invoke(main, [words], env={"BICYCLE_HOME": str(commands.files)}).output
        for words in ("metrics", "workers", "info")
    }

    assert 'bicycle_operator_errors_total{job="job",operator="even"} 5' in runs["metrics"]
    assert "driver" in runs["workers"]
    assert "service    none" in runs["info"]
    assert "1 FAILED" in runs["info"]


def test_a_running_job_is_saved_rescaled_and_stopped_through_a_service(tmp_path):
    process = light_process.start(tmp_path, "ada bob ada\n")
    served = Served(tmp_path / "home").start()
    commands = Commands(tmp_path, served)
    try:
        until(lambda: _is_begun(commands), "the job")
        made = [
            json.loads(commands.run("savepoint", "create", "job", "--name", name,
                                    by_service=name == "a").stdout)
            for name in ("a", "b")
        ]  # fmt: skip
        scaled = [
            json.loads(commands.run("rescale", "job", "--parallelism", width,
                                    by_service=width == "2").stdout)
            for width in ("2", "1")
        ]  # fmt: skip
        stopped = json.loads(commands.run("stop", "job", "--savepoint", "--name", "last",
                                          by_service=True).stdout)  # fmt: skip
        process.wait(PATIENCE_S)
        _, status = commands.both("status", "job")
        _, saved = commands.both("savepoint", "list", "job")
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        served.end(signal.SIGKILL)

    assert [each["name"] for each in made] == ["a", "b"]
    assert made[0].keys() == made[1].keys()
    assert scaled[0].keys() == scaled[1].keys()
    assert scaled[0]["new"] == scaled[1]["old"]
    assert {name: value for name, value in stopped.items() if name != "savepoint"} == status
    assert stopped["savepoint"]["name"] == "last"
    assert {each["name"] for each in saved} == {"a", "b", "last"}


def _is_begun(commands):
    found = commands.run("status", "job", by_service=True)
    return found.exit_code == 0 and json.loads(found.stdout)["has_begun"]


def test_the_service_of_a_home_is_asked_where_it_lets_commands_in(commands):
    home = {"BICYCLE_HOME": str(commands.served.home.path)}

    found = json.loads(CliRunner().invoke(main, ["info", "--json"], env=home).stdout)

    assert found["uptime_ms"] is not None


def test_a_token_comes_from_the_environment_or_a_file(tmp_path):
    home = Home(tmp_path / "home")
    put_job(home, "job", state=JobState.FINISHED)
    made = CliRunner().invoke(
        main, ["token", "create", "ada", "--role", "viewer", "--json"],
        env={"BICYCLE_HOME": str(home.path)},
    )  # fmt: skip
    token = json.loads(made.stdout)["token"]
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "none").write_text("")
    served = Served(home.path, needs_login=True).start()
    commands = Commands(tmp_path, served)
    try:
        nobody = commands.run("list", by_service=True)
        wrong = commands.run("list", by_service=True, BICYCLE_TOKEN="bic_x_y")
        ada = commands.run("list", by_service=True, BICYCLE_TOKEN=token)
        file = commands.run("list", "--token-file", str(tmp_path / "token"), by_service=True)
        empty = commands.run("list", "--token-file", str(tmp_path / "none"), by_service=True)
        low = commands.run("stop", "job", by_service=True, BICYCLE_TOKEN=token)
        own = CliRunner().invoke(main, ["info", "--json"], env={"BICYCLE_HOME": str(home.path)})
    finally:
        served.end(signal.SIGKILL)

    codes = [json.loads(each.stdout)["code"] for each in (nobody, wrong, empty, low)]
    assert codes == ["BIC-2320", "BIC-2321", "BIC-2013", "BIC-2322"]
    assert json.loads(ada.stdout) == json.loads(file.stdout)
    assert json.loads(ada.stdout)[0]["id"] == "job"
    assert json.loads(own.stdout)["uptime_ms"] is None  # Files of one's own need no token.


def test_a_service_with_tls_is_asked_with_its_certificate(tmp_path, certificates):
    cert, key = (str(certificates / f"service.{end}") for end in ("pem", "key"))
    served = Served(tmp_path / "home", tls_cert=cert, tls_key=key).start()
    commands = Commands(tmp_path, served)
    try:
        known = commands.run("list", "--tls-ca", cert, by_service=True)
        unknown = commands.run("list", by_service=True)
    finally:
        served.end(signal.SIGKILL)

    assert json.loads(known.stdout) == []
    assert json.loads(unknown.stdout)["code"] == "BIC-2010"
    assert "CERTIFICATE_VERIFY_FAILED" in json.loads(unknown.stdout)["message"]


@pytest.mark.parametrize(
    ("url", "token", "code"),
    [
        ("localhost:9000", "", "BIC-2011"), ("ftp://a", "", "BIC-2011"),
        ("http://", "", "BIC-2011"), ("http://127.0.0.1:9", "", "BIC-2010"),
        ("http://jobs.example:9000", "bic_a_b", "BIC-2012"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_or_would_give_the_token_away_is_refused(
    tmp_path, url, token, code
):
    done = CliRunner().invoke(
        main, ["list", "--service", url, "--json"],
        env={"BICYCLE_HOME": str(tmp_path), "BICYCLE_TOKEN": token},
    )  # fmt: skip

    assert json.loads(done.stdout)["code"] == code
    assert done.exit_code == 2


def test_a_job_is_submitted_where_a_service_is_named(commands):
    words = ["submit", "--plugin", "nothing_of_this_name", "--set", "a=b"]

    refused = commands.run(*words, by_service=True)

    assert refused.exit_code
    asked = commands.served.get("/api/v1/operations?limit=1")["items"][0]
    assert (asked["kind"], asked["state"]) == ("submit", "failed")
    assert asked["error"]["code"] == json.loads(refused.stdout)["code"]
