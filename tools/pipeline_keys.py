"""The tables of the page on the keys of pipelines: made of the structs that check a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

import msgspec
from msgspec import inspect

from bicycle_runtime.endpoints.job_settings import Settings
from bicycle_runtime.endpoints.sinks import SINKS
from bicycle_runtime.endpoints.sources import SOURCES, SourceKeys
from bicycle_runtime.pipelines.model import Edge, Ops, Pipeline, Test
from bicycle_runtime.pipelines.nodes import Around
from bicycle_runtime.pipelines.operator_keys import ALIASES, OPERATORS, Aggregate, Time, WindowSize
from bicycle_runtime.pipelines.values import ErrorRule

__all__ = ["pipelines_reference"]

_TABLES = (
    ("The whole file", Pipeline),
    ("`config`", Settings),
    ("`on_error` as a table", ErrorRule),
    ("Every source, sink, step and vertex", Around),
    ("`time`", Time),
    ("`window`", WindowSize),
    ("`ops`", Ops),
    ("`aggregates`", Aggregate),
    ("`edges`", Edge),
    ("`test`", Test),
)
_NAMES = {
    inspect.AnyType: "anything",
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.NoneType: "nothing",
}


_MEANINGS = {
    "duration": "a time",
    "size": "a size",
    "secret": "`env:NAME` or `file:PATH`",
    "list": "a text with commas",
}


def pipelines_reference() -> str:
    """Return a table for each part of a pipeline."""
    lines: list[str] = []
    for title, kind in _TABLES:
        lines += _table(f"## {title}", kind)
    tables = (
        ("Sources", SOURCES.load_all()),
        ("Sinks", SINKS.load_all()),
        ("Operators", OPERATORS),
    )
    for title, kinds in tables:
        lines += [f"## {title}", ""]
        if title == "Sources":
            lines += _table("### Every source", SourceKeys)
        for word, kind in kinds.items():
            also = [f"`{other}`" for other, meant in ALIASES.items() if meant == word]
            hidden = set(SourceKeys.__struct_fields__) if title == "Sources" else set()
            lines += _table(f"### {title[:-1]} `{word}`", kind, also=also, hidden=hidden)
    return "\n".join(lines)


def _table(
    heading: str,
    kind: type[msgspec.Struct],
    also: list[str] | None = None,
    hidden: Set[str] = frozenset(),
) -> list[str]:
    text = " ".join((kind.__doc__ or "").split())
    if also:
        text += f" Also written {', '.join(also)}."
    lines = [heading, "", text, ""]
    rows = list(_rows(kind, hidden))
    if not rows:
        return lines
    return [*lines, "| key | accepts | default | description |", "|---|---|---|---|", *rows, ""]


def _rows(kind: type[msgspec.Struct], hidden: Set[str]) -> Iterator[str]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    aliases: dict[str, list[str]] = {}
    for alias, name in getattr(kind, "aliases", {}).items():
        aliases.setdefault(name, []).append(f"`{alias}`")
    for field in info.fields:
        if field.encode_name in hidden:
            continue
        also = ", ".join(aliases.get(field.encode_name, ()))
        about = _description(field.type) + (f" Also named {also}." if also else "")
        cells = [_accepts(field.type), _default(field), about]
        text = " | ".join(cell.replace("|", r"\|") for cell in cells)
        yield f"| `{field.encode_name}` | {text} |"


def _description(info: Any) -> str:
    """Return the description of a key, wherever in its type it stands."""
    if isinstance(info, inspect.Metadata):
        extra = info.extra_json_schema or {}
        return str(extra.get("description", "")) or _description(info.type)
    if isinstance(info, inspect.UnionType):
        return next((text for each in info.types if (text := _description(each))), "")
    return "See below." if isinstance(info, inspect.StructType) else ""


def _accepts(info: Any) -> str:
    if isinstance(info, inspect.Metadata):
        extra = info.extra or {}
        meaning = _MEANINGS.get(extra.get("kind", ""))
        if words := [word for word in extra.get("words", ()) if "?" not in word]:
            return ", ".join(f"`{word}`" for word in [*words, "decimal(12,2)"])
        return _accepts(info.type) if meaning is None else meaning
    maker = _MAKERS.get(type(info))
    return _NAMES[type(info)] if maker is None else maker(info)


def _union(info: inspect.UnionType) -> str:
    parts = [_accepts(each) for each in info.types if not isinstance(each, inspect.NoneType)]
    return " or ".join(dict.fromkeys(parts))


def _number(info: inspect.IntType | inspect.FloatType) -> str:
    low, high = info.ge, info.le
    bounds = "" if low is None else f", {low} or more" if high is None else f", {low} to {high}"
    return _NAMES[type(info)] + bounds


def _plural(info: Any) -> str:
    text = _accepts(info)
    return _PLURALS.get(text, f"values: {text}")


_PLURALS = {
    "anything": "values",
    "a table": "tables",
    "text": "texts",
    "a list of values": "lists of values",
}
_MAKERS: dict[type, Callable[[Any], str]] = {
    inspect.UnionType: _union,
    inspect.LiteralType: lambda info: ", ".join(f"`{value}`" for value in info.values),
    inspect.ListType: lambda info: f"a list of {_plural(info.item_type)}",
    inspect.DictType: lambda info: f"a table of {_plural(info.value_type)}",
    inspect.StructType: lambda _: "a table",
    inspect.IntType: _number,
    inspect.FloatType: _number,
}


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is None and isinstance(field.type, inspect.Metadata):
        value = (field.type.extra or {}).get("default")
    if value in (None, "", msgspec.NODEFAULT) or isinstance(value, msgspec.Struct):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
