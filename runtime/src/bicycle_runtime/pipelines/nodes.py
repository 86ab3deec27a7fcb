"""The operators of a pipeline as one list, from whichever form it is written in.

The *short form* has a source, time, steps, a window with aggregates, and a sink; the other has
vertices and edges. Both become nodes with ids, which are the uids of the graph: so state is found
again when a file is edited, or brought from one form to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from bicycle_runtime.endpoints.catalog import Direction
from bicycle_runtime.endpoints.checking import Checks, check_address, label_of
from bicycle_runtime.endpoints.ends import EndKeys
from bicycle_runtime.endpoints.job_settings import Parallelism, Settings
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.sinks import SINKS
from bicycle_runtime.endpoints.sources import SOURCES, TIME_FIELD_KEYS
from bicycle_runtime.endpoints.values import describe
from bicycle_runtime.pipelines.documents import Document, job_name
from bicycle_runtime.pipelines.edges import Input, check_edges
from bicycle_runtime.pipelines.errors import PIPELINE_INVALID
from bicycle_runtime.pipelines.expression_checks import NodeExpressions, compiled_expressions
from bicycle_runtime.pipelines.key_rules import (
    check_keys,
    check_node,
    check_times,
    sources_before,
)
from bicycle_runtime.pipelines.model import Ops, Pipeline, Test
from bicycle_runtime.pipelines.operator_keys import ALIASES, OPERATORS, KeyBy, Reduce, Time, Window
from bicycle_runtime.pipelines.queries import QueryChecks
from bicycle_runtime.pipelines.values import ErrorRule, OnError
from bicycle_sdk.errors import BicycleError, StreamDefinitionError
from bicycle_sdk.uri_queries import keys_of_uri

_GROUP_KEYS = ("group_id", "group.id", "group")
_AROUND_KEYS = frozenset({"name", "parallelism", "on_error"})
_STEP_KEYS = frozenset({"id", "operator", *_AROUND_KEYS})
_VERTEX_KEYS = frozenset({*_STEP_KEYS, "config", "connector"})
_TELL_TIMES = ("source", "time", "vertices", "edges")
_NO_STEPS = frozenset({"join", "union", "split", "time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operator: ``spec`` is the struct of its keys, ``word`` a connector's kind."""

    id: str
    operator: str
    spec: Any
    path: KeyPath
    name: str | None = None
    word: str = ""
    parallelism: int | None = None
    on_error: Any = None
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPipeline:
    """A pipeline without problems; each node is after its inputs.

    ``given`` has the known fields of the records that reach a node; of a join, of its left rows.
    """

    name: str
    description: str
    settings: Settings
    nodes: tuple[Node, ...]
    on_error: Any = None
    expressions: Mapping[str, NodeExpressions] = field(default_factory=dict)
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tests: tuple[Test, ...] = ()
    document: Document = field(compare=False)
    queries: QueryChecks = field(compare=False)

    @property
    def remarks(self) -> list[str]:
        """Valid but misleading settings of the file, each with its line."""
        found = []
        for node in self.nodes:
            if node.operator != "time" or node.spec.allowed_lateness is None:
                continue
            below = ("config",) if node.path[0] == "vertices" else ()
            position = self.document.key_position((*node.path, *below, "allowed_lateness"))
            is_short = node.path[0] == "time"
            text = (
                "allowed_lateness is an alias of max_out_of_orderness in Pulse files; `keep` of "
                "the window sets how long late records update a result"
            )
            if is_short:
                text += "; with this option the key of results is named key"
            found.append(f"{self.document.file}:{position.line}:{position.column}: {text}")
        return found

    def rule_of(self, node: Node) -> Any:
        """Return the error policy of a node; by default a source has no retries.

        By default, event times in a field of the source have the policy of the source.
        """
        rule = self.on_error if node.on_error is None else node.on_error
        if node.operator == "time" and node.on_error is None and node.spec.field is None:
            sources = sources_before(node, {each.id: each for each in self.nodes})
            rules = {each.on_error for each in sources}
            rule = rules.pop() if len(rules) == 1 and None not in rules else rule
        if node.operator == "source" and node.on_error is None and isinstance(rule, ErrorRule):
            return msgspec.structs.replace(rule, retries=0)
        return rule


def check_pipeline(document: Document) -> CheckedPipeline:
    """Check everything about a pipeline that needs no plugin.

    Raises:
        PIPELINE_INVALID: with all that is wrong.
    """
    checks = Checks(document, PIPELINE_INVALID)
    whole = checks.table(document.data, Pipeline, ())
    nodes: list[Node] = []
    if isinstance(document.data, dict):
        reading = _Reading(checks, document, whole)
        nodes = reading.nodes()
        if not any(checks.is_wrong((name,)) for name in _TELL_TIMES):
            check_times(checks, nodes)
            check_keys(checks, nodes)
    expressions, given, queries = compiled_expressions(checks, nodes)
    checks.raise_problems()
    assert whole is not None
    return CheckedPipeline(
        name=job_name(document),
        description=whole.description,
        settings=whole.config,
        on_error=whole.on_error,
        nodes=tuple(nodes),
        expressions=expressions,
        given=given,
        queries=queries,
        tests=tuple(whole.test),
        document=document,
    )


def default_key_name(time: Time | None, count_by: str | None) -> str:
    """Return the key name of the short form's results: by default the field's name.

    In a file in Pulse's shape, which has ``allowed_lateness``, it is ``key``, as there.
    """
    is_of_pulse = time is not None and time.allowed_lateness is not None
    return "key" if is_of_pulse or not count_by else count_by


class _Reading:
    """A reader of nodes, which finds the valid parts of an invalid document."""

    def __init__(self, checks: Checks, document: Document, whole: Pipeline | None) -> None:
        self._checks = checks
        self._data = {key: self._expand(key, value) for key, value in document.data.items()}
        self._whole = Pipeline() if whole is None else whole

    def nodes(self) -> list[Node]:
        has_vertices = bool(self._data.get("vertices"))
        short = [
            name for name in ("source", "steps", "window", "ops", "sink") if name in self._data
        ]
        if has_vertices and short:
            text = f"{short[0]} and vertices are set: a pipeline must use one of the two forms"
            self._checks.note((short[0],), text, at_key=True)
            return []
        found = self._vertices() if has_vertices else self._short_form()
        for node in found:
            check_node(self._checks, node.operator, node.spec, node.path)
        return found

    # --- vertices and edges ------------------------------------------------------------------

    def _vertices(self) -> list[Node]:
        vertices = self._data["vertices"]
        if not isinstance(vertices, list):
            return []
        ids: dict[str, KeyPath] = {}
        found = []
        for index, data in enumerate(vertices):
            path: KeyPath = ("vertices", index)
            if not isinstance(data, dict):
                self._checks.note(path, f"vertices[{index}] must be a table of keys")
                continue
            self._known_keys(data, _VERTEX_KEYS, path)
            node_id = self._id(data, path, ids)
            node = self._vertex(data, node_id, path)
            if node is not None:
                found.append(node)
        return check_edges(self._checks, found, known=ids, edges=self._data.get("edges", []))

    def _vertex(self, data: dict[str, Any], node_id: str, path: KeyPath) -> Node | None:
        operator = self._operator(data, path, more=("source", "sink"))
        if operator is None:
            return None
        if operator in ("source", "sink"):
            if data.get("config"):
                self._checks.note((*path, "config"), f"a {operator} has a connector, but no config")
            return self._connector(data, node_id, path, operator)
        if "connector" in data:
            text = "only a source or a sink has a connector"
            self._checks.note((*path, "connector"), text, at_key=True)
        config = data.get("config")
        config_path = (*path, "config") if isinstance(config, dict) else path
        if config is not None and not isinstance(config, dict):
            self._checks.note((*path, "config"), "config must be a table of keys")
            return None
        spec = self._checks.table(config or {}, OPERATORS[operator], config_path, of=operator)
        return self._node(data, node_id, path, operator=operator, spec=spec)

    def _connector(
        self, data: dict[str, Any], node_id: str, path: KeyPath, operator: str
    ) -> Node | None:
        connector = data.get("connector")
        at = (*path, "connector")
        if not isinstance(connector, dict):
            self._checks.missing(at, f"connector must be set for the {operator} {node_id!r}")
            return None
        self._known_keys(connector, {"type", "uri", "properties"}, at)
        table = SOURCES if operator == "source" else SINKS
        properties = connector.get("properties")
        properties = {} if properties is None else properties
        if "uri" in connector:
            direction: Direction = "source" if operator == "source" else "sink"
            found = _read_uri(self._checks, connector, direction, at)
            word, properties = (None, {}) if found is None else found
        else:
            what = f"connector type of a {operator}"
            word = self._checks.word(connector.get("type"), table, (*at, "type"), what=what)
        if word is None:
            return None
        spec = self._ends(properties, word, (*at, "properties"), operator)
        return self._node(data, node_id, path, operator=operator, spec=spec, word=word)

    # --- the short form ----------------------------------------------------------------------

    def _short_form(self) -> list[Node]:
        found = [
            self._end("source"),
            self._time(),
            *self._steps(),
            *self._compute(),
            self._end("sink"),
        ]
        nodes = [node for node in found if node is not None]
        return [
            replace(node, inputs=(Input(node=before.id),)) if before is not None else node
            for before, node in zip([None, *nodes], nodes, strict=False)
        ]

    def _expand(self, name: str, data: Any) -> Any:
        """Return the table of a source or sink with the kind and the keys of its URI."""
        if name not in ("source", "sink") or not isinstance(data, dict) or "uri" not in data:
            return data
        direction: Direction = "source" if name == "source" else "sink"
        found = _read_uri(self._checks, data, direction, (name,))
        return data if found is None else {"kind": found[0], **found[1]}

    def _end(self, name: str) -> Node | None:
        """Return the source, or the sink."""
        data = self._data.get(name)
        if not isinstance(data, dict):
            if data is None:
                self._checks.missing((name,), f"{name} must be set")
            else:
                self._checks.note((name,), f"{name} must be a table of keys")
            return None
        table = SOURCES if name == "source" else SINKS
        if "uri" in data:  # It is wrong.
            return None
        if "kind" not in data:
            text = f"{name}.kind must be set, or {name}.uri; kinds are {', '.join(table)}"
            self._checks.missing((name, "kind"), text)
            return None
        word = self._checks.word(data["kind"], table, (name, "kind"), what=f"{name} kind")
        if word is None:
            return None
        keys = {key: value for key, value in data.items() if key not in {"kind", *_AROUND_KEYS}}
        if name == "source" and word == "kafka" and not any(map(keys.get, _GROUP_KEYS)):
            text = "source.group_id must be set for kafka source"
            self._checks.missing((name, "group_id"), text)
        spec = self._ends(keys, word, (name,), name)
        return self._node(data, name, (name,), operator=name, spec=spec, word=word)

    def _time(self) -> Node | None:
        source = self._data.get("source")
        has_field = isinstance(source, dict) and any(map(source.get, TIME_FIELD_KEYS))
        if self._data.get("time") is None and not has_field:
            return None
        return Node(id="time", operator="time", spec=self._whole.time or Time(), path=("time",))

    def _steps(self) -> Iterable[Node | None]:
        steps = self._data.get("steps", [])
        if not isinstance(steps, list):
            return
        ids: dict[str, KeyPath] = {}
        counts: dict[str, int] = {}
        for index, data in enumerate(steps):
            path: KeyPath = ("steps", index)
            if not isinstance(data, dict):
                self._checks.note(path, f"steps[{index}] must be a table of keys")
                continue
            operator = self._operator(data, path, without=_NO_STEPS)
            if operator is None:
                continue
            counts[operator] = counts.get(operator, 0) + 1
            given = data if "id" in data else {**data, "id": f"{operator}-{counts[operator]}"}
            node_id = self._id(given, path, ids)
            keys = {key: value for key, value in data.items() if key not in _STEP_KEYS}
            spec = self._checks.table(keys, OPERATORS[operator], path, of=operator)
            yield self._node(data, node_id, path, operator=operator, spec=spec)

    def _compute(self) -> list[Node]:
        """Return key and window, or key and running result, of the short form."""
        if self._data.get("ops") is None and self._data.get("window") is None:
            return []
        ops, window = self._whole.ops or Ops(), self._whole.window
        if not ops.count_by:
            text = "ops.count_by must be set (e.g., word field)"
            self._checks.missing(("ops", "count_by"), text)
        key = Node(id="key", operator="key_by", spec=KeyBy(field=ops.count_by), path=("ops",))
        wanted = {name: getattr(ops, name) for name in ("agg", "agg_field", "aggregates")}
        wanted["key_name"] = ops.key_name or default_key_name(self._whole.time, ops.count_by)
        if self._data.get("window") is None:
            return [key, Node(id="reduce", operator="reduce", spec=Reduce(**wanted), path=("ops",))]
        size = {} if window is None else msgspec.structs.asdict(window)
        spec = Window(**size, **wanted)
        return [key, Node(id="window", operator="window", spec=spec, path=("window",))]

    # --- common to both ------------------------------------------------------------------------

    def _ends(self, data: Any, word: str, path: KeyPath, operator: str) -> Any:
        try:
            kind: type[EndKeys] = (SOURCES if operator == "source" else SINKS)[word]
        except BicycleError as error:
            self._checks.note(path, f"{word}: {error.summary}; {error.remedy}")
            return None
        if not isinstance(data, dict):
            return self._checks.table(data, kind, path)
        keys = kind.collect_tables(data, self._checks, path) if kind.client_names else data
        for names in kind.needs:
            if not any(map(keys.get, names)):
                text = f"{label_of((*path, names[0]))} must be set for {word} {operator}"
                self._checks.missing((*path, names[0]), f"{text} (or {', '.join(names[1:])})")
        return self._checks.table(keys, kind, path, of=f"{word} {operator}")

    def _node(self, data: dict[str, Any], node_id: str, path: KeyPath, **facts: Any) -> Node | None:
        """Return a node with its common settings."""
        given = {key: data[key] for key in data if key in _AROUND_KEYS}
        around = self._checks.table(given, Around, path)
        if around is None or facts["spec"] is None:
            return None
        return Node(
            id=node_id, path=path, name=around.name, parallelism=around.parallelism,
            on_error=around.on_error, **facts,
        )  # fmt: skip

    def _operator(
        self,
        data: dict[str, Any],
        path: KeyPath,
        *,
        more: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> str | None:
        known = {*OPERATORS, *more} - set(without)
        if "operator" not in data:
            text = f"operator must be set to one of {', '.join(sorted(known))}"
            self._checks.missing((*path, "operator"), text)
            return None
        word = data["operator"]
        word = ALIASES.get(word, word) if isinstance(word, str) else word
        if isinstance(word, str) and word in without:
            where = "the table [time]" if word == "time" else "a pipeline of vertices and edges"
            self._checks.note((*path, "operator"), f"{word} is not a step: it belongs into {where}")
            return None
        return self._checks.word(word, known, (*path, "operator"), what="operator")

    def _id(self, data: dict[str, Any], path: KeyPath, ids: dict[str, KeyPath]) -> str:
        found = data.get("id")
        if not isinstance(found, str) or not found:
            self._checks.missing((*path, "id"), "id must be set: a text")
            return f"#{len(ids)}"
        if "/" in found:
            self._checks.note((*path, "id"), f"id {found!r} contains a slash")
        if found in ids:
            self._checks.note((*path, "id"), f"duplicate id {found!r}")
        ids[found] = path
        return found

    def _known_keys(self, data: dict[str, Any], known: Iterable[str], path: KeyPath) -> None:
        for key in data:
            if key not in known:
                self._checks.unknown(key, known, path)


def _read_uri(
    checks: Checks, table: Mapping[str, Any], direction: Direction, path: KeyPath
) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the keys of a table with a URI; None if the URI is wrong.

    The table is a source or sink of the short form, or the connector of a vertex. Problems of the
    keys in the URI are reported at the URI.
    """
    is_vertex = path[0] == "vertices"
    word, below = ("type", (*path, "properties")) if is_vertex else ("kind", path)
    at, uri = (*path, "uri"), table["uri"]
    label = checks.label(at)
    if not isinstance(uri, str):
        checks.note(at, f"{label} is {uri!r}; expected a text such as kafka://host:9092/topic")
    elif word in table:
        checks.note(at, f"{label} and {word} are set; use only one")
    else:
        check_address(checks, uri, at)
    if checks.is_wrong(at):
        return None
    try:
        options_class, keys = keys_of_uri(direction, uri)
    except StreamDefinitionError as error:
        checks.note(at, f"{label}: {error.facts['problem']}; {error.facts['hint']}")
        return None
    given = table.get("properties") or {} if is_vertex else table
    if not isinstance(given, Mapping):
        checks.table(given, Around, below)  # It notes that this is no table.
        return None
    further = {key: value for key, value in given.items() if key != "uri"}
    for key, value in keys.items():
        key_path = (*below, key)
        if key in further:
            text = f"{checks.label(key_path)} is also in the URI; set it once"
            checks.note(key_path, text, at_key=True)
        checks.locate(key_path, at)
        keys[key] = list(value) if isinstance(value, tuple) else value
    kinds = SOURCES if direction == "source" else SINKS
    return kinds.of_connector(options_class.connector.word), {**keys, **further}


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """The common settings of vertices, steps, sources and sinks."""

    name: Annotated[str | None, describe("Display name.")] = None
    parallelism: Annotated[Parallelism | None, describe("Number of subtasks.")] = None
    on_error: OnError = None
