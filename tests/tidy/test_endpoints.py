"""Pipelines know connectors by their options alone: no import, and no class of the same name."""

import ast
from pathlib import Path

ROOM = Path(__file__).parents[2] / "runtime/src/bicycle_runtime"
CONNECTORS = "bicycle_runtime.connectors"


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
