"""The table of duties in ADR 0079 names code that exists, and shared code that both sides use."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/adr/0079-duties-of-clients.md"
ROWS = re.findall(
    r"^\| (Kafka|Redis|Pulsar|`\.ss`) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$",
    PAGE.read_text(),
    re.M,
)
NAME = re.compile(r"`([a-z_.]+)(?::([\w.]+))?`")


def file_of(module):
    sources, package = (
        ("runtime", "runtime") if module.startswith("connectors") else ("streams",) * 2
    )
    return ROOT / sources / f"src/bicycle_{package}" / f"{module.replace('.', '/')}.py"


def has(module, name):
    """Return whether a module defines a class, a method, a function or a constant."""
    body = ast.parse(file_of(module).read_text()).body
    for word in filter(None, name.split(".")):
        found = [node for node in body if word in names_of(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def names_of(node):
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return [getattr(node, "name", None)]


def test_the_table_has_each_system():
    assert {row[0] for row in ROWS} == {"Kafka", "Redis", "Pulsar", "`.ss`"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}".replace(" ", "-"))
def test_each_name_of_the_table_is_defined(row):
    for module, name in NAME.findall(" ".join(row[2:])):
        assert file_of(module).exists(), module
        assert has(module, name), f"{module}:{name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}".replace(" ", "-"))
def test_shared_code_is_imported_by_connectors_of_jobs(row):
    rooms = ROOT / "runtime/src/bicycle_runtime/connectors"
    texts = "\n".join(path.read_text() for path in rooms.rglob("*.py"))
    for module, name in NAME.findall(row[2]):
        first = name.partition(".")[0]
        imports = rf"from bicycle_streams\.{re.escape(module)} import (\([^)]*|[^(\n]*)\b{first}\b"
        assert re.search(imports, texts), f"{module}:{name}"
