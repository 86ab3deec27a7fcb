"""What the package shows, and what importing it costs."""

import ast
import importlib
import os
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bicycle_sdk

SOURCE = Path(bicycle_sdk.__file__).parent
MODULES = [
    name for _, name, _ in pkgutil.walk_packages(bicycle_sdk.__path__, f"{bicycle_sdk.__name__}.")
]
ON_DEMAND = [
    "bicycle_sdk",
    *(
        f"bicycle_sdk.{room}"
        for room in ("connectors", "datastream", "joins", "kafka", "sinks", "sources", "windows")
    ),
]
FORMER_NAMES = {"bicycle_sdk.streams": "bicycle_sdk.datastream"}
# Windows, joins, Kafka, states, timers and functions with several inputs, down to their packages.
UNUSED_BY_SIMPLE_JOBS = {
    name
    for name in MODULES
    if name.startswith(("bicycle_sdk.joins.", "bicycle_sdk.kafka.", "bicycle_sdk.windows."))
    or name.startswith("bicycle_sdk.state")
} | {
    f"bicycle_sdk.{name}"
    for name in (
        "connected",
        "contexts",
        "secrets",
        "time",
        "datastream.connected",
        "datastream.windowed",
    )
}


def in_fresh_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent), **environment},
    )
    return done.stdout


def public_definitions(module: ModuleType) -> set[str]:
    """Return the public classes, functions and constants that a module's own source defines."""
    names: set[str] = set()
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) if not is_type_variable(module, name):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def is_type_variable(module: ModuleType, name: str) -> bool:
    return type(getattr(module, name)).__name__ in {"ParamSpec", "TypeVar"}


@pytest.mark.parametrize("name", MODULES)
def test_all_of_a_module_is_what_it_defines_in_public(name):
    module = importlib.import_module(name)
    defined = public_definitions(module)

    assert set(module.__all__) >= defined
    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, item) for item in module.__all__)
    if name not in {*ON_DEMAND, *FORMER_NAMES} and not hasattr(module, "__path__"):
        assert set(module.__all__) == defined


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_a_former_name_of_a_module_exports_the_same_objects(former, name):
    old, new = importlib.import_module(former), importlib.import_module(name)

    assert set(old.__all__) == set(new.__all__)
    assert all(getattr(old, item) is getattr(new, item) for item in new.__all__)


def test_all_of_the_package_is_what_is_visible():
    visible = {
        name
        for name in dir(bicycle_sdk)
        if not name.startswith("_") and not isinstance(getattr(bicycle_sdk, name), ModuleType)
    }

    assert set(bicycle_sdk.__all__) == visible


def test_the_version_in_errors_is_that_of_the_package():
    assert bicycle_sdk.__version__ == bicycle_sdk.graph.GRAPH_SDK_VERSION


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()


def test_importing_loads_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); from bicycle_sdk import StreamEnvironment;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = set(in_fresh_python(code).split())

    assert loaded - sys.stdlib_module_names == {"bicycle_sdk"}


def test_importing_leaves_slow_libraries_alone():
    slow = {"asyncio", "random", "pathlib", "difflib", "socket", "subprocess", "logging"}
    code = "import sys; from bicycle_sdk import StreamEnvironment; print(*sys.modules)"

    assert slow & set(in_fresh_python(code).split()) == set()


def test_importing_starts_no_thread_and_opens_no_file():
    code = """
import os, threading, bicycle_sdk
import bicycle_sdk.testing
print(threading.active_count(), len(os.listdir("/proc/self/fd")))
"""
    threads, files = in_fresh_python(code).split()

    assert threads == "1"
    assert int(files) <= 5  # The three streams, and the listing itself.


def test_importing_leaves_what_few_jobs_use_unloaded():
    code = "import sys; from bicycle_sdk import StreamEnvironment; print(*sys.modules)"
    loaded = set(in_fresh_python(code).split())

    assert not loaded & UNUSED_BY_SIMPLE_JOBS


def test_the_errors_alone_load_no_streams():
    loaded = in_fresh_python("import sys, bicycle_sdk.errors; print(*sys.modules)").split()

    assert {name for name in loaded if name.startswith("bicycle_sdk.")} == {
        "bicycle_sdk.errors",
        "bicycle_sdk.loading",
        "bicycle_sdk.locations",
        "bicycle_sdk.quantities",
    }


def test_a_simple_job_is_built_without_what_few_jobs_use():
    code = """
import sys
from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink

@bicycle_plugin
def count_words(env: StreamEnvironment) -> None:
    words = env.read_text("in").flat_map(str.split).filter(bool).key_by(str.lower)
    words.count().on_error("skip").sink_to(file_sink("out"))

env = StreamEnvironment()
count_words(env)
env.execute_and_serialize("words")
print(*sys.modules)
"""
    loaded = set(in_fresh_python(code).split())

    assert not loaded & UNUSED_BY_SIMPLE_JOBS


def test_modules_that_are_loaded_on_demand_can_be_the_first_that_is_imported():
    code = f"""
import importlib, sys
for name in {sorted(UNUSED_BY_SIMPLE_JOBS)}:
    for known in [known for known in sys.modules if known.partition(".")[0] == "bicycle_sdk"]:
        del sys.modules[known]
    importlib.import_module(name)
    print(name)
"""

    assert in_fresh_python(code).split() == sorted(UNUSED_BY_SIMPLE_JOBS)


def test_a_star_import_gives_all_names():
    code = "from bicycle_sdk import *; import bicycle_sdk; print({*bicycle_sdk.__all__} - {*dir()})"

    assert in_fresh_python(code).strip() == "set()"


@pytest.mark.parametrize("package", ON_DEMAND)
def test_type_checkers_are_told_where_names_are_found_on_demand(package):
    module = importlib.import_module(package)
    (choice,) = [
        node
        for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "typing.TYPE_CHECKING"
    ]
    (found,) = choice.orelse  # A ``__getattr__`` that they saw would let every name pass.
    homes = ast.literal_eval(found.value.args[1])
    (parent,) = [ast.literal_eval(word.value) for word in found.value.keywords] or [package]
    told = {
        node.module.removeprefix(f"{parent}."): {alias.name for alias in node.names}
        for node in choice.body
    }

    assert {home: set(names) for home, names in homes.items()} == told
    assert {name for names in told.values() for name in names} <= set(module.__all__)
    assert all(hasattr(module, name) for name in [*homes, *module.__all__])


def test_a_name_found_on_demand_is_that_of_its_module_and_survives_pickle():
    from bicycle_sdk.windows.assigners import SessionWindows, session_windows

    windows = session_windows(10)

    assert bicycle_sdk.windows.SessionWindows is SessionWindows
    assert pickle.loads(pickle.dumps((SessionWindows, windows))) == (SessionWindows, windows)


def test_a_name_that_a_package_has_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="KafkaSauceBuilder") as caught:
        _ = bicycle_sdk.KafkaSauceBuilder

    assert (caught.value.name, caught.value.obj) == ("KafkaSauceBuilder", bicycle_sdk)
