"""Rules between the keys of one operator, beyond their types."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from bicycle_runtime.endpoints.checking import Checks, check_address, check_secret, label_of, likely
from bicycle_runtime.endpoints.ends import EndKeys
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.pipelines.aggregates import result_names
from bicycle_runtime.pipelines.builtin_functions import FILTERS, FLAT_MAPS, MAPS
from bicycle_runtime.pipelines.http_calls import fields_in_url
from bicycle_runtime.pipelines.operator_keys import (
    Filter,
    FlatMap,
    HttpCall,
    Join,
    KeyBy,
    Lookup,
    Map,
    Reduce,
    Time,
    Window,
)

_OPS = ("sum", "avg", "distinct")
_BOUNDS = ("window_start_ms", "window_end_ms")
# Operators that use the key of their input, and those whose records do not depend on a key before.
_OF_KEYS = ("count", "reduce", "window")
_KEY_ENDS = ("source", "key_by", "join", "process", "sql", *_OF_KEYS)
# Keys of windows of some types only.
_KEYS_OF_TYPES: Mapping[str, Sequence[str]] = {
    "records": ["count"], "every": ["count"], "slide": ["sliding"], "gap": ["session"],
    "offset": ["tumbling", "sliding"], "keep": ["tumbling", "sliding", "session"],
}  # fmt: skip


def check_node(checks: Checks, operator: str, spec: Any, path: KeyPath) -> None:
    """Note contradictions between the keys of one operator."""
    if operator in _RULES:
        is_end = operator in ("source", "sink")
        below = ("connector", "properties") if is_end else ("config",)
        _RULES[operator](checks, spec, (*path, *below) if path[0] == "vertices" else path)


def check_times(checks: Checks, nodes: Sequence[Any]) -> None:
    """Note windows that need event time from upstream, but get no event time.

    Args:
        checks: Takes the problems.
        nodes: All nodes, senders first.
    """
    by_id = {node.id: node for node in nodes}
    timed = timed_ids(nodes)
    for node in nodes:
        if node.operator == "window" and node.id not in timed:
            _check_window(checks, node)
        if node.operator == "time" and node.spec.field is None:
            _check_time(checks, node, sources_before(node, by_id))


def timed_ids(nodes: Iterable[Any]) -> set[str]:
    """Return the ids of nodes whose records have an event time; senders are first."""
    timed: set[str] = set()
    for node in nodes:
        if node.operator == "time" or any(each.node in timed for each in node.inputs):
            timed.add(node.id)
    return timed


def check_keys(checks: Checks, nodes: Sequence[Any]) -> None:
    """Note results by key for records whose key was lost after its ``key_by``.

    Args:
        checks: Takes the problems.
        nodes: All nodes.
    """
    by_id = {node.id: node for node in nodes}
    for node in nodes:
        if node.operator not in _OF_KEYS or not node.inputs:
            continue
        given = node.inputs[0]
        before = by_id.get(given.node)
        is_kept = given.partition in ("forward", "hash")
        if before is None or (before.operator == "key_by" and is_kept):
            continue
        for key in _ends_before(node, by_id, _KEY_ENDS):
            if key.operator != "key_by":
                continue
            why = f"{before.id!r} is between them"
            if before is key:
                why = f"the edge between them has the partition {given.partition}"
            text = f"{node.id!r} receives records without the key of {key.id!r}, because {why}"
            checks.note(node.path, f"{text}: put a key_by directly before {node.id!r}")


def sources_before(node: Any, by_id: Mapping[str, Any]) -> list[Any]:
    """Return the sources whose records reach a node with the source's event times."""
    ends = _ends_before(node, by_id, ("source", "window", "join"))  # Two of them return times.
    return [each for each in ends if each.operator == "source"]


def _ends_before(node: Any, by_id: Mapping[str, Any], operators: Container[str]) -> list[Any]:
    """Return the nearest nodes of some operators upstream of a node."""
    found, left, seen = [], [node], {node.id}
    while left:
        each = left.pop(0)
        if each is not node and each.operator in operators:
            found.append(each)
            continue
        ids = [one.node for one in each.inputs if one.node in by_id and one.node not in seen]
        seen.update(ids)
        left += [by_id[uid] for uid in dict.fromkeys(ids)]
    return found


def _check_time(checks: Checks, node: Any, sources: Sequence[Any]) -> None:
    """Check that the sources of a time operator have event times in one field."""
    fields = {source.id: source.spec.time_field for source in sources}
    for source in sources:
        if fields[source.id] is None and not source.spec.has_times:
            text = f"{source.id!r} has no event time: set its `timestamp_field`, or `field` in time"
            checks.note(node.path, text)
    told = {fields[each.id] for each in sources if fields[each.id] and not each.spec.reads_time}
    if told and len(set(fields.values())) > 1:
        text = f"{', '.join(fields)} have their event time in different fields: set `field`"
        checks.note(node.path, text)


def _check_window(checks: Checks, node: Any) -> None:
    path = (*node.path, "config") if node.path[0] == "vertices" else node.path
    needs = [name for name in ("offset", "keep") if getattr(node.spec, name) is not None]
    if node.spec.type in ("sliding", "session"):
        needs = ["type"]
    for name in needs if node.spec.type != "count" else ():
        value = getattr(node.spec, name)
        where = "a vertex `time` upstream"
        if node.path[0] != "vertices":
            where = "the source `timestamp_field`"
        text = f"{label_of((*path, name))} is {value}, which needs event time: set {where}"
        checks.note((*path, name), text)


def _only_one(checks: Checks, spec: Any, path: KeyPath, keys: Sequence[str]) -> None:
    """Note several keys of which an operator takes only one."""
    given = [name for name in keys if getattr(spec, name) is not None]
    if len(given) > 1:
        checks.note((*path, given[1]), f"{' and '.join(given)} are set; use only one")


def _map(checks: Checks, spec: Map, path: KeyPath) -> None:
    for keys in (("function", "select", "set"), ("function", "drop"), ("select", "drop")):
        _only_one(checks, spec, path, keys)
    _function(checks, spec.function, path, words=MAPS)


def _flat_map(checks: Checks, spec: FlatMap, path: KeyPath) -> None:
    _function(checks, spec.function, path, words=FLAT_MAPS)


def _function(checks: Checks, name: str | None, path: KeyPath, *, words: Mapping[str, Any]) -> None:
    """Note a function name that is nearly a built-in word, and not a plugin."""
    near = None if name is None or ":" in name or name in words else likely(name, words)
    if near is not None:
        text = f"unsupported {label_of((*path, 'function'))}: {name}; did you mean {near!r}? "
        checks.note((*path, "function"), f"{text}known: {', '.join(sorted(words))}")


def _filter(checks: Checks, spec: Filter, path: KeyPath) -> None:
    _only_one(checks, spec, path, ("where", "function", "predicate"))
    if spec.where is not None or spec.function is not None:
        for key in ("field", "value"):
            _only_one(checks, spec, path, ("function" if spec.where is None else "where", key))
        return
    if spec.predicate is None and spec.value is not None:
        text = f"{label_of((*path, 'value'))} needs a predicate, such as equals"
        checks.note((*path, "value"), text, at_key=True)
    needs_value = FILTERS[spec.predicate or "non_empty"].needs_value
    if spec.predicate is not None and not needs_value and spec.value is not None:
        text = f"{label_of((*path, 'value'))} has no effect on the predicate {spec.predicate}"
        checks.note((*path, "value"), text, at_key=True)
    if needs_value and spec.value is None:
        label = label_of((*path, "value"))
        checks.missing((*path, "value"), f"{label} must be set for the predicate {spec.predicate}")
    if spec.predicate == "min_length" and spec.value is not None:
        try:
            int(str(spec.value))  # As the predicate reads it.
        except ValueError:
            checks.note((*path, "value"), f"{label_of((*path, 'value'))} is not a whole number")
    if spec.predicate == "exists" and spec.field is None:
        checks.missing((*path, "field"), f"{label_of((*path, 'field'))} must be set for exists")


def _key_by(checks: Checks, spec: KeyBy, path: KeyPath) -> None:
    _only_one(checks, spec, path, ("field", "fields", "function"))


def _window(checks: Checks, spec: Window, path: KeyPath) -> None:
    if not checks.is_wrong((*path, "type")):
        _window_type(checks, spec, path)
    for name in ("size", "slide", "gap"):
        length = getattr(spec, name)
        if length is not None and duration_ms(length) < 1:
            checks.note(
                (*path, name), f"{label_of((*path, name))} is {length}; expected 1ms or more"
            )
    _only_one(checks, spec, path, ("size", "window_ms"))
    _aggregates(checks, spec, ("ops",) if path[0] == "window" else path)


def _window_type(checks: Checks, spec: Window, path: KeyPath) -> None:
    """Ensure that a window has the keys of its type."""
    needed = {"sliding": "slide", "session": "gap", "count": "records"}.get(spec.type)
    if needed is not None and getattr(spec, needed) is None:
        label = label_of((*path, needed))
        checks.missing((*path, needed), f"{label}: {needed} must be set for {spec.type} window")
    if spec.type == "sliding" and spec.size is None:
        label = label_of((*path, "size"))
        checks.missing((*path, "size"), f"{label}: size must be set for sliding window")
    has_size = spec.size is not None or spec.window_ms is not None
    if spec.type == "tumbling" and not has_size and path[0] == "window":
        checks.missing((*path, "size"), "window.size must be set")
    for name, words in _KEYS_OF_TYPES.items():
        if spec.type not in words and getattr(spec, name) is not None:
            label, known = label_of((*path, name)), " or ".join(words)
            text = f"{label} applies to windows of the type {known}, not {spec.type}"
            checks.note((*path, name), text, at_key=True)


def _reduce(checks: Checks, spec: Reduce, path: KeyPath) -> None:
    has_aggregates = spec.agg is not None or spec.aggregates is not None
    is_wrong = checks.is_wrong((*path, "agg")) or checks.is_wrong((*path, "aggregates"))
    if (spec.function is not None) == has_aggregates and not is_wrong:
        label = label_of((*path, "function"))
        checks.missing((*path, "function"), f"exactly one of {label} and agg must be set")
    if has_aggregates:
        _aggregates(checks, spec, path)


def _aggregates(checks: Checks, spec: Window | Reduce, path: KeyPath) -> None:
    """Check that aggregates of fields name a field, and have distinct names."""
    agg = spec.agg
    _key_name(checks, spec, path)
    if spec.aggregates is None:
        if agg not in (None, "count") and not spec.agg_field:
            _agg_field(checks, agg, path)
        if agg == "count" and spec.agg_field is not None:
            _note_count(checks, (*path, "agg_field"))
        return
    for key in ("agg", "agg_field"):
        if getattr(spec, key) not in (None, "count"):
            checks.note((*path, key), f"aggregates and {key} are set; use only one")
    names = {spec.key_name, *(_BOUNDS if isinstance(spec, Window) else ())}
    for index, each in enumerate(spec.aggregates):
        at = (*path, "aggregates", index)
        if each.agg != "count" and not each.field:
            field = (*at, "field")
            checks.missing(field, f"{label_of(field)} must be set for {each.agg}")
        if each.agg == "count" and each.field is not None:
            _note_count(checks, (*at, "field"))
        if each.name in names:
            label = label_of((*at, "name"))
            checks.note(
                (*at, "name"), f"{label} is {each.name}, which is already the name of another field"
            )
        names.add(each.name)


def _note_count(checks: Checks, path: KeyPath) -> None:
    text = f"{label_of(path)} has no effect on count, which counts all records: remove it"
    checks.note(path, text, at_key=True)


def _key_name(checks: Checks, spec: Window | Reduce, path: KeyPath) -> None:
    """Check that the key of a result is not called as another of its fields."""
    taken = set(_BOUNDS if isinstance(spec, Window) else ())
    if spec.aggregates is None and spec.agg is not None:
        taken |= set(result_names(spec))
    if spec.key_name in taken:
        text = (
            f"the name of the key is {spec.key_name!r}, which is already another field of the "
            "result"
        )
        position = (*path, "count_by" if path == ("ops",) else "key_name")
        checks.note(position, f"{text}: set key_name, or names in aggregates")


def _time(checks: Checks, spec: Time, path: KeyPath) -> None:
    if (
        spec.allowed_lateness is not None
        and spec.max_out_of_orderness != Time().max_out_of_orderness
    ):
        text = "allowed_lateness is an alias of max_out_of_orderness; use only one"
        checks.note((*path, "allowed_lateness"), text, at_key=True)


def _agg_field(checks: Checks, agg: str | None, path: KeyPath) -> None:
    label, word = label_of((*path, "agg_field")), label_of((*path, "agg"))
    words = "|".join(_OPS) if agg in _OPS else "min|max"
    checks.missing((*path, "agg_field"), f"{label} must be set when {word} is {words}")


def _join(checks: Checks, spec: Join, path: KeyPath) -> None:
    if checks.is_wrong((*path, "type")):
        return
    needed = {"interval": "upper", "window": "size"}.get(spec.type)
    if needed is not None and getattr(spec, needed) is None:
        label = label_of((*path, needed))
        checks.missing((*path, needed), f"{label} must be set for a join of the type {spec.type}")
    if spec.type in ("as_of", "table") and spec.how not in ("inner", "left"):
        text = f"a join of the type {spec.type} must be inner or left, not {spec.how}"
        checks.note((*path, "how"), text)


def _http_call(checks: Checks, spec: HttpCall, path: KeyPath) -> None:
    try:
        fields_in_url(spec.url)
    except ValueError as error:
        checks.note((*path, "url"), f"{label_of((*path, 'url'))} is {spec.url}; {error}")
    for name, text in spec.secret_headers.items():
        check_secret(checks, text, (*path, "secret_headers", name))
    _asks(checks, spec, path, operator="http_call", extra="http", library="httpx")


def _lookup(checks: Checks, spec: Lookup, path: KeyPath) -> None:
    if spec.password is not None:
        check_secret(checks, spec.password, (*path, "password"))
    _asks(checks, spec, path, operator="lookup", extra="postgres", library="psycopg")


def _asks(
    checks: Checks,
    spec: HttpCall | Lookup,
    path: KeyPath,
    *,
    operator: str,
    extra: str,
    library: str,
) -> None:
    """Check that an external call has a limit, its library, and no password."""
    check_address(checks, spec.url, (*path, "url"))
    if duration_ms(spec.timeout) < 1:
        label = label_of((*path, "timeout"))
        checks.note((*path, "timeout"), f"{label} is {spec.timeout}; expected 1ms or more")
    if find_spec(library) is None:
        text = f"{operator} needs a library that is not installed: pip install"
        checks.note(path, f"{text} 'bicycle-runtime[{extra}]'")


def _connector(checks: Checks, spec: EndKeys, path: KeyPath) -> None:
    spec.check(checks, path)


_RULES: Mapping[str, Callable[[Checks, Any, KeyPath], None]] = {
    "map": _map,
    "flat_map": _flat_map,
    "filter": _filter,
    "time": _time,
    "key_by": _key_by,
    "window": _window,
    "reduce": _reduce,
    "join": _join,
    "http_call": _http_call,
    "lookup": _lookup,
    "sink": _connector,
    "source": _connector,
}
