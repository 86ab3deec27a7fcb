"""The first job of the README: a file, run as it stands, and again with more input."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.scripts import ROOT

pytestmark = pytest.mark.spark
README = (ROOT / "README.md").read_text("utf-8")


def blocks_of(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_first_job_of_the_readme_runs_as_a_file(site):
    (site.root / "clicks.py").write_text(blocks_of("python")[0], "utf-8")
    [line] = re.findall(r"`(bicycle run clicks\.py [^`]+)`", README)
    given, shown = (text for text in blocks_of("text") if "ada" in text)
    (site.root / "clicks.csv").write_text(given, "utf-8")
    command = [str(Path(sys.executable).with_name("bicycle")), *shlex.split(line)[1:]]

    first = site.launch(command)
    assert first.wait() == 0, first.stderr
    assert first.stdout.startswith(shown)

    with (site.root / "clicks.csv").open("a") as stream:
        stream.write("bob,/cart\n")
    second = site.launch(command)
    assert second.wait() == 0, second.stderr
    assert [row for row in second.stdout.splitlines() if "clicked" in row] == [
        "[SINK] bob clicked 2 times"
    ]
    site.wait_for_no_process()


@pytest.mark.extended
def test_a_start_with_nothing_new_to_read_needs_no_java(site):
    (site.root / "clicks.py").write_text(blocks_of("python")[0], "utf-8")
    (site.root / "clicks.csv").write_text("ada,/home\n", "utf-8")
    command = [str(Path(sys.executable).with_name("bicycle")), "run", "clicks.py"]
    command += ["--checkpoint-dir", "checkpoints", "--json"]
    first = site.launch(command)
    assert first.wait() == 0, first.stderr

    second = site.launch(command)
    assert second.wait() == 0, second.stderr
    assert (second.answer["state"], second.answer["event_count"]) == ("FINISHED", 1)
    assert phases_of(second) == ["extracting the plugin", "recovering"]

    with (site.root / "clicks.csv").open("a") as stream:
        stream.write("bob,/cart\n")
    third = site.launch(command)
    assert third.wait() == 0, third.stderr
    assert third.answer["event_count"] == 2
    assert phases_of(third) == ["extracting the plugin", "recovering", "starting Spark"]
    site.wait_for_no_process()


def test_a_first_start_with_empty_input_does_not_wait_for_spark(site):
    (site.root / "clicks.py").write_text(blocks_of("python")[0], "utf-8")
    (site.root / "clicks.csv").write_text("", "utf-8")
    # Spark cannot start with an address that is not of this machine.
    command = [str(Path(sys.executable).with_name("bicycle")), "run", "clicks.py", "--json"]
    command += ["--conf", "spark.driver.bindAddress=192.0.2.1"]
    first = site.launch(command)
    assert first.wait() == 0, first.stderr
    assert (first.answer["state"], first.answer["event_count"]) == ("FINISHED", 0)

    (site.root / "clicks.csv").write_text("ada,/home\n", "utf-8")
    second = site.launch(command)
    assert second.wait() != 0
    assert "BIC-1802" in second.stdout + second.stderr
    site.wait_for_no_process()


def phases_of(life):
    return [event["phase"] for event in life.log_events if event["event"] == "phase_ended"]
