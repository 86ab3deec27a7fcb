"""Libraries that a plugin of its own environment uses without declaring them."""

import dataclasses
import json
import subprocess
import sys

import pytest

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.extraction.errors import UNDECLARED_LIBRARY
from bicycle_runtime.extraction.extract import check_plugin, extract
from bicycle_runtime.extraction.packing import pack_environment
from bicycle_runtime.extraction.unpacking import unpack
from tests.raising import raises
from tests.unit.extraction.test_environments import put, put_plugin, put_runtime

JOB = """
from bicycle_sdk import bicycle_plugin

@bicycle_plugin(name="demo", version="1")
def job(env):
    env.from_collection([1]).collect("out")
"""
LAZY = """
def use():
    import extra
    return extra.VERSION

def wish():
    try:
        import extra
    except ImportError:
        return "without"
    return "with"
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Pack a plugin of its own environment, beside a runtime that has the library ``extra``."""
    runtime = put_runtime(tmp_path / "runtime")
    put(tmp_path / "runtime", "extra", "2.0")
    monkeypatch.syspath_prepend(runtime[0])
    site = tmp_path / "site"

    def packed(text, *, is_isolated=True, **more):
        ref = put_plugin(site, files={"demo.py": text}, **more)
        found = pack_environment(
            ref, [str(site)], runtime_path=runtime, cache_dir=tmp_path / "cache",
            is_isolated=is_isolated,
        )  # fmt: skip
        folder = unpack(found.path, found.digest)
        return dataclasses.replace(ref, location=str(folder)), found

    return packed


@pytest.mark.parametrize("line", ["import extra", "from extra import VERSION", "import extra as e"])
def test_an_undeclared_library_of_the_runtime_is_missing(environment, line):
    ref, _ = environment(f"{line}\n{JOB}")

    for attempt in (lambda: check_plugin(ref), lambda: extract(ref, {})):
        with raises(UNDECLARED_LIBRARY) as caught:
            attempt()
        assert caught.value.facts["module"] == "extra"
        assert caught.value.facts["location"].endswith("demo.py:1")


def test_a_library_that_is_imported_while_the_graph_is_built_is_missing_too(environment):
    ref, _ = environment(JOB.replace("    env.", "    import importlib\n    "
                                     "importlib.import_module('extra')\n    env."))  # fmt: skip

    with raises(UNDECLARED_LIBRARY):
        extract(ref, {})


def test_a_declared_library_comes_from_the_environment(environment, tmp_path):
    put(tmp_path / "site", "extra", "1.0")
    ref, _ = environment(f"import extra\nassert extra.VERSION == '1.0'\n{JOB}", requires=["extra"])

    assert extract(ref, {}).plugin == "demo"


def test_a_plugin_of_the_command_uses_what_is_installed_beside_it(environment):
    ref, _ = environment(f"import extra\n{JOB}", is_isolated=False)

    assert extract(ref, {}).plugin == "demo"


def test_functions_on_workers_do_not_see_it_and_the_runtime_does(environment):
    _, packed = environment(LAZY)
    program = f"""
import json, pathlib, sys
from bicycle_runtime.extraction.unpacking import enter_environment
for _ in range(2):
    enter_environment(pathlib.Path({str(packed.path)!r}), {packed.digest!r})
import demo
found = [demo.wish()]
try:
    demo.use()
except ModuleNotFoundError as error:
    found += [error.name, str(error)]
import extra
print(json.dumps([*found, extra.VERSION, sum(type(f).__name__ == "_Guard" for f in sys.meta_path)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env=environment_for_python({"PYTHONPATH": ":".join(sys.path)}),
    )  # fmt: skip

    wish, name, text, version, guard_count = json.loads(done.stdout)
    assert (wish, name, version, guard_count) == ("without", "extra", "2.0", 1)
    assert "declared dependencies" in text
