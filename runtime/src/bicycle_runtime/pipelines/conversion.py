"""Conversion of pipelines: to the other notation, or to the other form.

Ids stay, so the graph stays, and with it the state of a job that continues with the new file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from bicycle_runtime.endpoints.checking import label_of
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.pipelines.documents import Notation, yaml_dumper
from bicycle_runtime.pipelines.errors import (
    PIPELINE_INVALID,
    PIPELINE_NOT_SHORT,
    PIPELINE_UNREADABLE,
)
from bicycle_runtime.pipelines.model import Ops
from bicycle_runtime.pipelines.nodes import (
    CheckedPipeline,
    Node,
    check_pipeline,
    default_key_name,
)
from bicycle_runtime.pipelines.operator_keys import Window, WindowSize, size_ms
from bicycle_sdk.errors import BicycleError

Form = Literal["short", "vertices"]


def form_of(pipeline: CheckedPipeline) -> Form:
    """Return the form in which a pipeline is written."""
    return "vertices" if pipeline.document.data.get("vertices") else "short"


def write_document(data: Mapping[str, Any], notation: Notation, *, file: str = "pipeline") -> str:
    """Return data of a pipeline as text.

    Args:
        data: The data.
        notation: How it is written.
        file: Name of the file, for errors.

    Raises:
        PIPELINE_UNREADABLE: it has a null, and the notation has none.
    """
    if notation == "toml":
        # Slow to import, and needed here alone.
        import tomlkit

        if (path := _path_of_null(data)) is not None:
            problem = f"{label_of(path)} is null, which TOML does not have"
            raise PIPELINE_UNREADABLE(file=file, problem=problem, hint="keep YAML")
        return tomlkit.dumps(_with_lines(data, partial(tomlkit.string, multiline=True)))
    # As above.
    import yaml

    text: str = yaml.dump(
        data, Dumper=yaml_dumper(), sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _path_of_null(value: Any, path: KeyPath = ()) -> KeyPath | None:
    """Return the path of the first null in data, or None."""
    if value is None:
        return path
    items = enumerate(value) if isinstance(value, list) else ()
    pairs = value.items() if isinstance(value, dict) else items
    paths = (_path_of_null(item, (*path, key)) for key, item in pairs)
    return next((found for found in paths if found is not None), None)


def _with_lines(value: Any, string: Callable[[str], Any]) -> Any:
    """Return data in which texts of several lines keep their lines."""
    match value:
        case str():
            return string(value) if "\n" in value else value
        case dict():
            return {key: _with_lines(item, string) for key, item in value.items()}
        case list():
            return [_with_lines(item, string) for item in value]
    return value


def pipeline_data(pipeline: CheckedPipeline, form: Form) -> dict[str, Any]:
    """Return the keys of a pipeline in a form, without default values.

    Raises:
        PIPELINE_NOT_SHORT: it has parts that the short form lacks.
    """
    found: dict[str, Any] = {"name": pipeline.name}
    if pipeline.description:
        found["description"] = pipeline.description
    if config := changed_keys(pipeline.settings):
        found["config"] = config
    if pipeline.on_error is not None:
        found["on_error"] = _plain(pipeline.on_error)
    found |= _as_vertices(pipeline.nodes) if form == "vertices" else _as_short(pipeline)
    if pipeline.tests:
        found["test"] = [changed_keys(test) for test in pipeline.tests]
    if form == "short":
        _require_same(pipeline, found)
    return found


def changed_keys(spec: Any) -> dict[str, Any]:
    """Return the keys of a struct that differ from their defaults."""
    fields = msgspec.structs.fields(type(spec))
    found = {}
    for each in fields:
        value = getattr(spec, each.name)
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if value != default:
            found[each.encode_name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return changed_keys(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _around(node: Node) -> dict[str, Any]:
    """Return the settings of a node besides its keys."""
    given = {"name": node.name, "parallelism": node.parallelism, "on_error": node.on_error}
    return {key: _plain(value) for key, value in given.items() if value is not None}


# --- vertices and edges --------------------------------------------------------------------------


def _as_vertices(nodes: Sequence[Node]) -> dict[str, Any]:
    edges = [_edge(node, index) for node in nodes for index in range(len(node.inputs))]
    return {"vertices": [_vertex(node) for node in nodes], "edges": edges}


def _vertex(node: Node) -> dict[str, Any]:
    found = {"id": node.id, "operator": node.operator, **_around(node)}
    keys = changed_keys(node.spec)
    if node.word:
        found["connector"] = {"type": node.word, **({"properties": keys} if keys else {})}
    elif keys:
        found["config"] = keys
    return found


def _edge(node: Node, index: int) -> dict[str, Any]:
    given = node.inputs[index]
    found = {"from": given.node, "to": node.id}
    if given.partition != "forward":
        found["partition"] = given.partition
    if given.output is not None:
        found["output"] = given.output
    return found


# --- the short form ------------------------------------------------------------------------------


def _as_short(pipeline: CheckedPipeline) -> dict[str, Any]:
    _require_line(pipeline)
    source, *between, sink = pipeline.nodes
    found: dict[str, Any] = {"source": _end(source)}
    if between and between[0].operator == "time":
        found["time"] = changed_keys(between.pop(0).spec)
    computed = between[-2:] if _is_computed(between[-2:]) else []
    if steps := between[: len(between) - len(computed)]:
        found["steps"] = [
            {"operator": node.operator, "id": node.id, **_around(node), **changed_keys(node.spec)}
            for node in steps
        ]
    if computed:
        found |= _compute(pipeline, *computed)
    return {**found, "sink": _end(sink)}


def _require_line(pipeline: CheckedPipeline) -> None:
    """Refuse branches, and edges with more than a plain connection."""
    before: Node | None = None
    for node in pipeline.nodes:
        inputs = [] if before is None else [before.id]
        if [each.node for each in node.inputs] != inputs:
            raise _not_short(pipeline, f"{node.id!r} does not follow only the previous vertex")
        has_key = node.operator == "count" or "key_by" in (
            node.operator,
            before and before.operator,
        )
        for each in node.inputs:
            if each.partition != "forward" and not (each.partition == "hash" and has_key):
                raise _not_short(pipeline, f"the edge to {node.id!r} names a partition")
            if each.output is not None:
                raise _not_short(pipeline, f"the edge to {node.id!r} names an output")
        before = node
    if before is None or before.operator != "sink":
        raise _not_short(pipeline, "it has several sinks")


def _require_same(pipeline: CheckedPipeline, data: dict[str, Any]) -> None:
    """Refuse a short form that is not valid, or has other vertices."""
    try:
        nodes = check_pipeline(
            replace(pipeline.document, data=data, text="", keys={}, values={})
        ).nodes
    except BicycleError as error:
        if error.code != PIPELINE_INVALID.code:
            raise
        raise _not_short(pipeline, error.facts["problems"][0]["text"]) from error
    for node, short in zip(pipeline.nodes, nodes, strict=False):
        if node.operator != short.operator:
            raise _not_short(pipeline, f"{short.id!r} would be before {node.id!r}")
        if node.id != short.id:
            raise _not_short(pipeline, f"its {node.operator} has the id {node.id!r}")
        own, other = _meaning(node), _meaning(short)
        for name in {**own, **other}:
            if own.get(name) != other.get(name):
                raise _not_short(pipeline, f"{name} of {node.id!r} has no counterpart")


def _meaning(node: Node) -> dict[str, Any]:
    """Return the settings and keys of a node, the same for two ways to write them."""
    found = _around(node) | changed_keys(node.spec)
    if isinstance(node.spec, Window):
        found |= {"size": size_ms(node.spec), "window_ms": None}
    if "aggregates" in found:
        found["agg"] = None
    return found


def _end(node: Node) -> dict[str, Any]:
    return {"kind": node.word, **_around(node), **changed_keys(node.spec)}


def _is_computed(nodes: Sequence[Node]) -> bool:
    """Return whether nodes are the key and the aggregates of the short form."""
    if [(node.id, node.operator) for node in nodes] not in (_KEY_AND_WINDOW, _KEY_AND_REDUCE):
        return False
    key, result = nodes
    has_function = getattr(result.spec, "function", None) is not None
    return key.spec.field is not None and not (has_function or any(map(_around, nodes)))


_KEY_AND_WINDOW = [("key", "key_by"), ("window", "window")]
_KEY_AND_REDUCE = [("key", "key_by"), ("reduce", "reduce")]


def _compute(pipeline: CheckedPipeline, key: Node, result: Node) -> dict[str, Any]:
    ops = {"count_by": key.spec.field}
    ops |= {name: _plain(getattr(result.spec, name)) for name in _changed_ops(result.spec)}
    times = (node.spec for node in pipeline.nodes if node.operator == "time")
    if result.spec.key_name != default_key_name(next(times, None), key.spec.field):
        ops["key_name"] = result.spec.key_name
    if not isinstance(result.spec, Window):
        return {"ops": ops}
    size = {
        name: value
        for name, value in changed_keys(result.spec).items()
        if name in WindowSize.__struct_fields__
    }
    if not {"size", "gap", "records"} & size.keys():
        size["size"] = f"{size_ms(result.spec)}ms"
    return {"window": {"type": result.spec.type, **size}, "ops": ops}


def _changed_ops(spec: Any) -> list[str]:
    """Return the computation keys that differ from their defaults."""
    names = [
        each.name
        for each in msgspec.structs.fields(Ops)
        if each.name not in ("count_by", "key_name")
    ]
    changed = changed_keys(spec)
    return [name for name in names if name in changed]


def _not_short(pipeline: CheckedPipeline, reason: str) -> Exception:
    return PIPELINE_NOT_SHORT(file=pipeline.document.file, reason=reason)
