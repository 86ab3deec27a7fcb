import json
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from bicycle_runtime import __version__
from bicycle_runtime.cli import main
from bicycle_runtime.cli.builtin import bicycle_commands
from bicycle_runtime.cli.root import RootGroup
from bicycle_sdk.errors import (
    BicycleError,
    FunctionResultError,
    ParameterError,
    StreamDefinitionError,
)
from bicycle_streams.cli.exit_codes import CODE_RANGES, MEANINGS, exit_code_of
from bicycle_streams.cli.rendering import error_text
from tests.docs.scripts import load
from tests.tidy.test_error_classes import sample_facts

REFERENCE = load("tools/generate.py")
COMMANDS = dict(REFERENCE.walk_commands(main, ("bicycle",)))
REFERENCE.import_all()
ENTRIES = [entry for _, entry in REFERENCE.catalogue()]


def run_raising(error, *words):
    """Run a command that raises, below a root of its own."""

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    @click.option("--debug", is_flag=True)
    def boom(*, as_json, debug):
        raise error

    group = RootGroup(name="bicycle", commands={"boom": boom})
    return CliRunner().invoke(group, ["boom", *words])


def test_every_command_has_a_help_text_json_and_debug():
    for path, command in COMMANDS.items():
        names = {name for parameter in command.params for name in parameter.opts}

        assert (command.help or "").strip().endswith("."), path
        if path != ("bicycle",):
            assert {"--json", "--debug"} <= names, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)


def test_the_help_shows_every_command_and_exit_code(shell):
    text = shell.run("--help").stdout

    assert all(f"  {name} " in text for name in main.commands)
    assert all(f"{code}: " in " ".join(text.split()) for code in MEANINGS)


def test_the_help_groups_commands_by_purpose_and_imports_none():
    code = (
        "import sys; from bicycle_runtime.cli import main; main(['--help'], 'bicycle', None, False)"
    )
    code += "; print(*(name for name in sys.modules if name.startswith('bicycle_runtime.cli.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, modules = done.stdout.splitlines()

    sections = list(dict.fromkeys(each["section"] for each in bicycle_commands().values()))
    assert [line.rstrip(":") for line in text if line.rstrip(":") in sections] == sections
    loaded = {name.removeprefix("bicycle_runtime.cli.") for name in modules.split()}
    modules = {each["location"].partition(":")[0] for each in bicycle_commands().values()}
    assert not loaded & {name.removeprefix("bicycle_runtime.cli.") for name in modules}


def test_the_summary_of_a_command_is_the_first_sentence_of_its_help_and_is_shown_whole(shell):
    summaries = {name: each["summary"] for name, each in bicycle_commands().items()}
    text = shell.run("--help").stdout

    assert "..." not in text.replace("[ARGS]...", "")
    for name, summary in summaries.items():
        assert COMMANDS["bicycle", *name.split()].help.startswith(f"{summary}."), name
        assert summary in (shell.run(name.split()[0], "--help").stdout if " " in name else text)


def test_the_help_of_a_group_shows_summaries_whole(shell):
    for path, command in COMMANDS.items():
        if isinstance(command, click.Group):
            assert "..." not in shell.run(*path[1:], "--help").stdout.replace("[ARGS]...", ""), path


def test_every_command_has_examples_that_it_takes(shell):
    for path, command in COMMANDS.items():
        if path == ("bicycle",):  # Its help ends with exit codes.
            continue
        examples = (command.epilog or "").splitlines()[2:]
        assert 1 <= len(examples) <= 3, path
        for example in examples:
            assert example.strip() in shell.run(*path[1:], "--help").stdout
            assert taken_by(shlex.split(example))[: len(path)] == path, example


def taken_by(words):
    """Return the command that takes these words; click refuses unknown options and arguments."""
    path, command = tuple(words[:1]), main
    rest = words[1:]
    while isinstance(command, click.Group) and rest:
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            break
        command, path, rest = found, (*path, rest[0]), rest[1:]
    context = click.Context(command, info_name=path[-1], resilient_parsing=False)
    command.make_parser(context).parse_args(list(rest))
    return path


def test_the_version_is_that_of_the_runtime(shell):
    assert __version__ in shell.run("--version").stdout


def test_every_error_has_an_exit_code_with_a_meaning():
    codes = {entry.code: exit_code_of(entry(**sample_facts(entry))) for entry in ENTRIES}

    assert {error: code for error, code in codes.items() if code not in MEANINGS or code == 0} == {}


def test_ranges_are_in_order_and_do_not_overlap():
    edges = [edge for first, last, _ in CODE_RANGES for edge in (first, last)]

    assert edges == sorted(edges)
    assert len({first for first, _, _ in CODE_RANGES}) == len(CODE_RANGES)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("BIC-1003", 4),
        ("BIC-1401", 1),
        ("BIC-1505", 5),
        ("BIC-1601", 3),
        ("BIC-1802", 6),
        ("BIC-1902", 2),
        ("BIC-2202", 6),
        ("BIC-2204", 4),
        ("BIC-2206", 1),
        ("BIC-3200", 4),
        ("BIC-3201", 6),
        ("BIC-3203", 1),
        ("BIC-3204", 3),
        ("BIC-0000", 1),
    ],
)
def test_the_exit_code_of_an_error_follows_from_its_room(code, exit_code):
    cls = BicycleError if code == "BIC-0000" else BicycleError.by_code[code]

    assert exit_code_of(cls(**{"detail": "", **sample_facts(cls)})) == exit_code


def test_an_error_is_shown_with_code_first_and_fix_last(shell):
    done = shell.run("status", "nobody")

    assert done.exit_code == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: BIC-1902 ")
    assert lines[-1].startswith("  fix: ")
    assert "Traceback" not in done.stderr


def test_an_error_of_several_tasks_is_shown_once_with_their_number():
    cls = BicycleError.by_code["BIC-1401"]
    text = error_text(cls(**sample_facts(cls), task_count=3))

    assert text.count(cls.code) == 1
    assert "in 3 tasks" in text
    assert "tasks" not in error_text(cls(**sample_facts(cls), task_count=1))


def test_an_error_in_the_users_code_is_shown_with_its_place_once():
    wrong_call = StreamDefinitionError(call="uid", problem="no", hint="check", location="job.py:7")
    raised = BicycleError.by_code["BIC-1401"]
    text = error_text(raised(**{**sample_facts(raised), "location": "job.py:7"}))
    parameter = ParameterError(
        name="n", plugin="p", problem="missing", hint="give it", location="job.py:7"
    )

    assert error_text(wrong_call).splitlines()[1] == "  at job.py:7"
    assert text.count("job.py:7") == 1
    assert "job.py" not in error_text(parameter)


def test_an_error_with_a_record_is_shown_with_its_position_once():
    facts = {"function": "split of 'parts'", "found": "NoneType", "position": "line 7 of a.txt"}
    raised = BicycleError.by_code["BIC-1401"]

    lines = error_text(FunctionResultError(**facts)).splitlines()
    assert lines[1] == "  on the record from line 7 of a.txt"
    assert error_text(raised(**sample_facts(raised))).count("some position") == 1


def test_an_error_of_a_plugin_shows_its_traceback_and_what_it_printed_last():
    ended = BicycleError.by_code["BIC-1605"]
    raised = BicycleError.by_code["BIC-1604"]
    left = {"traceback": ['  File "job.py", line 7'], "stderr_tail": ["no licence"]}
    ended_text = error_text(ended(**{**sample_facts(ended), **left}))
    raised_text = error_text(raised(**{**sample_facts(raised), **left}))

    assert [line.strip() for line in ended_text.splitlines()[1:-1]] == [
        'File "job.py", line 7', "last output:", "no licence"
    ]  # fmt: skip
    assert [line.strip() for line in raised_text.splitlines()[1:-1]] == ['File "job.py", line 7']


def test_with_json_an_error_is_one_document(shell):
    exit_code, error = shell.error("status", "nobody")

    assert exit_code == 2
    assert error.keys() == {"code", "message", "fix", "facts"}
    assert error["facts"]["job"] == "nobody"


def test_wrong_words_are_a_document_too_and_a_usage_otherwise(shell):
    exit_code, error = shell.error("run", "--plugin", "x", "--wings")

    assert (exit_code, error["code"]) == (2, "BIC-2001")
    plain = shell.run("run", "--plugin", "x", "--wings")
    assert plain.exit_code == 2
    assert "Usage: bicycle run" in plain.stderr
    assert shell.run("fly").exit_code == 2


def test_a_bug_is_told_as_one_and_its_traceback_only_on_demand():
    quiet = run_raising(ZeroDivisionError("oh"))
    loud = run_raising(ZeroDivisionError("oh"), "--debug")
    error = json.loads(run_raising(ZeroDivisionError("oh"), "--json").stdout)

    assert (quiet.exit_code, error["code"]) == (1, "BIC-2099")
    assert error["facts"]["exception"] == "ZeroDivisionError"
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


def test_an_interrupted_command_ends_with_130():
    assert run_raising(KeyboardInterrupt()).exit_code == 130


def test_letters_that_a_terminal_lacks_are_escaped_and_end_nothing():
    @click.command()
    def show():
        click.echo("a → b")

    group = RootGroup(name="bicycle", commands={"show": show})
    done = CliRunner(charset="latin-1").invoke(group, ["show"])

    assert (done.exit_code, done.stdout) == (0, "a \\u2192 b\n")
