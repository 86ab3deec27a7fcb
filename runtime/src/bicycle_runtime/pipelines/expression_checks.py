"""The expressions of a pipeline, compiled over the fields that their records have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bicycle_runtime.expressions.types import CompiledExpressions, ExpressionInvalidError
from bicycle_runtime.pipelines.checking import Checks, label_of
from bicycle_runtime.pipelines.documents import KeyPath
from bicycle_runtime.pipelines.errors import SQL_EXTRA_MISSING
from bicycle_runtime.pipelines.field_types import Fields, fields_behind

__all__ = ["NodeExpressions", "compiled_expressions"]

_Compile = Callable[[Mapping[str, str], Mapping[str, Any]], CompiledExpressions]


class NodeExpressions(NamedTuple):
    """The expressions of an operator, and which other fields of its records stay."""

    compiled: CompiledExpressions
    kept: tuple[str, ...]


def compiled_expressions(checks: Checks, nodes: Sequence[Any]) -> dict[str, NodeExpressions]:
    """Return what computes the expressions of each node that has some, by its id.

    Args:
        checks: Takes the problems.
        nodes: All nodes, senders first.

    Raises:
        SQL_EXTRA_MISSING: there are expressions, and the libraries are not installed.
    """
    if not any(_texts(node) for node in nodes):
        return {}
    compile_all = _compiler(checks.document.file)
    fields: dict[str, Fields] = {}
    keys: dict[str, str | None] = {}
    found: dict[str, NodeExpressions] = {}
    for node in nodes:
        inputs = [None if each.output == "late" else fields.get(each.node) for each in node.inputs]
        key = keys.get(node.inputs[0].node) if node.inputs else None
        keys[node.id] = getattr(node.spec, "field", None) if node.operator == "key_by" else key
        behind = fields_behind(node, inputs, key=key)
        if _texts(node):
            compiled = _compiled(checks, node, inputs[0], compile_all=compile_all)
            if compiled is not None:
                is_set = node.operator == "map" and node.spec.select is None
                found[node.id] = NodeExpressions(compiled, tuple(behind or ()) if is_set else ())
                behind = _changed(node, behind, compiled)
        fields[node.id] = behind
    return found


def _texts(node: Any) -> dict[str, str]:
    if node.operator == "filter" and node.spec.where is not None:
        return {"where": node.spec.where}
    if node.operator == "map":
        return dict(node.spec.set or node.spec.select or {})
    return {}


def _compiler(file: str) -> _Compile:
    try:
        # Slow to import, an extra, and needed by pipelines with expressions alone.
        from bicycle_runtime.expressions.compiling import compile_expressions
    except ModuleNotFoundError as error:
        raise SQL_EXTRA_MISSING(file=file, missing=error.name or "a library") from error
    return compile_expressions


def _compiled(
    checks: Checks, node: Any, fields: Fields, *, compile_all: _Compile
) -> CompiledExpressions | None:
    path: KeyPath = (*node.path, "config") if node.path[0] == "vertices" else node.path
    table = "select" if node.operator == "map" and node.spec.select is not None else "set"
    if fields is None:
        text = (
            f"{node.id!r} has expressions, and the fields of its records are not known: give the "
            "source `fields` with their types"
        )
        checks.note((*path, "where" if node.operator == "filter" else table), text)
        return None
    try:
        compiled = compile_all(_texts(node), fields)
    except ExpressionInvalidError as error:
        at = (*path, "where") if node.operator == "filter" else (*path, table, error.name)
        checks.note(at, f"{label_of(at)}: {error}")
        return None
    if node.operator == "filter" and compiled.types != ("bool",):
        at = (*path, "where")
        checks.note(at, f"{label_of(at)} gives {compiled.types[0]}; expected true or false")
        return None
    return compiled


def _changed(node: Any, behind: Fields, compiled: CompiledExpressions) -> Fields:
    """Return the fields of records behind expressions."""
    if node.operator == "filter":
        return behind
    given = dict(zip(compiled.names, compiled.types, strict=True))
    return given if node.spec.select is not None else {**(behind or {}), **given}
