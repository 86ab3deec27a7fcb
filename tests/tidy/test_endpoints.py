"""Pipelines know connectors by their options alone: no import, and no class of the same name."""

import ast
import inspect
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from bicycle_runtime.connectors.builtin import bicycle_sinks, bicycle_sources
from bicycle_runtime.connectors.registry import load_registry
from bicycle_sdk.installed import options_of_scheme, uri_schemes
from bicycle_sdk.options import describe

ROOM = Path(__file__).parents[2] / "runtime/src/bicycle_runtime"
CONNECTORS = "bicycle_runtime.connectors"
REGISTRY = load_registry(())
OPTIONS = sorted(
    {REGISTRY.source_class(word).options_class for word in bicycle_sources()}
    | {REGISTRY.sink_class(word).options_class for word in bicycle_sinks()},
    key=lambda each: each.__name__,
)
# Names with two meanings: the partition columns of a new table of a lake, and the kind of the
# subfolders of Parquet files, which have their column and their date format in other options.
MEANINGS = {"partition_by": 2}


def classes(room):
    """Return the names of the classes of a room."""
    trees = [ast.parse(file.read_text("utf-8")) for file in sorted((ROOM / room).rglob("*.py"))]
    return {node.name for tree in trees for node in ast.walk(tree) if type(node) is ast.ClassDef}


def imported(room):
    """Return the modules that a room imports, anywhere in its files."""
    found = set()
    for file in sorted((ROOM / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
    return found


def test_pipelines_import_no_connector():
    assert {name for name in imported("pipelines") if name.startswith(CONNECTORS)} == set()


def test_endpoints_import_the_registry_of_connectors_only():
    found = {name for name in imported("endpoints") if name.startswith(CONNECTORS)}

    assert found == {f"{CONNECTORS}.registry.default_registry"}


def test_no_class_of_a_connector_has_a_twin_in_pipelines():
    private = {name for name in classes("pipelines") if name.startswith("_")}

    assert (classes("pipelines") - private) & classes("connectors") == set()
    assert (classes("endpoints") - private) & classes("connectors") == set()


def test_options_of_connectors_are_declared_in_the_sdk_alone():
    declared = {
        file.name
        for file in (ROOM / "connectors").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option"
    }

    assert declared == set()
    # A collection has no options.
    assert {
        each.__name__ for each in OPTIONS if not each.__module__.startswith("bicycle_sdk.")
    } == {"CollectionOptions"}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: each.__name__)
def test_no_two_options_share_a_name_or_an_alias(options):
    names = [name for info in describe(options) for name in (info.name, *info.aliases)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: each.__name__)
def test_each_connector_is_named_by_a_uri(options):
    connector = getattr(options, "connector", None)
    if connector is None:  # Records of the job itself.
        assert options.__name__ == "CollectionOptions"
        return
    assert options in {
        options_of_scheme(connector.role, scheme) for scheme in uri_schemes(connector.role)
    }


def declarations(cls):
    """Return the names that a class declares as options; it may also adapt options of a base."""
    [tree] = ast.parse(dedent(inspect.getsource(cls))).body
    return [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) not in {"field", "adapt_option"}
    ]


def test_an_option_is_declared_once():
    owners = {
        each
        for options in OPTIONS
        for each in options.__mro__
        if each.__module__.partition(".")[0] in {"bicycle_sdk", "bicycle_runtime"}
    }
    declared = Counter(name for owner in owners for name in declarations(owner))

    assert declared.keys() >= {info.name for options in OPTIONS for info in describe(options)}
    assert {name: count for name, count in declared.items() if count > 1} == MEANINGS
