"""Sealed state as the objects that a job's functions see: by operator, name, key.

State is read from the sealed files as a restart would read them, so a test sees the state that
survives. Functions are loaded but opened only when they restore their state themselves. A sealed
file holds names and kinds of keyed states but no types. Types come from the descriptors that the
function's class has as fields; states declared elsewhere are read as plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import cloudpickle
import msgspec

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.layouts.state import OperatorStateMetadata, RangeState
from bicycle_runtime.operators.functions.declarations import declared_states, reduced_type
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import OperatorSpec, StateScope
from bicycle_runtime.operators.user_calls.user_functions import resolve
from bicycle_runtime.operators.windows.build import window_table
from bicycle_runtime.operators.windows.ended_sessions import is_ended
from bicycle_runtime.operators.windows.meaning import window_settings
from bicycle_runtime.operators.windows.panes import Pane
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.attributes import SNAPSHOT, describe_attributes
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.space import StateTable
from bicycle_runtime.state.memory.tables import FunctionTable, GroupState
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.windows import WindowTable
from bicycle_runtime.state.sealed.refs import with_mark
from bicycle_runtime.state.stores.backends import Tables
from bicycle_runtime.state.stores.sealed_entries import sealed_entries
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_sdk.contexts import WATERMARK_MIN, TaskInfo
from bicycle_sdk.functions import RichAsyncFunction
from bicycle_sdk.graph import StateShape
from bicycle_sdk.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    TimeDomain,
    Timer,
    ValueStateDescriptor,
)
from bicycle_sdk.state.access import plain_view

Main = TypeVar("Main", bound=StateTable)
_UNTYPED: dict[str, type[Any]] = {
    "value": ValueStateDescriptor,
    "list": ListStateDescriptor,
    "map": MapStateDescriptor,
}
_TIMERS: dict[str, TimeDomain] = {"event-timers": "event", "processing-timers": "processing"}


class SealedObjects:
    """The state of one operator as of a sealed epoch.

    Args:
        setup: The job.
        manifest: The sealed epoch.
        spec: The operator.
        now_ms: The current time for states with a TTL of processing time.
    """

    def __init__(
        self, setup: JobSetup, manifest: Manifest, spec: OperatorSpec, *, now_ms: int = 0
    ) -> None:
        self._setup = setup
        self._spec = spec
        self._now_ms = now_ms
        sealed = manifest.states.get(spec.uid)
        self._ranges: tuple[RangeState, ...] = () if sealed is None else sealed.ranges
        self._metadata = manifest.state_metadata.get(spec.uid)

    def entries(self) -> dict[Any, Any]:
        """Return the state of all keys, or of all subtasks by index without keys.

        Of a reduce these are accumulators; of a function mappings: keyed states and named values by
        name, the entry of this key from each ``dict`` attribute, other attributes as the key group
        has them. Of a window it is the content by its start: the result so far, or the records. Of
        sliding windows these are the slices that windows share; of sessions and of windows with a
        trigger each window by its start; 0 means all time.
        """
        match self._spec.vertex.descriptor.state:
            case StateShape.ACCUMULATOR:
                return self._accumulators()
            case StateShape.WINDOWS:
                return self._windows()[0]
            case _:
                return self._of_function()

    def value(self, key: Any, name: str) -> Any:
        """Return a key's content under one name, or None.

        Of a window these are the states of its function that all windows of the key share.
        """
        is_window = self._spec.vertex.descriptor.state is StateShape.WINDOWS
        found = self._windows()[1] if is_window else self.entries()
        return found.get(key, {}).get(name)

    def timers(self, key: Any) -> list[Timer]:
        """Return the pending timers of a key: event time, then processing time."""
        storage, uid = self._setup.storage, self._spec.uid
        found = [
            Timer(_TIMERS[entry.state], entry.part, key)
            for part in self._ranges
            for entry in sealed_entries(
                storage,
                part,
                operator=uid,
                is_window=False,
                wants=lambda change_set: change_set.name.startswith("$timers."),
            )
            if entry.state in _TIMERS and entry.key == key
        ]
        return sorted(found, key=lambda timer: (timer.domain, timer.time_ms))

    # --- by the shape of the state -----------------------------------------------------------

    def _accumulators(self) -> dict[Any, Any]:
        tables = Tables(SchemaRegistry(self._spec.uid, self._metadata))
        value_type = reduced_type(self._spec, self._load)
        entries: dict[Any, Any] = {}
        for part in self._ranges:
            table = self._fill(part, tables.accumulators(value_type))
            for group in table.groups.values():
                entries |= group
        return entries

    def _of_function(self) -> dict[Any, Any]:
        function = self._load(self._spec.vertex.payload_id("function"))
        is_rich = isinstance(function, RichAsyncFunction)
        registry = SchemaRegistry(self._spec.uid, self._metadata)
        attributes = describe_attributes(function, registry) if is_rich else []
        if is_rich and type(function).restore_state is not RichAsyncFunction.restore_state:
            info = TaskInfo(job_id=self._setup.job_id, operator_name=self._spec.vertex.label)
            resolve(function.open, KeyedContext(info, processing_time=0))
        names = [attribute.name for attribute in attributes if attribute.name != SNAPSHOT]
        states: dict[int, GroupState] = {}
        named: dict[Any, dict[str, Any]] = {}
        for part in self._ranges:
            keyed, main = self._keyed_table(), FunctionTable(function, attributes, resolve)
            beside = TimerTable(GroupCache(1))
            table = self._fill(part, CompositeTable(main, keyed, beside)).main
            table.restore_snapshots()
            states |= table.groups
            named |= _keyed_states(function, keyed)
        if self._spec.scope is StateScope.SUBTASK:
            return {group: _whole(state, names) for group, state in states.items()}
        found = _by_key(list(states.values()), names)
        for key, values in named.items():
            found.setdefault(key, {}).update(values)
        return found

    def _windows(self) -> tuple[dict[Any, dict[int, Any]], dict[Any, dict[str, Any]]]:
        """Return the content of windows by key and time, and the state of keys by name."""
        plan = self._load(self._spec.vertex.payload_id("function"))
        record_type = self._load(self._spec.input_type) if self._spec.input_type else None
        folding = Folding(plan, record_type)
        found: dict[Any, dict[int, Any]] = {}
        named: dict[Any, dict[str, Any]] = {}
        for part in self._ranges:
            main = window_table(plan, folding, record_type)
            registry = SchemaRegistry(self._spec.uid, self._metadata)
            settings = window_settings(plan, folding)
            main.open(registry, settings, keeps_records=plan.keeps_records)
            keyed = self._keyed_table()
            table = self._fill(part, CompositeTable(main, keyed)).main
            named |= _keyed_states(plan.process, keyed)
            for key, start, held in _held_windows(table, None if plan.keeps_records else folding):
                found.setdefault(key, {})[start] = held
        return found, named

    # --- reading -----------------------------------------------------------------------------

    def _load(self, payload: str) -> Any:
        return cloudpickle.loads(self._setup.bundle.payloads[payload])

    def _fill(self, part: RangeState, table: Main) -> Main:
        """Return a table with the state of a range. Looking makes no base."""
        store = StateStore(self._spec.uid, self._setup.storage, lambda: table)
        return store.at(with_mark(part, None))

    def _keyed_table(self) -> KeyedTable:
        """Return a table for keyed states."""

        def clock(domain: TimeDomain) -> int:
            return self._now_ms if domain == "processing" else WATERMARK_MIN

        registry = SchemaRegistry(self._spec.uid, _declared_only(self._metadata))
        return KeyedTable(GroupCache(self._spec.group_count), clock, registry=registry)


def _declared_only(metadata: OperatorStateMetadata | None) -> OperatorStateMetadata | None:
    """Return the schemas of states that are declared; of others no type is known here."""
    if metadata is None:
        return None
    declared = tuple(state for state in metadata.states if not state.is_asked)
    return msgspec.structs.replace(metadata, states=declared)


def _keyed_states(function: Any, keyed: KeyedTable) -> dict[Any, dict[str, Any]]:
    """Return the states of each key, by key and name: values, lists, dicts."""
    declared = {state.name: state for state in declared_states(function)}
    for state in declared.values():
        keyed.entries_of(state)
    found: dict[Any, dict[str, Any]] = {}
    for name, shape in keyed.names().items():
        descriptor: StateDescriptor = declared.get(name) or _UNTYPED[shape](name)
        entries = keyed.entries_of(descriptor)
        for key in list(entries.keys()):
            value = plain_view(descriptor.kind, entries, key)
            if value is not None:
                found.setdefault(key, {})[name] = value
    return found


def _by_key(states: list[GroupState], names: list[str]) -> dict[Any, dict[str, Any]]:
    """Return named values and attributes by key."""
    found: dict[Any, dict[str, Any]] = {}
    for state in states:
        attributes = _attributes(state, names)
        dicts = {name: value for name, value in attributes.items() if isinstance(value, dict)}
        plain = {name: value for name, value in attributes.items() if name not in dicts}
        keys = dict.fromkeys(key for _, key in state.named.entries)
        for (name, key), value in state.named.entries.items():
            found.setdefault(key, {})[name] = value
        for name, entries in dicts.items():
            keys |= dict.fromkeys(entries)
            for key in entries:
                found.setdefault(key, {})[name] = dict.__getitem__(entries, key)
        for key in keys:
            found[key].update(plain)
    return found


def _whole(state: GroupState, names: list[str]) -> dict[str, Any]:
    values = _attributes(state, names)
    plain = {name: dict(v) if isinstance(v, dict) else v for name, v in values.items()}
    return {**plain, **state.named.entries}


def _attributes(state: GroupState, names: list[str]) -> dict[str, Any]:
    return {name: getattr(state.instance, name) for name in names}


def _held_windows(table: WindowTable, folding: Folding | None) -> Iterator[tuple[Any, int, Any]]:
    """Yield key, start and result of windows, or their records without a fold."""
    for namespace, groups in table.entries.namespaces.items() if folding is not None else ():
        for keys in groups.values():
            for key, entry in keys.items():
                assert folding is not None
                for start, result in _contents(namespace, entry, folding):
                    yield key, start, result
    for namespace, rows in table.records.namespaces.items():
        for group, chunks in rows.items():
            for key in chunks:
                yield key, namespace, table.records.row(namespace, group, key)[1]


def _contents(namespace: int, entry: Any, folding: Folding) -> list[tuple[int, Any]]:
    if not isinstance(entry, list):
        return [(namespace, folding.value(entry))]
    windows = [(one.start, one.end, one.content) if isinstance(one, Pane) else one for one in entry]
    return [
        (0 if start == WATERMARK_MIN else start, folding.value(content))
        for start, end, content in windows
        if content is not None and not is_ended(start, end)
    ]
