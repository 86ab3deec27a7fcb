"""Tests have one tier each, take no longer than it allows, and slices cover all of them."""

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.tiers import (
    CORE,
    EXTENDED,
    LIMITS_S,
    RECORDED_S_MIN,
    TABLE,
    chosen_slice,
    recorded,
    seconds_by_file,
    slices_of,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tiers():
    """The tier of every test of the repository, by its node id."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--extended"]
    core, everything = (
        subprocess.Popen([*command, which], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for which in ("none", "all")
    )
    core_tests, tests = _collected(core), _collected(everything)
    assert core_tests < tests
    return {test: CORE if test in core_tests else EXTENDED for test in tests}


def _collected(process):
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0, lines
    return {line for line in lines if "::" in line}


def test_no_recorded_test_is_above_the_limit_of_its_tier(tiers):
    slow = {test: each for test, each in recorded().items() if each > LIMITS_S[tiers[test]]}

    assert slow == {}


def test_the_table_names_tests_that_exist_in_order(tiers):
    rows = TABLE.read_text(encoding="utf-8").splitlines()
    tests = [row.split("\t")[1] for row in rows]

    assert tests == sorted(set(tests))
    assert set(tests) - tiers.keys() == set()
    assert all(float(row.split("\t")[0]) >= RECORDED_S_MIN for row in rows)


@pytest.mark.parametrize("count", [1, 2, 5, 99])
def test_each_file_is_in_one_slice_and_slices_take_about_equally_long(count):
    seconds = seconds_by_file(recorded())
    files = {*seconds, "tests/new.py"}

    slices = slices_of(files, seconds, count=count)

    loads = Counter()
    for file in files:
        loads[slices[file]] += seconds[file]
    assert slices.keys() == files
    assert set(slices.values()) <= set(range(1, count + 1))
    assert max(loads.values()) <= sum(seconds.values()) / count + max(seconds.values())


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


def test_a_test_that_is_alone_runs_while_no_other_does(tmp_path):
    (tmp_path / "running").mkdir()
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(textwrap.dedent(_TOGETHER))
    (tmp_path / "test_c.py").write_text(textwrap.dedent(_ALONE))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    core: a\n    extended: b\n    alone: c\n"
    )

    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers", "--numprocesses", "3"]
    done = subprocess.run(
        [*command, "--dist", "load", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert "50 passed" in done.stdout
