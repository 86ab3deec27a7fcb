"""What the package shows, and what importing it costs."""

import ast
import importlib
import os
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
    return type(getattr(module, name)).__name__ == "TypeVar"


@pytest.mark.parametrize("name", MODULES)
def test_all_of_a_module_is_what_it_defines_in_public(name):
    module = importlib.import_module(name)
    defined = public_definitions(module)

    assert set(module.__all__) >= defined
    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, item) for item in module.__all__)
    if not hasattr(module, "__path__"):
        assert set(module.__all__) == defined


def test_all_of_the_package_is_what_is_visible():
    visible = {
        name
        for name, value in vars(bicycle_sdk).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert set(bicycle_sdk.__all__) == visible


def test_the_version_in_errors_is_that_of_the_package():
    assert bicycle_sdk.__version__ == bicycle_sdk.graph.GRAPH_SDK_VERSION


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()


def test_importing_loads_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import bicycle_sdk;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = set(in_fresh_python(code).split())

    assert loaded - sys.stdlib_module_names == {"bicycle_sdk"}


def test_importing_leaves_slow_libraries_alone():
    slow = {"asyncio", "random", "pathlib", "difflib", "socket", "subprocess", "logging"}
    loaded = set(in_fresh_python("import sys, bicycle_sdk; print(*sys.modules)").split())

    assert slow & loaded == set()


def test_importing_starts_no_thread_and_opens_no_file():
    code = """
import os, threading, bicycle_sdk
import bicycle_sdk.testing
print(threading.active_count(), len(os.listdir("/proc/self/fd")))
"""
    threads, files = in_fresh_python(code).split()

    assert threads == "1"
    assert int(files) <= 5  # The three streams, and the listing itself.
