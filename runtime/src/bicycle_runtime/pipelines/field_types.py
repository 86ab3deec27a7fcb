"""Which fields the records of each operator have, as far as a pipeline says so.

The source declares them, and each operator changes them as its keys tell. What a function of
somebody's gives is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.pipelines.aggregates import result_names

__all__ = ["Fields", "fields_behind"]

Fields = Mapping[str, str] | None
_MESSAGE_FIELDS = {"_topic": "string", "_partition": "int", "_offset": "int"}
_SUMS = ("sum", "min", "max")


def fields_behind(node: Any, inputs: list[Fields], *, key: str | None) -> Fields:
    """Return the fields of the records that an operator gives; None where they are not known.

    Args:
        node: The operator. What expressions give is added by those who compile them.
        inputs: The fields of what it takes.
        key: The field that its input has as a key.
    """
    first = inputs[0] if inputs else None
    if node.operator == "source":
        found: Fields = getattr(node.spec, "fields", None)
        is_any = getattr(node.spec, "format", None) == "any"
        return {**found, **_MESSAGE_FIELDS} if found is not None and is_any else found
    rule = _RULES.get(node.operator)
    return None if rule is None else rule(node.spec, first, inputs, key)


def _same(_spec: Any, first: Fields, _inputs: list[Fields], _key: str | None) -> Fields:
    return first


def _map(spec: Any, first: Fields, _inputs: list[Fields], _key: str | None) -> Fields:
    if spec.function is not None or first is None:
        return None
    dropped = spec.drop or []
    return {name: word for name, word in first.items() if name not in dropped}


def _union(_spec: Any, first: Fields, inputs: list[Fields], _key: str | None) -> Fields:
    return first if all(each == first for each in inputs) else None


def _enrich(spec: Any, first: Fields, _inputs: list[Fields], _key: str | None) -> Fields:
    is_csv = spec.format == "csv" or (spec.format is None and spec.path.endswith(".csv"))
    if first is None or spec.fields is None or not is_csv:
        return None
    return {**first, **dict.fromkeys(spec.fields, "string")}


def _join(spec: Any, first: Fields, inputs: list[Fields], _key: str | None) -> Fields:
    second = inputs[1]
    if first is None or second is None:
        return None
    found = dict(first)
    for name, word in second.items():
        if name not in first:
            found[name] = word
        elif name not in spec.on:
            found[spec.prefix + name] = word
    return found


def _window(spec: Any, first: Fields, inputs: list[Fields], key: str | None) -> Fields:
    bounds = {"window_start_ms": "int", "window_end_ms": "int"}
    return {**bounds, **(_reduce(spec, first, inputs, key) or {})}


def _reduce(spec: Any, first: Fields, _inputs: list[Fields], key: str | None) -> Fields:
    if getattr(spec, "function", None) is not None:
        return None
    several = getattr(spec, "aggregates", None)
    wanted = (
        [(each.agg, each.field) for each in several]
        if several is not None
        else [(spec.agg, spec.agg_field)]
    )
    found = {"key": (first or {}).get(key or "", "json")}
    for name, (agg, field) in zip(result_names(spec), wanted, strict=True):
        declared = (first or {}).get(field or "")
        is_kept = agg in _SUMS and (declared in ("int", "float") or agg != "sum")
        whole = "int" if agg in ("count", "distinct") else "float"
        found[name] = declared or "json" if is_kept else whole
    return found


_RULES: Mapping[str, Callable[[Any, Fields, list[Fields], str | None], Fields]] = {
    "time": _same,
    "filter": _same,
    "key_by": _same,
    "dedup": _same,
    "split": _same,
    "rate_limit": _same,
    "map": _map,
    "union": _union,
    "enrich": _enrich,
    "join": _join,
    "window": _window,
    "reduce": _reduce,
}
