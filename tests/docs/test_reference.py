"""The reference is what the code says, and the docs name nothing that is not there."""

import re
import subprocess
import sys
import tomllib

import click
import pytest

from bicycle_runtime.connectors import builtin
from bicycle_sdk.errors import OptionError
from tests.docs.scripts import DOCS, PAGES, ROOT, command_words, faults_of_pages, load, name_of

COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/)?(bicycle(?: [^\n]*)?)$", re.MULTILINE)


@pytest.fixture(scope="module")
def generate():
    return load("tools/generate.py")


def test_the_reference_is_current():
    """In a process of its own, as `make docs` is: other tests change what commands know."""
    words = [sys.executable, str(ROOT / "tools/generate.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"


def test_filling_a_page_twice_changes_nothing(generate):
    for text in generate.renewed().values():
        assert generate.fill(text) == text


def test_a_block_that_nobody_generates_is_an_error(generate):
    with pytest.raises(KeyError, match="weather"):
        generate.fill("<!-- generated: weather -->\n<!-- end of weather -->")


def test_a_stale_file_is_named_and_renewed_on_demand(generate, tmp_path, monkeypatch, capsys):
    page = tmp_path / "errors.md"
    page.write_text("# Errors\n<!-- generated: errors -->\nold\n<!-- end of errors -->\n")
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)

    assert generate.main([]) == 1
    assert "errors.md" in capsys.readouterr().out
    assert generate.main(["--write"]) == 0
    assert generate.main([]) == 0
    assert OptionError.code in page.read_text()


@click.group(help="Runs jobs.")
def sample() -> None:
    """Stand for the root command."""


@sample.command("run", help="Run one job.\n\nUntil it ends.")
@click.argument("target")
@click.option("--plugin", required=True, help="Which | plugin.")
@click.option("--parallelism", default=2, help="How many.")
@click.option("--follow/--no-follow", help="Wait for more.")
@click.option("--secret", hidden=True)
def sample_run(**parameters: object) -> None:
    """Stand for a command."""


@sample.command("inner", hidden=True)
def sample_inner() -> None:
    """Stand for a command that is not for people."""


def test_every_visible_command_and_option_has_an_entry(generate):
    text = generate.command_reference(sample)

    assert "## bicycle run\n\nRun one job.\n\nUntil it ends.\n" in text
    assert "bicycle run [OPTIONS] TARGET" in text
    assert "| `--plugin` | required | Which \\| plugin. |" in text
    assert "| `--parallelism` | `2` | How many. |" in text
    assert "`--follow`, `--no-follow`" in text
    assert "--help" in text
    assert "secret" not in text
    assert "inner" not in text


def test_every_error_code_has_an_entry(generate):
    text = (DOCS / "reference/errors.md").read_text("utf-8")
    generate.import_all()

    assert [
        entry.code for _, entry in generate.catalogue() if f"### {entry.code}" not in text
    ] == []


def test_pages_name_no_error_code_that_is_gone(generate):
    generate.import_all()
    known = {entry.code for _, entry in generate.catalogue()}

    assert faults_of_pages(lambda text: set(re.findall(r"BIC-\d{4}", text)) - known) == {}


def test_every_connector_word_is_documented():
    text = (DOCS / "reference/connectors.md").read_text("utf-8")
    words = builtin.bicycle_sources().keys() | builtin.bicycle_sinks().keys()

    assert {word for word in words if f"`{word}`" not in text} == set()


def test_pages_name_only_commands_and_options_that_exist(generate):
    commands = dict(generate.walk_commands(generate.command_tree(), ("bicycle",)))

    def unknown(text: str) -> list[str]:
        return [fault for line in command_lines(text) for fault in unknown_words(line, commands)]

    assert faults_of_pages(unknown) == {}


def command_lines(text: str) -> list[str]:
    """Return the lines with a ``bicycle`` command: in code blocks and in code spans."""
    joined = text.replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", joined, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`(bicycle [^`\n]*)`", joined)
    return [line.strip() for block in blocks for line in COMMAND.findall(block)] + spans


def unknown_words(line: str, commands: dict[tuple[str, ...], click.Command]) -> list[str]:
    """Return the command or the options of a line which the command tree does not have.

    After ``--`` follows another command of bicycle, which a unit runs.
    """
    line, dashes, other = line.partition(" -- ")
    if dashes:
        return unknown_words(line, commands) + unknown_words(f"bicycle {other}", commands)
    words = [word.strip("[]…") for word in re.split(r"[\s|=]+", line)]
    path = ("bicycle",)
    while len(path) < len(words) and (*path, words[len(path)]) in commands:
        path = (*path, words[len(path)])
    command = commands[path]
    rest = words[len(path) :]
    if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        return [f"{line}: no command {rest[0]!r}"]
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    return [f"{line}: no option {w!r}" for w in rest if w.startswith("--") and w not in known]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("bicycle run --plugin x here", 0),
        ("bicycle run --plugin=x [--follow]", 0),
        ("bicycle --help", 0),
        ("bicycle fly", 1),
        ("bicycle run --wings 2 --plugin x --tail", 2),
        ("bicycle run --plugin x -- run --wings 2 --follow", 1),
    ],
)
def test_a_command_or_option_that_is_gone_is_noticed(line, count, generate):
    commands = dict(generate.walk_commands(sample, ("bicycle",)))

    assert len(unknown_words(line, commands)) == count


def test_commands_are_found_in_blocks_and_spans():
    text = "Say `bicycle list` or\n```sh\n$ bicycle run \\\n  --plugin x\nls\n```\nand a bicycle.\n"

    assert [" ".join(line.split()) for line in command_lines(text)] == [
        "bicycle run --plugin x",
        "bicycle list",
    ]


def test_links_of_pages_lead_somewhere():
    lost = {}
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        local = [target for target in targets if "://" not in target]
        lost[name_of(page)] = [each for each in local if not (page.parent / each).exists()]

    assert {page: targets for page, targets in lost.items() if targets} == {}


def test_make_targets_and_sessions_that_pages_name_exist():
    targets, sessions = command_words()

    def unknown(text: str) -> set[str]:
        wrong = set(re.findall(r"`make ([a-z-]+)`", text)) - targets
        return wrong | (set(re.findall(r"`nox -s ([a-z0-9.-]+)`", text)) - sessions)

    assert {"test-all", "crash-kafka", "lock"} <= targets
    assert sessions == {"image", "kube", "release", "tests-3.12", "tests-3.13", "tests-3.14"}
    assert faults_of_pages(unknown) == {}


def test_the_glossary_is_in_order_and_defines_each_word_once():
    text = (DOCS / "glossary.md").read_text("utf-8")
    words = [word.lower() for word in re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)]

    assert words == sorted(set(words))


def test_decision_records_are_numbered_and_tell_context_decision_and_cost():
    records = sorted((DOCS / "adr").glob("*.md"))
    numbers = [int(record.name[:4]) for record in records]

    assert len(numbers) == len(set(numbers))  # Numbers may be held for work that is under way.
    for record in records:
        headings = re.findall(r"^## (.+)$", record.read_text("utf-8"), re.MULTILINE)
        assert headings == ["Context", "Decision", "What it costs"], record.name


def test_change_fragments_are_named_by_topic_and_kind():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    name = re.compile(rf"README\.md|[a-z0-9-]+\.({kinds})\.md")
    fragments = [page.name for page in PAGES if page.parent.name == "changelog.d"]

    assert fragments
    assert [each for each in fragments if not name.fullmatch(each)] == []


def test_change_fragments_have_at_most_two_sentences():
    fragments = [
        page for page in PAGES if page.parent.name == "changelog.d" and page.name != "README.md"
    ]
    counts = {page.name: sentence_count(page.read_text("utf-8")) for page in fragments}

    assert {name: count for name, count in counts.items() if count > 2} == {}


def sentence_count(text: str) -> int:
    """Return how many sentences a text has; dots in names and numbers end none."""
    return len(re.findall(r"[.?!](?=\s|$)", text))


def test_sentences_are_counted():
    assert sentence_count("Kafka 4.2 is read by `a.b`. It works.\n") == 2
