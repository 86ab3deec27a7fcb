"""The options of long commands stand in sections of their help, each once."""

import re

import pytest

SECTIONS = ["Common options", "State and checkpoints", "Restarts", "Spark", "Advanced"]


@pytest.mark.parametrize("command", ["run", "submit"])
def test_every_option_stands_in_one_section(shell, command):
    text = shell.run(command, "--help").output

    titles = re.findall(r"^([A-Z][A-Za-z ]+):$", text, re.MULTILINE)
    assert titles == [*SECTIONS, "Other options"]
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
    assert len(flags) == len(set(flags))
    where = {title: text.index(f"\n{title}:\n") for title in titles}
    for flag, title in [
        ("--plugin", "Common options"), ("--name", "Common options"), ("--json", "Other options"),
        ("--state-backend", "State and checkpoints"), ("--restart-attempts", "Restarts"),
        ("--conf", "Spark"), ("--epoch-target-ms", "Advanced"),
    ]:  # fmt: skip
        place = re.search(rf"^  (?:-\w, )?{flag}\b", text, re.MULTILINE).start()
        last = max(each for each in where.values() if each < place)
        assert where[title] == last


@pytest.mark.parametrize("command", ["run", "submit"])
def test_the_argument_is_no_option(shell, command):
    text = shell.run(command, "--help").output

    assert text.count("[FILE]") == 1
    assert "or nothing" not in text
