"""Completion as a person meets it: TAB in bash and zsh, answered by the command itself."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from bicycle_runtime.cli import main
from bicycle_runtime.jobs.status import JobState
from tests.plugin_zoo.zoo import at_import, install, whole
from tests.unit.cli.screens import COMMAND, Terminal
from tests.waiting import until

TALLY = whole(
    "tally",
    """
    raise RuntimeError("completion imports nothing")

    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin


    @dataclass
    class Params:
        source: str
        since: str = ""


    @bicycle_plugin
    def job(env, params: Params) -> None:
        pass
    """,
)


@pytest.fixture
def jobs(shell, tmp_path, monkeypatch):
    """Two jobs, one of them with a savepoint, and two plugins."""
    savepoints = tmp_path / "cp/wordcount/savepoints"
    (savepoints / "before").mkdir(parents=True)
    shell.put_job("wordcount", checkpoint=str(savepoints.parent))
    shell.put_job("clicks", state=JobState.FAILED)
    site = tmp_path / "site"
    site.mkdir()
    install(site, TALLY)
    install(site, at_import("tables", "raise ValueError"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return shell


def completed(line: str) -> list[str]:
    """Return what a shell is told about the last word of a line."""
    *words, begin = line.split(" ")
    complete = ShellComplete(main, {}, "bicycle", "_BICYCLE_COMPLETE")
    return [item.value for item in complete.get_completions(words[1:], begin)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("bicycle st", ["stop", "status", "stream", "state"]),
        ("bicycle savepoint re", ["restore"]),
        ("bicycle dev kafka topics ", ["create"]),
        ("bicycle status ", ["clicks", "wordcount"]),
        ("bicycle logs --follow w", ["wordcount"]),
        ("bicycle savepoint create c", ["clicks"]),
        ("bicycle state ls --job w", ["wordcount"]),
        ("bicycle run --plugin ta", ["tables", "tally"]),
        ("bicycle plugins check tal", ["tally"]),
        ("bicycle run --plugin tally --set ", ["since=", "source="]),
        ("bicycle submit --plugin tally --set source=a --set si", ["since="]),
        ("bicycle run --plugin nothing --set ", []),
        ("bicycle run --epoch-i", ["--epoch-interval-ms"]),
        ("bicycle list --state fi", ["finished"]),
        ("bicycle completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_words_are_completed(jobs, line, found):
    assert completed(line) == found


def test_parameters_of_a_job_in_a_file_are_completed(jobs, tmp_path):
    (tmp_path / "clicks.py").write_text(
        "class Params:\n    input: str\n\n"
        "@bicycle_plugin\ndef clicks(env, params: Params) -> None: ...\n"
    )

    assert completed("bicycle run clicks.py:clicks --set ") == ["input="]
    assert completed("bicycle submit clicks.py --set input=a --set ") == ["input="]


def test_savepoints_of_local_jobs_are_completed_and_other_places_left_to_the_shell(jobs, tmp_path):
    place = str(tmp_path / "cp/wordcount/savepoints/before")
    words = ("savepoint inspect", "plan --plugin tally --from", "run --plugin tally --from")

    assert [completed(f"bicycle {each} ") for each in words] == [[place]] * 3
    (item,) = ShellComplete(main, {}, "bicycle", "").get_completions(["savepoint", "delete"], "s3")
    assert (item.type, item.value) == ("dir", "s3")


def test_nobody_is_asked_for_a_secret_while_a_line_is_completed(jobs, monkeypatch):
    monkeypatch.setattr("click.prompt", lambda *_, **__: pytest.fail("a question"))

    assert completed("bicycle run --plugin tally --set source=prompt: --na") == ["--name"]


@pytest.mark.parametrize(
    "line", ["bicycle run --plugin tally --set ", "bicycle status ", "bicycle s"]
)
def test_completing_loads_nothing_slow(jobs, line, command):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {COMMAND}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**command, **words, "_BICYCLE_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )

    *found, modules = done.stdout.splitlines()
    assert found
    slow = {"pyspark", "py4j", "rich", "pyarrow", "numpy", "packaging", "importlib_metadata"}
    assert not {*slow, "bicycle_sdk.datastream"} & set(modules.split())


@pytest.fixture
def command(jobs, tmp_path):
    """Return an environment in which `bicycle` is the command of this Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "bicycle"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{COMMAND}" "$@"\n')
    file.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    shells = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**jobs.environment, "PATH": shells, "PYTHONPATH": path, "TERM": "xterm"}


BASH = """
eval "$(bicycle completion bash)"
compopt() { echo "compopt $*"; }
ask() {
    COMP_WORDS=(bicycle "$@") COMP_CWORD=$#
    COMPREPLY=()
    $(complete -p bicycle | sed 's/.*-F \\([^ ]*\\).*/\\1/') bicycle
    echo "${COMPREPLY[*]}"
}
ask st
ask run --plugin tally --set s
ask run clicks.py --set input=cli
ask status ''
"""


def test_bash_completes(command):
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH], env=command, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [
        "stop status stream state",
        "compopt -o nospace",
        "since= source=",
        "",
        "clicks wordcount",
    ]


FISH = """
bicycle completion fish | source
complete -C "bicycle canc"
complete -C "bicycle run --plugin tally --set si"
"""


@pytest.mark.parametrize("program", [name for name in ("fish",) if shutil.which(name)])
def test_fish_completes(command, program, tmp_path):
    done = subprocess.run(
        [program, "--no-config", "-c", FISH],
        env={**command, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.split() == ["cancel", "Cancel", "a", "job", "immediately", "since="]


INTERACTIVE = {
    "bash": ("--norc --noprofile -i", ""),
    "zsh": ("-f -i", "autoload -Uz compinit && compinit -u -D && "),
}


@pytest.mark.parametrize("program", [name for name in INTERACTIVE if shutil.which(name)])
def test_a_tab_completes_the_word_before_it(command, program, tmp_path):
    words, begin = INTERACTIVE[program]
    terminal = Terminal(100)
    process = subprocess.Popen(
        [program, *words.split()], stdin=terminal, stdout=terminal, stderr=terminal,
        env={**command, "PS1": "> ", "ZDOTDIR": str(tmp_path)}, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    try:
        terminal.type(f'{begin}eval "$(bicycle completion {program})" && echo ready\n')
        until(lambda: "ready" in terminal.shown(), "the shell to take the script")
        terminal.type("bicycle canc\t")
        until(lambda: "> bicycle cancel" in terminal.shown(), "the command to be completed")
        terminal.type("word\t")
        until(lambda: "> bicycle cancel wordcount" in terminal.shown(), "the job to be completed")
    finally:
        process.kill()
        process.wait()
        terminal.end()
