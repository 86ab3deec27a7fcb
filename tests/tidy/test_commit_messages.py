"""Commit messages follow the rule, and the check finds the messages that do not."""

import pytest

from tests.docs.scripts import load

CHECK = load("tools/commit_messages.py")


@pytest.mark.parametrize(
    "message",
    [
        "Close idle Kafka clients after 30 s",
        "Close idle Kafka clients after 30 s\n\nThey held connections open.\n# a comment of git",
        "Pass records by value",
        "Feed the watchdog while a publication waits",
    ],
)
def test_a_message_that_follows_the_rule_is_accepted(message):
    assert CHECK.faults_of(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Close " + "x" * 67, "has 73 characters"),
        ("close idle clients", "capital letter"),
        ("Close idle clients.", "full stop"),
        ("Closes idle clients", "imperative verb, got 'Closes'"),
        ("Closed idle clients", "imperative verb, got 'Closed'"),
        ("Closing idle clients", "imperative verb, got 'Closing'"),
        ("Close idle clients\nThey held connections.", "blank line"),
        ("", "capital letter"),
    ],
)
def test_a_message_that_breaks_the_rule_is_reported(message, fault):
    assert [each for each in CHECK.faults_of(message) if fault in each]


def test_a_message_in_a_file_is_checked(tmp_path, capsys):
    path = tmp_path / "message"
    path.write_text("Closed idle clients\n", encoding="utf-8")

    assert CHECK.main([str(path)]) == 1
    assert "Closed" in capsys.readouterr().err
