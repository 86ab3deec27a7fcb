"""Fields that the records of a pipeline have, and expressions compiled over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bicycle_runtime.endpoints.checking import Checks, label_of, likely
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.expressions.sql.steps import CompiledExpressions, ExpressionInvalidError
from bicycle_runtime.pipelines.aggregates import wanted_aggregates
from bicycle_runtime.pipelines.errors import SQL_EXTRA_MISSING
from bicycle_runtime.pipelines.queries import Fields, QueryChecks

_MESSAGE_FIELDS = {"_topic": "string", "_partition": "int", "_offset": "int"}
_SUMS = ("sum", "min", "max")


def fields_behind(node: Any, inputs: list[Fields], *, key: str | None) -> Fields:
    """Return the fields of an operator's output records, or None if unknown.

    Args:
        node: The operator. The compilers of expressions add their results.
        inputs: The fields of its inputs.
        key: The field that its input has as a key.
    """
    first = inputs[0] if inputs else None
    if node.operator == "source":
        declared = node.spec.fields
        found: Fields = None
        if declared is not None:
            found = {name: word.removesuffix("?") for name, word in declared.items()}
        is_message = node.spec.adds_message
        return {**found, **_MESSAGE_FIELDS} if found is not None and is_message else found
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
    if spec.agg is None and spec.aggregates is None:  # It has a function, or they are wrong.
        return None
    found = {spec.key_name: (first or {}).get(key or "", "json")}
    for name, agg, field in wanted_aggregates(spec):
        declared = (first or {}).get(field or "")
        is_number = (declared or "").startswith(("int", "float", "decimal"))
        is_kept = agg in _SUMS and (is_number or agg != "sum")
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

_Compile = Callable[[Mapping[str, str], Mapping[str, Any]], CompiledExpressions]


class NodeExpressions(NamedTuple):
    """The expressions of an operator, and which other fields of its records stay."""

    compiled: CompiledExpressions
    kept: tuple[str, ...]


def compiled_expressions(
    checks: Checks, nodes: Sequence[Any]
) -> tuple[dict[str, NodeExpressions], dict[str, tuple[str, ...]], QueryChecks]:
    """Return expressions and known input fields of each node, and the queries.

    Names of fields are checked, too, if the fields of records are known.

    Args:
        checks: Takes the problems; where it has some, nodes may be missing.
        nodes: All nodes, senders first.

    Raises:
        SQL_EXTRA_MISSING: there are expressions, and the libraries are not installed.
    """
    has_texts = any(map(_texts, nodes))
    compile_all = _compiler(checks.document.file) if has_texts else None
    is_partial = bool(checks.problems)
    unsure: set[str] = set()  # Nodes of which some fields have an unknown type.
    keys: dict[str, str | None] = {}
    found: dict[str, NodeExpressions] = {}
    given: dict[str, tuple[str, ...]] = {}
    queries = QueryChecks(checks, nodes)
    fields = queries.fields
    for node in nodes:
        inputs = [None if each.output == "late" else fields.get(each.node) for each in node.inputs]
        if node.operator == "join" and len(inputs) < _JOINED:
            continue
        key = keys.get(node.inputs[0].node) if node.inputs else None
        keys[node.id] = getattr(node.spec, "field", None) if node.operator == "key_by" else key
        _check_names(checks, node, inputs)
        behind = fields_behind(node, inputs, key=key)
        first = inputs[0] if inputs else None
        if node.operator == "join" and not is_partial:
            _check_join(checks, node, inputs)
        if first is not None and (len(inputs) == 1 or node.operator == "join"):
            given[node.id] = tuple(first)
        is_unsure = any(each.node in unsure for each in node.inputs)
        queries.follow_time(node)
        if node.operator == "sql":
            is_unsure = is_unsure or (is_partial and None in inputs)
            behind = queries.check(node, inputs) if inputs and not is_unsure else None
            is_unsure = behind is None
        if compile_all is not None and _texts(node):
            compiled = None
            if not is_unsure and not (is_partial and first is None):
                compiled = _compile(checks, node, first, compile_all=compile_all)
            if compiled is None:
                is_unsure = is_unsure or node.operator == "map"
            else:
                is_set = node.operator == "map" and node.spec.select is None
                found[node.id] = NodeExpressions(compiled, tuple(behind or ()) if is_set else ())
            behind = _fields_behind(node, behind, compiled)
        fields[node.id] = behind
        if is_unsure:
            unsure.add(node.id)
    return found, given, queries


_JOINED = 2


def _check_names(checks: Checks, node: Any, inputs: Sequence[Fields]) -> None:
    """Take note of fields that an operator names and its records do not have."""
    known = [each for each in inputs if each is not None]
    for path, name in _named_fields(node) if known and len(known) == len(inputs) else ():
        for fields in known:
            if name not in fields:
                near = likely(name, fields)
                hint = f"did you mean {near!r}? " if near else ""
                has = ", ".join(sorted(fields))
                text = f"{label_of(path)}: there is no field {name!r}; {hint}the record has {has}"
                checks.note(path, text)
                break


def _check_join(checks: Checks, node: Any, inputs: Sequence[Fields]) -> None:
    """Note keys that never match, and right rows with names of unknown left rows."""
    left, right = inputs[:_JOINED]
    if left is None and node.spec.how in ("right", "full"):
        path = (*_path_of(node, "how"), "how")
        text = (
            f"{label_of(path)} is {node.spec.how}, but the fields of the left records are unknown, "
            "which a right row without a match must not take: add `fields` with types to the source"
        )
        checks.note(path, text)
    for index, name in enumerate(node.spec.on):
        words = [(fields or {}).get(name, "json") for fields in (left, right)]
        if "string" in words and {word.partition("(")[0] for word in words} & _NUMBERS:
            path = (*_path_of(node, "on"), "on", index)
            text = f"{label_of(path)}: {name!r} is {words[0]} on the left and {words[1]} on the"
            checks.note(path, f"{text} right, which are never equal: convert one of them in a map")


_NUMBERS = frozenset({"int", "float", "bool", "decimal"})  # Those of equal value are equal.


# The keys of operators whose values are names of fields, or lists or tables of them.
_NAMED_BY: Mapping[str, Sequence[str]] = {
    "filter": ("field",),
    "key_by": ("field", "fields"),
    "map": ("drop",),
    "dedup": ("fields",),
    "enrich": ("key",),
    "lookup": ("key",),
    "split": ("field",),
    "time": ("field",),
    "window": ("agg_field", "aggregates"),
    "reduce": ("agg_field", "aggregates"),
    "join": ("on",),
    "sink": ("columns", "key_field", "delete_field"),
}


def _named_fields(node: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield the field names in a node's keys, with their locations."""
    for key in _NAMED_BY.get(node.operator, ()):
        is_end = node.operator == "sink"
        value = node.spec.value_of(key) if is_end else getattr(node.spec, key, None)
        path: KeyPath = (*_path_of(node, key), _IN_OPS.get((node.path, key), key))
        match value:
            case str():
                yield path, value
            case dict():
                yield from (((*path, name), name) for name in value)
            case list():
                for index, each in enumerate(value):
                    name = each if isinstance(each, str) else each.field
                    at = (*path, index) if isinstance(each, str) else (*path, index, "field")
                    if name is not None:
                        yield at, name


def _path_of(node: Any, key: str) -> KeyPath:
    path: KeyPath = node.path
    if path == ("window",) and key != "field":
        return ("ops",)  # The short form's computations are in a table of its own.
    if path[0] != "vertices":
        return path
    return (*path, "connector", "properties") if node.operator == "sink" else (*path, "config")


_IN_OPS: Mapping[tuple[KeyPath, str], str] = {(("ops",), "field"): "count_by"}


def _texts(node: Any) -> dict[str, str]:
    if node.operator == "filter" and node.spec.where is not None:
        return {"where": node.spec.where}
    if node.operator == "map":
        return dict(node.spec.set or node.spec.select or {})
    return {}


def _compiler(file: str) -> _Compile:
    try:
        # Slow to import, an extra, and needed by pipelines with expressions alone.
        from bicycle_runtime.expressions.sql.compiling import compile_expressions
    except ModuleNotFoundError as error:
        raise SQL_EXTRA_MISSING(file=file, missing=error.name or "a library") from error
    return compile_expressions


def _compile(
    checks: Checks, node: Any, fields: Fields, *, compile_all: _Compile
) -> CompiledExpressions | None:
    path: KeyPath = (*node.path, "config") if node.path[0] == "vertices" else node.path
    table = "select" if node.operator == "map" and node.spec.select is not None else "set"
    if fields is None:
        text = (
            f"{node.id!r} has expressions, but the fields of its records are unknown: add "
            "`fields` with types to the source"
        )
        checks.note((*path, "where" if node.operator == "filter" else table), text)
        return None
    try:
        compiled = compile_all(_texts(node), fields)
    except ExpressionInvalidError:
        for name, text in _texts(node).items():  # There may be more than the first.
            try:
                compile_all({name: text}, fields)
            except ExpressionInvalidError as error:
                at = (*path, "where") if node.operator == "filter" else (*path, table, name)
                checks.note(at, f"{label_of(at)}: {error}")
        return None
    if node.operator == "filter" and compiled.types != ("bool",):
        at = (*path, "where")
        checks.note(at, f"{label_of(at)} has the type {compiled.types[0]}; expected true or false")
        return None
    return compiled


def _fields_behind(node: Any, behind: Fields, compiled: CompiledExpressions | None) -> Fields:
    """Return the fields of records after expressions, including invalid expressions."""
    if node.operator == "filter":
        return behind
    given = dict.fromkeys(_texts(node), "json")
    if compiled is not None:
        given = dict(zip(compiled.names, compiled.types, strict=True))
    if node.spec.select is not None:
        return given
    return None if behind is None else {**behind, **given}
