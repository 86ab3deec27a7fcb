"""A report on a job before it starts: guarantee, state, codecs and warnings.

Types and state attributes are known only to the plugin's own code, which this process does not
load: a child process does, and sends plain data home. Conclusions from that data are drawn here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# Errors that the child answers with are known by their classes here, too.
import bicycle_runtime.operators.errors  # noqa: F401  # registers them
from bicycle_runtime.base.children import NoAnswerError, ask_child
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.errors import GUARANTEE_TOO_WEAK, INSPECTION_FAILED
from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.operators.columnar import NO_COLUMNS
from bicycle_runtime.state.values.schema_changes import names_classes
from bicycle_runtime.state.values.schemas import Schema
from bicycle_sdk.graph import JobGraph

_MODULE = "bicycle_runtime.jobs.inspection.child"
_TIMEOUT_S = 300  # On a busy machine, imports alone may take a minute.
_WINDOW_WARNINGS: dict[str, list[tuple[str, str]]] = {
    "none": [],
    "keys": [("unbounded-state", "state grows with the number of different keys")],
    "records": [
        (
            "unbounded-state",
            "the global window keeps all records, because no trigger purges them; wrap its "
            "trigger in PurgingTrigger, or set an evictor",
        )
    ],
    "silent": [
        ("unbounded-state", "the global window never fires and is never purged: set a trigger")
    ],
}
_STRENGTH = {guarantee.value: rank for rank, guarantee in enumerate(Guarantee)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorReport:
    """The guarantee of a source or sink after any crash."""

    operator: str
    role: Literal["source", "sink"]
    connector: str
    guarantee: str
    has_uid: bool
    state_version: int = 1

    @property
    def text(self) -> str:
        """The connector in words."""
        return f"{self.role} {self.operator!r} ({self.connector}) is {self.guarantee}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeReport:
    """One part of an operator's state. ``codec`` is typed or untyped.

    ``is_fixed`` means that its constructor sets it and no method changes it.
    """

    name: str
    type: str
    codec: str
    is_per_entry: bool
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStateReport:
    """One state that a descriptor declares. ``codec`` is typed or untyped; no TTL is forever."""

    name: str
    kind: str
    type: str
    codec: str
    ttl_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """The state of one operator; ``scope`` is key_groups or subtask.

    ``keyed`` are the states whose descriptors are fields of the function's class;
    ``has_undeclared`` means that its code requests states of which no descriptor is declared so.
    ``copied`` are the attributes that are copied for each record, so that a failed attempt can be
    undone. ``window_growth`` is the growth of a window's state, see ``WindowGrowth``. ``is_of_sdk``
    means that the function is one of SDK or runtime, such as a join. ``mixes`` names the input
    whose order for the function depends on the cuts of epochs. ``declared`` is the metadata stored
    with the state: names, schemas and versions, see ``DeclaredOperator``. ``join`` is the name of
    a join; ``bound`` is what bounds the state, as its function states it.
    """

    operator: str
    scope: str
    group_count: int
    attributes: tuple[AttributeReport, ...]
    copied: tuple[str, ...]
    keyed: tuple[KeyedStateReport, ...]
    has_undeclared: bool
    has_named: bool
    has_uid: bool
    has_snapshot_hook: bool
    has_merge_hook: bool
    window_growth: str | None = None
    is_of_sdk: bool = False
    mixes: str | None = None
    join: str = ""
    bound: str = ""
    declared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReport:
    """The transfer of records along an edge between tasks. ``codec`` is typed or pickle."""

    source: str
    target: str
    partitioning: str
    codec: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReport:
    """The choice of an operator, columns or records; ``because`` explains records."""

    operator: str
    because: str | None

    @property
    def tells(self) -> bool:
        """True if the operator works on columns, or could after a change of the job."""
        return self.because != NO_COLUMNS

    @property
    def text(self) -> str:
        """The answer in words."""
        how = "columns" if self.because is None else f"records, because {self.because}"
        return f"{self.operator}: {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning about a working but surprising property. ``kind`` is a stable word."""

    kind: str
    operator: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The report of ``bicycle plan``. ``weakest`` is None when nothing is below exactly-once."""

    plugin: str
    plugin_version: str
    guarantee: str
    weakest: ConnectorReport | None
    connectors: tuple[ConnectorReport, ...]
    states: tuple[StateReport, ...]
    exchanges: tuple[ExchangeReport, ...]
    columns: tuple[ColumnReport, ...]
    shipping: dict[str, str]
    python_version: str
    warnings: tuple[Warned, ...]


def inspect_job(bundle: JobBundle, *, parallelism: int | None = None) -> JobReport:
    """Look at a job in a child process.

    Args:
        bundle: The extracted job.
        parallelism: Takes the place of every operator's.

    Raises:
        INSPECTION_FAILED: the child process returned nothing.
        BicycleError: the job cannot run: options of connectors, rules of the graph.
    """
    question = {"parallelism": parallelism}
    data = _ask(question, blobs=[bundle.to_bytes()], plugin=bundle.plugin)
    if "error" in data:
        raise error_from_json(data["error"])
    return report_of(bundle, data)


def class_shapes(names: Collection[str]) -> dict[str, Schema]:
    """Return the schemas of a plugin's classes by name, without missing classes.

    Objects of them are in state as pickles. The child process imports their modules.

    Raises:
        INSPECTION_FAILED: the child process returned nothing.
    """
    return _ask({"classes": sorted(names)}, plugin=", ".join(sorted(names)))


def _ask(question: dict[str, Any], *, blobs: Sequence[bytes] = (), plugin: str) -> dict[str, Any]:
    try:
        return ask_child(_MODULE, question=question, blobs=blobs, timeout_s=_TIMEOUT_S)
    except NoAnswerError as error:
        hint = (
            "repeat the command when the machine is less busy; if that does not help, move slow "
            "work from the imports of the plugin to open() of a function"
            if error.is_late
            else f"run `bicycle plugins check {plugin}`; a new process must be able to load the "
            "functions"
        )
        raise INSPECTION_FAILED(plugin=plugin, detail=str(error), hint=hint) from None


def report_of(bundle: JobBundle, data: dict[str, Any]) -> JobReport:
    """Return the report for the findings of the child process."""
    connectors = tuple(ConnectorReport(**item) for item in data["connectors"])
    states = tuple(_state_report(item) for item in data["states"])
    exchanges = tuple(ExchangeReport(**item) for item in data["exchanges"])
    weakest = min(connectors, key=lambda item: _STRENGTH[item.guarantee])
    is_weak = weakest.guarantee != Guarantee.EXACTLY_ONCE.value
    return JobReport(
        plugin=bundle.plugin,
        plugin_version=bundle.plugin_version,
        guarantee=weakest.guarantee,
        weakest=weakest if is_weak else None,
        connectors=connectors,
        states=states,
        exchanges=exchanges,
        columns=tuple(ColumnReport(**item) for item in data["columns"]),
        shipping=dict(bundle.shipping),
        python_version=bundle.python_version,
        warnings=(
            *(
                Warned(kind="former-name", operator="", text=str(each))
                for each in bundle.former_names
            ),
            *_connector_warnings(connectors),
            *(warned for state in states for warned in _state_warnings(state)),
            *_exchange_warnings(exchanges),
            *_late_warnings(bundle.graph),
            *_buffer_warnings(bundle.graph),
        ),
    )


def require_guarantee(report: JobReport, wanted: str) -> None:
    """Raise an error if a job's guarantee is weaker than requested.

    Raises:
        GUARANTEE_TOO_WEAK: with the weakest link.
    """
    if _STRENGTH[report.guarantee] < _STRENGTH[wanted] and report.weakest is not None:
        raise GUARANTEE_TOO_WEAK(
            plugin=report.plugin,
            found=report.guarantee,
            wanted=wanted,
            link=report.weakest.text,
            operator=report.weakest.operator,
        )


def _state_report(item: dict[str, Any]) -> StateReport:
    attributes = tuple(AttributeReport(**attribute) for attribute in item["attributes"])
    keyed = tuple(KeyedStateReport(**state) for state in item["keyed"])
    copied = tuple(item["copied"])
    return StateReport(**{**item, "attributes": attributes, "copied": copied, "keyed": keyed})


def _connector_warnings(connectors: tuple[ConnectorReport, ...]) -> list[Warned]:
    return [
        Warned(
            kind="no-uid",
            operator=item.operator,
            text=f"{item.role} has no uid: changed code finds its position only by kind and name",
        )
        for item in connectors
        if not item.has_uid
    ]


def _state_warnings(state: StateReport) -> list[Warned]:
    changing = [part for part in state.attributes if not part.is_fixed]
    found: list[tuple[str, str]] = []
    is_kept = changing or state.keyed or state.has_undeclared or state.has_named
    if not state.has_uid and (is_kept or not state.attributes):
        found.append(
            ("no-uid", "has state but no uid: changed code finds it only by kind and name")
        )
    if names_classes(state.declared.get("keys", UNTYPED)):
        text = "has keys of a class: renaming or moving the class makes stored keys inaccessible"
        found.append(("class-keys", text))
    if not state.is_of_sdk:  # The SDK's storage of a join's rows is no choice of the job's.
        found += _attribute_warnings(state, changing) + _keyed_warnings(state)
    if state.mixes is not None:
        text = (
            f"processes {state.mixes} in an order that depends on epoch lengths, with all records "
            "of an epoch before its timers: call in_event_time_order() after it if its results "
            "depend on the order"
        )
        found.append(("epoch-order", text))
    return [Warned(kind=kind, operator=state.operator, text=text) for kind, text in found]


def _attribute_warnings(
    state: StateReport, changing: list[AttributeReport]
) -> list[tuple[str, str]]:
    found = [
        (
            "untyped-state",
            f"state {part.name!r} has no declared type and is stored untyped, which is slower",
        )
        for part in changing
        if part.codec != "typed"
    ]
    if state.copied:
        names = ", ".join(map(repr, state.copied))
        text = (
            f"{names}: copied for each record to undo failed attempts for on_error; keep growing "
            "data in a dict attribute, or in a list or map state"
        )
        found.append(("copied-state", text))
    if state.window_growth is not None:
        found += _WINDOW_WARNINGS[state.window_growth]
    elif state.scope == "key_groups" and any(part.is_per_entry for part in changing):
        found.append(("unbounded-state", "state grows with the number of different keys"))
    if state.scope == "subtask" and changing and not state.has_merge_hook:
        found.append(("no-merge", "has no merge_state(): its parallelism cannot change"))
    return found


def _keyed_warnings(state: StateReport) -> list[tuple[str, str]]:
    found = [
        (
            "untyped-state",
            f"state {item.name!r} has no declared type and is pickled, which is slower",
        )
        for item in state.keyed
        if item.codec != "typed"
    ]
    found += [
        ("unbounded-state", f"state {item.name!r} has no TTL: it grows with the number of keys")
        for item in state.keyed
        if item.ttl_ms is None and state.scope == "key_groups"
    ]
    if state.has_named and state.scope == "key_groups":
        text = "the value of save_state() has no TTL: it grows with the number of keys"
        found.append(("unbounded-state", text))
    if state.has_undeclared:
        text = (
            "creates states that are unknown before the job runs: make their descriptors fields "
            "of the class, so that type and TTL can be checked here"
        )
        found.append(("undeclared-state", text))
    return found


def _exchange_warnings(exchanges: tuple[ExchangeReport, ...]) -> list[Warned]:
    return [
        Warned(
            kind="pickle-exchange",
            operator=item.source,
            text=(
                f"records to {item.target!r} have the type {item.type} and are sent as pickles, "
                f"which is slower; {_way_out(item)}"
            ),
        )
        for item in exchanges
        if item.codec == "pickle"
    ]


def _way_out(item: ExchangeReport) -> str:
    if item.type == "unknown":
        return "annotate the return type of the function"
    return "only scalars, containers and records without __post_init__ are encoded by their type"


def _late_warnings(graph: JobGraph) -> list[Warned]:
    read = {(edge.source_id, edge.output_tag) for edge in graph.edges}
    return [
        Warned(
            kind="unread-late",
            operator=vertex.id,
            text=f"sends late records to the side output {tag!r}, which has no consumer",
        )
        for vertex in graph.vertices
        if (tag := vertex.details.get("late_tag")) is not None and (vertex.id, tag) not in read
    ]


def _buffer_warnings(graph: JobGraph) -> list[Warned]:
    return [
        Warned(
            kind="evicting-join",
            operator=vertex.id,
            text=(
                f"keeps at most {settings['max_buffered']:,} rows per key and side: the oldest "
                "rows beyond it are emitted without a match, counted as evicted_rows"
            ),
        )
        for vertex in graph.vertices
        if "max_buffered" in (settings := vertex.details.get("settings", {}))
    ]
