"""The JSON Schema of a pipeline, for editors: made of the structs that check it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bicycle_runtime.endpoints.ends import EndKeys
from bicycle_runtime.endpoints.sinks import SINKS
from bicycle_runtime.endpoints.sources import SOURCES
from bicycle_runtime.pipelines.model import Pipeline
from bicycle_runtime.pipelines.nodes import Around
from bicycle_runtime.pipelines.operator_keys import ALIASES, OPERATORS

_REF = "#/$defs/{name}"
_BY_URI: Mapping[str, Any] = {
    "type": "object",
    "description": "A source or sink by its URI; further keys are the keys of its kind.",
    "properties": {"uri": {"type": "string"}, "kind": False, "type": False},
    "required": ["uri"],
}


def pipeline_schema() -> dict[str, Any]:
    """Return the schema of the file, whichever notation it has."""
    sources, sinks = SOURCES.load_all(), SINKS.load_all()
    ends: tuple[type[EndKeys], ...] = (*sources.values(), *sinks.values())
    kinds: tuple[type[msgspec.Struct], ...] = (Pipeline, Around, *ends, *OPERATORS.values())
    _, parts = msgspec.json.schema_components(kinds, ref_template=_REF)
    parts = _with_numbers_as_text(parts)
    names = {kind: kind.__name__ for kind in kinds}
    for kind in ends:
        _accept_aliases(parts[kind.__name__], kind)
    around = parts.pop(names[Around])["properties"]
    whole = parts.pop(names[Pipeline])
    keys = whole["properties"]
    tables: Mapping[str, Mapping[str, type[EndKeys]]] = {"source": sources, "sink": sinks}
    for name, table in tables.items():
        tagged = [
            _tag(parts[kind.__name__], "kind", [word], around) for word, kind in table.items()
        ]
        keys[name] = {"oneOf": [*tagged, _BY_URI]}
    steps = [
        _tag(parts[kind.__name__], "operator", _words(word), {"id": {"type": "string"}, **around})
        for word, kind in OPERATORS.items()
    ]
    keys["steps"] = {"type": "array", "items": {"oneOf": steps}}
    keys["vertices"] = {"type": "array", "items": {"oneOf": list(_vertices(around, tables))}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "$defs": parts,
    }


def _with_numbers_as_text(schema: Any) -> Any:
    """Return a schema in which a number may be written as text, as the check takes it."""
    if isinstance(schema, list):
        return [_with_numbers_as_text(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _with_numbers_as_text(value) for key, value in schema.items()}
    if found.get("type") in ("integer", "number"):
        told = {key: found.pop(key) for key in ("description", "default") if key in found}
        return {**told, "anyOf": [found, {"type": "string", "pattern": "^-?[0-9.]+$"}]}
    return found


def _words(word: str) -> list[str]:
    return [word, *(alias for alias, stands_for in ALIASES.items() if stands_for == word)]


def _tag(
    struct: Mapping[str, Any], key: str, words: list[str], more: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the schema of a struct with its discriminating word, and more keys."""
    found = copy.deepcopy(dict(struct))
    found["properties"] = {key: {"enum": words}, **more, **found["properties"]}
    found["required"] = [key, *found.get("required", [])]
    return found


def _accept_aliases(schema: dict[str, Any], kind: type[EndKeys]) -> None:
    """Add the other names of keys, and the names of a client's properties."""
    required = schema.pop("required", [])
    for alias, name in kind.aliases.items():
        schema["properties"][alias] = schema["properties"][name]
    for name in required:
        names = [name, *(alias for alias, key in kind.aliases.items() if key == name)]
        schema.setdefault("allOf", []).append({"anyOf": [{"required": [each]} for each in names]})
    if kind.client_names:
        schema["patternProperties"] = {r"\.": {"type": ["string", "number", "boolean"]}}


def _vertices(
    around: Mapping[str, Any], tables: Mapping[str, Mapping[str, type[EndKeys]]]
) -> Iterable[dict[str, Any]]:
    for end, table in tables.items():
        connectors = [
            {
                "type": "object",
                "properties": {
                    "type": {"const": word},
                    "properties": {"$ref": _REF.format(name=kind.__name__)},
                },
                "required": ["type"],
                "additionalProperties": False,
            }
            for word, kind in table.items()
        ]
        yield _vertex([end], around, "connector", {"oneOf": [*connectors, _BY_URI]})
    for word, kind in OPERATORS.items():
        yield _vertex(_words(word), around, "config", {"$ref": _REF.format(name=kind.__name__)})


def _vertex(
    words: list[str], around: Mapping[str, Any], key: str, value: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"}, "operator": {"enum": words}, **around, key: value,
        },
        "required": ["id", "operator"],
        "additionalProperties": False,
    }  # fmt: skip
