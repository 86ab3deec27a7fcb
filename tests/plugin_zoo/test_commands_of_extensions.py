"""Commands of installed distributions, in a process of their own."""

import json
import subprocess
import sys

import pytest

from tests.plugin_zoo.extensions import bicycle, install_extension, install_page


@pytest.fixture
def site(tmp_path):
    """An installation with the distribution of the page."""
    install_page(tmp_path / "site")
    return tmp_path / "site"


def offer(name, **changed):
    """Return the source of a module that offers one command."""
    facts = {"location": "other:other_command", "summary": "Do something else", **changed}
    return f"def bicycle_commands():\n    return {{{name!r}: {facts!r}}}\n"


def test_a_command_of_a_distribution_is_listed_and_works(site):
    text = bicycle(site, "--help").stdout
    done = bicycle(site, "tide", "Dover")

    assert "Harbor:\n  tide         Show the next high tide of a harbor\n" in text
    assert text.index("Maintain:") < text.index("Harbor:")
    assert (done.returncode, done.stdout) == (0, "Dover: 14:05\n")
    assert "Usage: bicycle tide [OPTIONS] HARBOR" in bicycle(site, "tide", "--help").stdout


def test_a_distribution_adds_a_command_to_a_built_in_group(site):
    install_extension(
        site,
        {"high.py": offer("stream tide", location="tide_tables.commands:tide_command")},
        name="high-tide", points={"high": "high"},
    )  # fmt: skip

    words = bicycle(site, "stream", "--help").stdout.split()
    assert "tide Show the next high tide of a harbor" in " ".join(words)
    assert bicycle(site, "stream", "tide", "Dover").stdout == "Dover: 14:05\n"
    assert "stream tide" not in bicycle(site, "--help").stdout


def test_the_list_of_commands_imports_the_extension_and_none_of_its_commands(site):
    code = "import sys; from bicycle_runtime.cli import main; main(['--help'], 'b', None, False)"
    code += "; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(site)},
    ).stdout.splitlines()[-1].split()  # fmt: skip

    assert "tide_tables" in loaded
    assert not {"tide_tables.commands", "pluggy", "importlib.metadata", "msgspec", "pathlib"} & set(
        loaded
    )


def test_a_built_in_command_does_not_load_extensions(site):
    install_extension(
        site, {"bad.py": "raise SystemExit('loaded')"}, name="bad", points={"bad": "bad"}
    )

    assert bicycle(site, "list", "--help").returncode == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (
            offer("run"),
            "the name 'run' is already used by bicycle-runtime",
        ),
        (offer("Tide Two"), "'Tide Two' is not a name of a command"),
        (offer("harbor tide"), "'harbor tide': no group 'harbor' of commands is built in"),
        (offer("stream graph"), "the name 'stream graph' is already used by bicycle-runtime"),
        (offer("other", location="other"), "location must be 'module:name', got 'other'"),
        (offer("other", summary=""), "summary must be one line, got ''"),
        (offer("other", group="x"), "unknown key 'group', use location, summary, section"),
        (
            "def bicycle_commands():\n    return {'other': 'other:command'}",
            "is not a dict of texts",
        ),
        ("def bicycle_commands():\n    return None", "AttributeError"),
    ],
)
def test_a_faulty_extension_is_listed_with_its_distribution_and_stops_no_other(
    site, source, reason
):
    install_extension(
        site, {"rocks.py": source}, name="harbor-rocks", points={"rock": "rocks"}, version="2.1"
    )
    text = bicycle(site, "--help").stdout
    unknown = bicycle(site, "other", "--json")

    failed = text.partition("Extensions that failed to load:")[2].partition("Exit codes")[0]
    assert "extension rock of harbor-rocks 2.1: " in " ".join(failed.split())
    assert reason in " ".join(failed.split())
    assert bicycle(site, "tide", "Dover").returncode == 0
    error = json.loads(unknown.stdout)
    assert (unknown.returncode, error["code"]) == (2, "BIC-2017")
    assert "'other' not found" in error["message"]
    assert "harbor-rocks 2.1" in error["message"]


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ({}, "ModuleNotFoundError: No module named 'other'"),
        ({"other.py": ""}, "AttributeError"),
        (
            {"other.py": "other_command = 7"},
            "TypeError: other:other_command is not a click command",
        ),
    ],
)
def test_a_command_that_cannot_be_imported_names_its_extension(site, modules, reason):
    install_extension(
        site,
        {"more.py": offer("other"), **modules},
        name="more-commands",
        points={"more": "more"},
    )
    done = bicycle(site, "other")

    assert done.returncode == 2
    assert "BIC-2018 command 'other' of extension more of more-commands 1.0" in done.stderr
    assert reason in done.stderr
    assert "other " in bicycle(site, "--help").stdout


def test_without_failed_extensions_an_unknown_command_is_a_usage_error(site):
    done = bicycle(site, "fly")

    assert done.returncode == 2
    assert "No such command 'fly'" in done.stderr
