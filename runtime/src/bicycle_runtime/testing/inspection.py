"""Looking into sealed state: by operator, and by key.

State is read from the sealed files as a restart would read them, so what a test sees is what
survives. Functions are loaded but opened only when they restore their state themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.operators.functions.declarations import reduced_type
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import OperatorSpec, StateScope
from bicycle_runtime.operators.user_calls.user_functions import resolve
from bicycle_runtime.operators.windows.build import window_table
from bicycle_runtime.operators.windows.meaning import window_settings
from bicycle_runtime.operators.windows.panes import Pane
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.attributes import SNAPSHOT, Attribute, describe_attributes
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.tables import FunctionTable, GroupState
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.windows import WindowTable
from bicycle_runtime.state.sealed.refs import with_mark
from bicycle_runtime.state.stores.backends import Tables
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_runtime.testing.keyed_inspection import keyed_states_of
from bicycle_sdk.contexts import WATERMARK_MIN, TaskInfo
from bicycle_sdk.functions import RichAsyncFunction
from bicycle_sdk.graph import StateShape

__all__ = ["MISSING", "entries_of", "named_of", "value_of"]

MISSING = object()


def value_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, key: Any, *, now_ms: int = 0
) -> Any:
    """Return the state of one key; ``MISSING`` when it has none.

    It is the accumulator of a reduce; for a function a mapping: keyed states and named values by
    name, the entry of this key from each ``dict`` attribute, other attributes as the key group has
    them.
    """
    found = entries_of(setup, manifest, spec, now_ms=now_ms)
    return found.get(key, MISSING)


def named_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, key: Any, *, name: str, now_ms: int
) -> Any:
    """Return what a key has under one name; None for nothing.

    Of a window these are the states of its function that all windows of the key share.
    """
    if spec.vertex.descriptor.state is StateShape.WINDOWS:
        return keyed_states_of(setup, manifest, spec, now_ms).get(key, {}).get(name)
    found = value_of(setup, manifest, spec, key, now_ms=now_ms)
    return None if found is MISSING else found.get(name)


def entries_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, *, now_ms: int = 0
) -> dict[Any, Any]:
    """Return the state of all keys; of all subtasks, by index, where there are no keys."""
    if spec.vertex.descriptor.state is StateShape.ACCUMULATOR:
        return _accumulators(setup, manifest, spec)
    if spec.vertex.descriptor.state is StateShape.WINDOWS:
        return windows_of(setup, manifest, spec)
    states = _function_states(setup, manifest, spec)
    if spec.scope is StateScope.SUBTASK:
        return {group: _whole(state, names) for group, (state, names) in states.items()}
    found: dict[Any, dict[str, Any]] = {}
    for state, names in states.values():
        for (name, key), value in state.named.entries.items():
            found.setdefault(key, {})[name] = value
        for name in names:
            value = getattr(state.instance, name)
            for key in value if isinstance(value, dict) else ():
                found.setdefault(key, {})[name] = dict.__getitem__(value, key)
    for state, names in states.values():
        plain = {
            name: value
            for name in names
            if not isinstance(value := getattr(state.instance, name), dict)
        }
        for key in _keys_in(state, names):
            found[key].update(plain)
    for key, named in keyed_states_of(setup, manifest, spec, now_ms).items():
        found.setdefault(key, {}).update(named)
    return found


def _keys_in(state: GroupState, names: list[str]) -> list[Any]:
    keys = {key: None for _, key in state.named.entries}
    for name in names:
        value = getattr(state.instance, name)
        keys |= dict.fromkeys(value) if isinstance(value, dict) else {}
    return list(keys)


def _whole(state: GroupState, names: list[str]) -> dict[str, Any]:
    values = {name: getattr(state.instance, name) for name in names}
    plain = {name: dict(v) if isinstance(v, dict) else v for name, v in values.items()}
    return {**plain, **state.named.entries}


def _accumulators(setup: JobSetup, manifest: Manifest, spec: OperatorSpec) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    payloads = setup.bundle.payloads
    value_type = reduced_type(spec, lambda name: cloudpickle.loads(payloads[name]))
    tables = Tables(SchemaRegistry(spec.uid, manifest.state_metadata.get(spec.uid)))
    for table in _tables(setup, manifest, spec, lambda: tables.accumulators(value_type)):
        for group in table.groups.values():
            entries |= group
    return entries


def _function_states(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec
) -> dict[int, tuple[GroupState, list[str]]]:
    function = cloudpickle.loads(setup.bundle.payloads[spec.vertex.payload_id("function")])
    is_rich = isinstance(function, RichAsyncFunction)
    registry = SchemaRegistry(spec.uid, manifest.state_metadata.get(spec.uid))
    attributes = describe_attributes(function, registry) if is_rich else []
    if is_rich and type(function).restore_state is not RichAsyncFunction.restore_state:
        info = TaskInfo(job_id=setup.job_id, operator_name=spec.vertex.label)
        resolve(function.open, KeyedContext(info, processing_time=0))
    names = [attribute.name for attribute in attributes if attribute.name != SNAPSHOT]
    tables = _tables(setup, manifest, spec, lambda: _composite(function, attributes))
    for table in tables:
        table.main.restore_snapshots()
    return {group: (state, names) for table in tables for group, state in table.main.groups.items()}


def _composite(function: Any, attributes: list[Attribute]) -> CompositeTable[FunctionTable]:
    """Return a table of the function's attributes, with room for what else lies beside them."""
    groups = GroupCache(1)
    beside = KeyedTable(groups, lambda _domain: 0), TimerTable(groups)
    return CompositeTable(FunctionTable(function, attributes, resolve), *beside)


def _tables(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, new_table: Callable[[], Any]
) -> list[Any]:
    sealed = manifest.states.get(spec.uid)
    if sealed is None:
        return []
    return [
        # Looking makes no base.
        StateStore(spec.uid, setup.storage, new_table).at(with_mark(part, None))
        for part in sealed.ranges
    ]


def windows_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec
) -> dict[Any, dict[int, Any]]:
    """Return, by key, what is held from which time on: the result so far, or the records.

    Of sliding windows these are the slices that windows share; of sessions and of windows with a
    trigger each window by its start; 0 stands for all time.
    """
    payloads = setup.bundle.payloads
    plan = cloudpickle.loads(payloads[spec.vertex.payload_id("function")])
    record_type = cloudpickle.loads(payloads[spec.input_type]) if spec.input_type else None
    folding = Folding(plan, record_type)
    found: dict[Any, dict[int, Any]] = {}
    sealed = manifest.states.get(spec.uid)

    def new_table() -> CompositeTable[WindowTable]:
        table = window_table(plan, folding, record_type)
        registry = SchemaRegistry(spec.uid, manifest.state_metadata.get(spec.uid))
        settings = window_settings(plan, folding)
        table.open(registry, settings, keeps_records=plan.keeps_records)
        return CompositeTable(table, KeyedTable(GroupCache(1), lambda _domain: 0))

    for part in () if sealed is None else sealed.ranges:
        store: StateStore[CompositeTable[WindowTable]] = StateStore(
            spec.uid, setup.storage, new_table
        )
        table = store.at(with_mark(part, None)).main
        entries = {} if plan.keeps_records else table.entries.namespaces
        for namespace, groups in entries.items():
            for keys in groups.values():
                for key, entry in keys.items():
                    found.setdefault(key, {}).update(_contents(namespace, entry, folding))
        for namespace, rows in table.records.namespaces.items():
            for group, chunks in rows.items():
                for key in chunks:
                    found.setdefault(key, {})[namespace] = table.records.row(namespace, group, key)[
                        1
                    ]
    return found


def _contents(namespace: int, entry: Any, folding: Folding) -> dict[int, Any]:
    if not isinstance(entry, list):
        return {namespace: folding.value(entry)}
    bounds = [
        (0 if one.start == WATERMARK_MIN else one.start, one.content)
        if isinstance(one, Pane)
        else one[::2]
        for one in entry
    ]
    return {start: folding.value(content) for start, content in bounds if content is not None}
