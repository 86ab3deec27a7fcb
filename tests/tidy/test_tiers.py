"""Tests have one tier each, take no longer than it allows, and slices cover all of them."""

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests import tiers
from tests.tiers import (
    CORE,
    EXTENDED,
    LIMITS_S,
    RECORDED_S_MIN,
    Recorded,
    Recorder,
    chosen_slice,
    recorded,
    seconds_by_file,
    slices_of,
)

ROOT = Path(__file__).parents[2]


def test_no_recorded_test_is_above_the_limit_of_its_tier():
    assert [row for row in recorded() if row.seconds > LIMITS_S[row.tier]] == []


def test_the_table_names_each_test_once_in_order_and_no_file_that_is_gone():
    tests = [row.test for row in recorded()]

    assert tests == sorted(set(tests))
    assert {file for file in seconds_by_file(recorded()) if not (ROOT / file).is_file()} == set()
    assert all(row.seconds >= RECORDED_S_MIN for row in recorded())


def test_a_run_of_one_tier_keeps_what_is_known_of_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "TABLE", tmp_path / "durations.tsv")
    slow = Recorded(3.0, EXTENDED, "tests/a.py::slow")
    tiers.TABLE.write_text(f"2.0\tcore\ttests/a.py::gone\n3.0\textended\t{slow.test}\n")
    recorder = Recorder()
    recorder.seconds["tests/a.py::new"] = 1.0
    recorder.tiers["tests/a.py::new"] = CORE

    recorder.pytest_sessionfinish()

    assert recorded() == [Recorded(1.0, CORE, "tests/a.py::new"), slow]


def test_the_report_of_a_process_that_died_with_its_test_is_no_duration():
    recorder = Recorder()
    recorder.pytest_runtest_logreport(
        pytest.TestReport("tests/a.py::dead", ("tests/a.py", 1, ""), {}, "failed", None, "???")
    )
    assert not recorder.seconds


@pytest.mark.parametrize("count", [1, 2, 5, 99])
def test_each_file_is_in_one_slice_and_slices_take_about_equally_long(count):
    seconds = seconds_by_file(row for row in recorded() if row.tier == EXTENDED)
    files = {*seconds, "tests/new.py"}

    slices = slices_of(files, seconds, count=count)

    loads = Counter()
    for file in files:
        loads[slices[file]] += seconds[file]
    assert slices.keys() == files
    assert set(slices.values()) <= set(range(1, count + 1))
    assert max(loads.values()) <= sum(seconds.values()) / count + max(seconds.values(), default=0)


def test_slices_do_not_depend_on_the_order_of_collection():
    files = [f"tests/{number}.py" for number in range(9)]

    assert slices_of(files, {}, count=4) == slices_of(reversed(files), {}, count=4)


@pytest.mark.parametrize(
    ("text", "chosen"), [("all", (1, 1)), ("none", (0, 1)), ("3/5", (3, 5)), ("5/5", (5, 5))]
)
def test_a_slice_is_chosen_by_its_number(text, chosen):
    assert chosen_slice(text) == chosen


@pytest.mark.parametrize("text", ["", "some", "0/5", "6/5", "1/0", "-1/5", "1/5/2"])
def test_another_choice_is_refused(text):
    with pytest.raises(pytest.UsageError, match="--extended takes"):
        chosen_slice(text)


# Two files that run at the same time; in one of them a test is alone.
_TOGETHER = """
    import pathlib, time
    import pytest

    RUNNING = pathlib.Path(__file__).parent / "running"

    @pytest.mark.parametrize("number", range(20))
    def test_beside_others(number):
        mark = RUNNING / f"{__name__}-{number}"
        mark.touch()
        assert not (RUNNING / "alone").exists()
        time.sleep(0.01)
        mark.unlink()
"""
_ALONE = """
    import pathlib, time
    import pytest

    RUNNING = pathlib.Path(__file__).parent / "running"

    @pytest.mark.alone
    @pytest.mark.parametrize("number", range(10))
    def test_alone(number):
        (RUNNING / "alone").touch()
        assert [path.name for path in RUNNING.iterdir()] == ["alone"]
        time.sleep(0.01)
        (RUNNING / "alone").unlink()
"""


def pytest_in(folder, *words):
    """Run pytest with the tiers of this repository in a folder; return its output."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    core: a\n    extended: b\n    alone: c\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.tiers", *words, str(folder)],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_test_that_is_alone_runs_while_no_other_does(tmp_path):
    (tmp_path / "running").mkdir()
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(textwrap.dedent(_TOGETHER))
    (tmp_path / "test_c.py").write_text(textwrap.dedent(_ALONE))

    assert "50 passed" in pytest_in(tmp_path, "--numprocesses", "3", "--dist", "load")


def test_a_test_has_one_tier(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.core\n@pytest.mark.extended\ndef test_both(): x = 1\n"
    )

    assert "test_a.py::test_both is marked with two tiers" in pytest_in(tmp_path)


def test_extended_tests_run_when_they_are_asked_for(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.extended\ndef test_more(): x = 1\ndef test_always(): x = 1\n"
    )

    assert "2 passed" in pytest_in(tmp_path)
    assert "1 passed, 1 deselected" in pytest_in(tmp_path, "--extended", "none")
    assert "2 passed" in pytest_in(tmp_path, "--extended", "1/5")
    assert "1 passed, 1 deselected" in pytest_in(tmp_path, "--extended", "2/5")
