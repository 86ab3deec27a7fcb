"""What is wrong before a job can start: said at once, with nothing read, written or lost."""

from __future__ import annotations

import signal
import venv

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import KeyedProcessFunction, ValueStateDescriptor
from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import JobSite, expected_counts, visible_counts

pytestmark = pytest.mark.spark

CONFIG, STATE = 4, 5
TEXT = "to be or not to be\n"


def _refused(site: JobSite, code: str, exit_code: int) -> dict[str, object]:
    """Run the command, which must end with this error; returns its facts."""
    life = site.run()
    assert life.process.returncode == exit_code, life.stderr
    assert life.answer["code"] == code
    site.wait_for_no_process()
    return life.answer["facts"]


def test_missing_input_is_named_and_the_job_runs_once_it_is_there(site: JobSite):
    site.params["input"] = str(site.input / "later.txt")

    facts = _refused(site, "BIC-1710", CONFIG)
    assert facts["path"] == site.params["input"]
    assert site.newest_epoch() == 0

    (site.input / "later.txt").write_text(TEXT)
    site.finish()
    assert visible_counts(site.output) == expected_counts(TEXT.split())


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(site: JobSite):
    (site.input / "in.txt").write_text(TEXT)
    site.output.write_text("a file where the directory should be")

    facts = _refused(site, "BIC-1720", CONFIG)
    assert (facts["vertex"], facts["path"]) == ("out-v1", str(site.output))
    assert site.newest_epoch() == 0
    assert not list(site.storage.rglob("staged/**/*.jsonl"))

    site.output.unlink()
    site.finish()
    assert visible_counts(site.output) == expected_counts(TEXT.split())


@pytest.mark.parametrize(
    ("name", "value"), [("inptu", "x"), ("port", "many"), ("source", "carrier pigeon")]
)
def test_a_wrong_parameter_is_named(site: JobSite, name: str, value: str):
    site.params[name] = value

    facts = _refused(site, "BIC-1003", CONFIG)
    assert (facts["name"], facts["plugin"]) == (name, "wordcount")
    assert not site.output.exists()


def test_a_second_driver_is_refused_before_it_starts_spark_and_the_first_goes_on(site: JobSite):
    (site.input / "in.txt").write_text(TEXT)
    first = site.start("--follow", faults="before_seal@1=hold")
    first.wait_for_fault("before_seal@1=hold")

    for number in range(2):  # The second time from another home: only the checkpoint is shared.
        second = site.run()
        assert second.process.returncode == STATE
        assert second.answer["code"] == "BIC-1901"
        assert second.answer["facts"]["pid"] == str(first.process.pid)
        assert len([each for each in site.processes() if each.is_java]) == 1
        assert second.log_events == []
        site.environment["BICYCLE_HOME"] = str(site.root / f"home-{number}")

    first.release()
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    assert visible_counts(site.output) == expected_counts(TEXT.split())


class First(KeyedProcessFunction[str, str, str]):
    """Keeps a word, under a name that the plugin of the test below does not have."""

    kept = ValueStateDescriptor("first", str)

    def process_element(self, value, ctx):
        ctx.get_value_state(self.kept).update(value)
        return []


def firsts(env):
    words = env.read_text("in").uid("words").key_by(str)
    words.process_fn(First()).uid("kept").collect("out")


LASTS = """
from bicycle_sdk import KeyedProcessFunction, ValueStateDescriptor, bicycle_plugin


class Last(KeyedProcessFunction[str, str, str]):
    kept = ValueStateDescriptor("last", str)

    def process_element(self, value, ctx):
        return []


@bicycle_plugin(name="lasts", version="1.0")
def job(env):
    words = env.read_text("in").uid("words").key_by(str)
    words.process_fn(Last()).uid("kept").print()
"""


def test_a_savepoint_is_compared_with_a_plugin_that_only_its_own_environment_has(site: JobSite):
    folder = site.root / "venv"
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    install(packages, whole("lasts", LASTS, requires=()))
    site.plugin, site.params = "lasts", {}
    with Harness(firsts, scripted=["words"]) as harness:
        harness.push(["ada"])
        harness.run_epoch()

        life = site.run("--plugin-env", str(folder), "--from", harness.storage.url, "--trust")

    assert (life.process.returncode, life.answer["code"]) == (STATE, "BIC-1505"), life.stdout
    assert "'first'" in life.answer["facts"]["lost"]
    assert site.newest_epoch() == 0
