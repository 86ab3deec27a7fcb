"""The values of the Helm chart: descriptions from its schema, defaults from ``values.yaml``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "deploy/chart"


def chart_values_reference() -> str:
    """Return a table with each value of the chart."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    rows = [
        f"| `{'.'.join(path)}` | {_default(value_at(defaults, path))} | {schema['description']} |"
        for path, schema in described_values()
    ]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows, ""])


def described_values() -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the path and the schema of each value that has a description."""
    yield from _described((), json.loads((CHART / "values.schema.json").read_text("utf-8")))


def _described(
    path: tuple[str, ...], schema: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if "description" in schema:
        yield path, schema
        return
    for name, below in schema["properties"].items():
        yield from _described((*path, name), below)


def value_at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path of names."""
    found: Any = values
    for name in path:
        found = found[name]
    return found


def _default(value: Any) -> str:
    return "" if value in ("", [], {}) else f"`{json.dumps(value)}`"
