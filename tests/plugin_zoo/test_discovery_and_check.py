"""A hundred plugins, five of which cannot be loaded: all are listed, the five are marked, the others run."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.errors import (
    PLUGIN_EXITED,
    PLUGIN_KILLED,
    PLUGIN_NOT_MARKED,
    PLUGIN_RAISED,
    PLUGIN_REFUSED,
    PLUGIN_TIMED_OUT,
)
from bicycle_runtime.extraction.extract import check_all
from bicycle_runtime.extraction.limits import ExtractionLimits
from tests.plugin_zoo.zoo import at_import, in_builder, install, whole
from tests.raising import raises

BAD = {
    "bad_exit": (at_import("bad_exit", "raise SystemExit(3)"), PLUGIN_EXITED),
    "bad_hang": (at_import("bad_hang", "while True: pass"), PLUGIN_TIMED_OUT),
    "bad_import": (at_import("bad_import", "1 / 0"), PLUGIN_RAISED),
    "bad_mark": (whole("bad_mark", "job = 1"), PLUGIN_NOT_MARKED),
    "bad_segfault": (
        at_import("bad_segfault", "import ctypes\nctypes.string_at(0)"),
        PLUGIN_KILLED,
    ),
}


@pytest.fixture
def hundred(cage):
    """A folder with 95 good plugins and five bad ones."""
    for number in range(95):
        install(cage.folder, in_builder(f"good_{number:02}", "pass"))
    for beast, _ in BAD.values():
        install(cage.folder, beast)
    return cage


def test_all_hundred_are_listed_without_importing_one(hundred):
    found = discover([str(hundred.folder)])

    assert [ref.name for ref in found.found] == sorted(
        [*BAD, *(f"good_{number:02}" for number in range(95))]
    )
    assert found.refused == ()
    assert not [name for name in sys.modules if name.startswith(("good_", "bad_"))]


def test_of_a_hundred_plugins_only_what_is_declared_is_read(hundred):
    program = (
        "import sys; from bicycle_runtime.extraction.discovery import discover\n"
        "opened = []\n"
        "sys.addaudithook(lambda name, facts: name == 'open' and opened.append(str(facts[0])))\n"
        f"discover([{str(hundred.folder)!r}])\n"
        "print(*opened, sep='\\n')"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    opened = [path for path in answer.stdout.split("\n") if str(hundred.folder) in path]
    assert {Path(path).name for path in opened} == {"METADATA", "entry_points.txt"}
    assert max(Counter(opened).values()) == 1


def test_finding_plugins_imports_no_heavy_library():
    program = (
        "import sys; from bicycle_runtime.extraction.discovery import discover; discover();"
        "print(*{'cloudpickle', 'msgspec', 'pyspark', 'numpy', 'asyncio'} & sys.modules.keys())"
    )
    path = ":".join(sys.path)

    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.split() == []


def test_a_check_marks_the_five_with_their_reason_and_passes_the_others(hundred):
    refs = discover([str(hundred.folder)]).found

    results = check_all(refs, ExtractionLimits(wall_time_ms=5_000))

    assert [result.ref for result in results] == list(refs)
    assert {result.ref.name: result.error.code for result in results if not result.ok} == {
        name: error.code for name, (_, error) in BAD.items()
    }
    assert sum(result.ok for result in results) == 95
    shown = {result.ref.name: result.error.facts for result in results if result.error}
    assert shown["bad_import"]["traceback"][-1] == "ZeroDivisionError: division by zero"
    assert shown["bad_hang"]["location"].endswith("bad_hang.py:2")
    assert shown["bad_segfault"]["traceback"]


def test_a_check_reads_the_parameters_and_builds_nothing(cage):
    beast = whole(
        "needy",
        """
        from dataclasses import dataclass
        from bicycle_sdk.plugin import bicycle_plugin

        @dataclass
        class Params:
            required: str

        @bicycle_plugin(name="needy", version="1.0")
        def job(env, params: Params):
            raise AssertionError("not to be built")
        """,
    )

    (result,) = check_all([cage.put(beast)])

    assert (result.ok, result.error) == (True, None)
    [parameter] = result.parameters
    assert (parameter["name"], parameter["required"]) == ("required", True)


def test_two_entry_points_of_one_name_are_both_refused(tmp_path):
    beast = in_builder("twin", "pass")
    install(tmp_path / "a", beast, dist="twin-one")
    install(tmp_path / "b", beast, dist="twin-two", version="2.0")
    install(tmp_path / "b", in_builder("single", "pass"))

    answer = discover([str(tmp_path / "a"), str(tmp_path / "b")])

    assert [ref.name for ref in answer.found] == ["single"]
    (refusal,) = answer.refused
    assert refusal.sources == (f"twin-one 1.0 ({tmp_path}/a)", f"twin-two 2.0 ({tmp_path}/b)")
    with raises(PLUGIN_REFUSED) as caught:
        answer.find("twin")
    assert caught.value.facts["sources"] == list(refusal.sources)
