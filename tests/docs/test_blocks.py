"""Every code block of the pages is run, parsed, or read by the command that it names."""

import configparser
import inspect
import json
import re
import shlex
import tomllib

import click
import pytest

import bicycle_sdk
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.testing import Harness
from bicycle_sdk import DataStream, KeyedStream, WindowedStream
from tests.docs import scripts
from tests.docs.scripts import DOCS, PAGES, ROOT, command_words, load, name_of

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# How a block of each language is checked. What is shown, and not typed, has no language or `text`.
# `py`, `hex`, `html`, `jsonl`, `slt`, `sql` and `yaml` are on few pages, whose test runs them; so
# is `python file=…`.
LANGUAGES = {
    "",
    "console",
    "hex",
    "html",
    "ini",
    "json",
    "jsonl",
    "py",
    "python",
    "sh",
    "slt",
    "sql",
    "text",
    "toml",
    "yaml",
}
# Arguments that stand for something: no program can read them.
PLACEHOLDER = re.compile(r"…|\.\.\.|^[A-Z]+$|\$\(|<")
# Files of pages are not there; that an option takes a file is seen by the message itself.
MISSING_FILE = re.compile(r"(File|Directory) '.*' does not exist")
SHELL = re.compile(r"^(?:\$ )?(?:[\w./-]*/)?bicycle (?P<words>[^\n#>|&]*)", re.MULTILINE)


def blocks(language: str) -> dict[str, list[str]]:
    """Return the blocks of a language by the name of their page."""
    found = {}
    for page in PAGES:
        texts = [
            text
            for tag, rest, text in FENCE.findall(page.read_text("utf-8"))
            if tag == language and not rest.strip()
        ]
        if texts:
            found[name_of(page)] = texts
    return found


# The page about connectors has files of a package; tests/contract builds and tries it.
PROGRAMS = sorted(
    blocks("python").keys()
    - {
        "docs/how-to/testing-a-connector.md",
        "docs/how-to/writing-a-connector.md",
    }
)


@pytest.fixture
def page_module(request, tmp_path, monkeypatch):
    """Import the Python blocks of a page, one behind the other, as a module."""
    name = re.sub(r"\W", "_", request.param)
    text = (ROOT / request.param).read_text("utf-8")
    with scripts.page_module(text, name, tmp_path, monkeypatch) as module:
        yield module


@pytest.mark.parametrize("page_module", PROGRAMS, indirect=True)
def test_the_program_of_a_page_runs_and_its_tests_pass(page_module):
    functions = [f for name, f in vars(page_module).items() if name.startswith("test_")]

    assert [f.__name__ for f in functions if inspect.signature(f).parameters] == []
    for function in functions:
        function()


def test_every_block_says_a_language_that_is_checked():
    unknown = {
        name_of(page): tag
        for page in PAGES
        for tag, _, _ in FENCE.findall(page.read_text("utf-8"))
        if tag not in LANGUAGES
    }

    assert unknown == {}


@pytest.mark.parametrize(("language", "read"), [("toml", tomllib.loads), ("json", json.loads)])
def test_settings_can_be_read(language, read):
    for texts in blocks(language).values():
        for text in texts:
            read(text)


def test_the_unit_of_the_service_runs_a_command_that_exists():
    [[text]] = blocks("ini").values()
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(text)

    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/bicycle")
    assert fault_of(shlex.join(words)) is None


def shell_lines() -> list[tuple[str, str]]:
    """Return page and words of each `bicycle` command that somebody can type as it stands."""
    return [
        (page, match["words"].strip())
        for language in ("sh", "console", "")
        for page, texts in blocks(language).items()
        if page != "docs/reference/cli.md"  # It is made of the commands, and shows their usage.
        for text in texts
        for match in SHELL.finditer(text.replace("\\\n", " "))
    ]


def fault_of(line: str) -> str | None:
    """Return why the command line refuses words; None when it does not. Nothing is run."""
    words = shlex.split(line)
    root = command = load("tools/generate.py").command_tree()
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            break
        command = found
        del words[0]
    try:
        # Settings of the root go to all commands.
        command.make_context("bicycle", words, **root.context_settings)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        message = error.format_message()
        return None if MISSING_FILE.search(message) else message
    return None


def test_commands_are_what_the_command_line_takes():
    typed = [
        (page, line)
        for page, line in shell_lines()
        if not any(PLACEHOLDER.search(word) for word in line.split())
    ]

    assert len(typed) > 60
    assert [(page, line, fault) for page, line in typed if (fault := fault_of(line))] == []


@pytest.mark.parametrize(
    "line", ["run --plugin", "savepoint restore here", "rescale shop --wings 2"]
)
def test_a_command_that_lacks_something_is_noticed(line):
    assert fault_of(line)


def test_targets_that_are_typed_exist():
    targets, sessions = command_words()
    typed = [text for texts in blocks("sh").values() for text in texts]
    words = {word for text in typed for word in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)}

    assert words
    assert words <= targets
    assert "docs-tests" in targets
    assert "release" in sessions


def test_figures_to_watch_are_keys_of_the_status():
    text = (DOCS / "how-to/monitor.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", text, re.MULTILINE)
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}

    assert len(keys) > 10
    assert keys <= set(JobStatus.__struct_fields__)
    assert {"skew", "hot_keys", "slowest_input"} <= set(OperatorStatus.__struct_fields__)


@pytest.mark.parametrize("page_module", ["docs/how-to/monitor.md"], indirect=True)
def test_the_figures_of_a_status_become_lines(page_module):
    job = JobStatus(id="shop", job="shop", plugin="shop", lag_ms=7)

    assert page_module.metrics([job.to_json()]).splitlines() == [
        'bicycle_is_running{job="shop"} 0',
        'bicycle_lag_ms{job="shop"} 7',
        'bicycle_records_per_second{job="shop"} 0.0',
        'bicycle_restart_count{job="shop"} 0',
        'bicycle_late_dropped_count{job="shop"} 0',
    ]


@pytest.mark.parametrize("page_module", ["docs/tutorial/first-hour.md"], indirect=True)
def test_the_job_of_the_first_hour_counts_on_in_a_longer_file(page_module, tmp_path):
    text = (DOCS / "tutorial/first-hour.md").read_text("utf-8")
    path = tmp_path / "visits.csv"
    path.write_text(re.search(r"```text\n(.*?)```", text, re.DOTALL)[1], "utf-8")
    params = page_module.VisitParams(input=str(path), output=str(tmp_path / "out"))
    with Harness(lambda env: page_module.visits(env, params)) as harness:
        harness.run()

        assert sorted(harness.results("out")) == ["ada /home 1", "ada /home 2", "bob /cart 1"]


def test_terms_of_bicycle_are_there():
    text = (DOCS / "explanation/coming-from.md").read_text("utf-8")
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("|")]
    names = [name for cell in cells for name in re.findall(r"`([.\w]+)`", cell)]
    places = (bicycle_sdk, DataStream, KeyedStream, WindowedStream, bicycle_sdk.StreamEnvironment)
    elsewhere = {"Harness", "FunctionHarness", "ctx"}
    owners = (*places, bicycle_sdk.SinkStream, bicycle_sdk.IterativeStream)

    assert len(names) > 40
    assert [
        n for n in names if n not in elsewhere and not any(hasattr(o, n.strip(".")) for o in owners)
    ] == []
