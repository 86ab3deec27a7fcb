"""Looking into sealed keyed states and timers: by operator, name and key.

A sealed file holds names and kinds of states but no types. Types come from the descriptors that the
function's class has as fields; what is declared elsewhere is read as plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle
import msgspec

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.layouts.state import ChangeSet, OperatorStateMetadata, RangeState
from bicycle_runtime.operators.functions.declarations import declared_states
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.sealed.refs import with_mark
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    TimeDomain,
    Timer,
    ValueStateDescriptor,
)
from bicycle_sdk.state.access import plain_view
from bicycle_sdk.windows import WindowPlan

__all__ = ["keyed_states_of", "timers_of"]

_UNTYPED: dict[str, type[Any]] = {
    "value": ValueStateDescriptor,
    "list": ListStateDescriptor,
    "map": MapStateDescriptor,
}


def keyed_states_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, now_ms: int
) -> dict[Any, dict[str, Any]]:
    """Return what each key has in each state, by key and name: values, lists, dicts.

    Args:
        setup: The job.
        manifest: The sealed epoch.
        spec: The operator.
        now_ms: What counts as now for states with a TTL of processing time.
    """
    function = cloudpickle.loads(setup.bundle.payloads[spec.vertex.payload_id("function")])
    if isinstance(function, WindowPlan):
        function = function.process
    declared = {state.name: state for state in declared_states(function)}
    found: dict[Any, dict[str, Any]] = {}
    for keyed, _ in _tables(setup, manifest, spec, now_ms):
        for state in declared.values():
            keyed.entries_of(state)
        for name, shape in keyed.names().items():
            descriptor: StateDescriptor = declared.get(name) or _UNTYPED[shape](name)
            entries = keyed.entries_of(descriptor)
            for key in list(entries.keys()):
                value = plain_view(descriptor.kind, entries, key)
                if value is not None:
                    found.setdefault(key, {})[name] = value
    return found


def timers_of(setup: JobSetup, manifest: Manifest, spec: OperatorSpec, key: Any) -> list[Timer]:
    """Return the timers of a key that wait: those of event time, then of processing time."""
    return [
        Timer(queue.domain, time_ms, key)
        for domain in ("event", "processing")
        for _, timers in _tables(setup, manifest, spec, 0)
        for queue in (timers.event, timers.processing)
        if queue.domain == domain
        for time_ms in queue.times_of(key)
    ]


class _NoTable:
    """Stands for the attributes of the function, which are looked at elsewhere."""

    def changes(self) -> list[ChangeSet]:
        return []

    def apply(self, change_sets: Any) -> None:
        """Read nothing."""


def _tables(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, now_ms: int
) -> Iterator[tuple[KeyedTable, TimerTable]]:
    sealed = manifest.states.get(spec.uid)
    for part in () if sealed is None else sealed.ranges:
        yield _opened(setup, manifest, spec, part, now_ms=now_ms)


def _declared_metadata(manifest: Manifest, spec: OperatorSpec) -> OperatorStateMetadata | None:
    """Return the forms of states that are declared; of others no type is known here."""
    state_metadata = manifest.state_metadata.get(spec.uid)
    if state_metadata is None:
        return None
    declared = tuple(state for state in state_metadata.states if not state.is_asked)
    return msgspec.structs.replace(state_metadata, states=declared)


def _opened(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec, part: RangeState, *, now_ms: int
) -> tuple[KeyedTable, TimerTable]:
    def clock(domain: TimeDomain) -> int:
        return now_ms if domain == "processing" else WATERMARK_MIN

    groups = GroupCache(spec.group_count)
    registry = SchemaRegistry(spec.uid, _declared_metadata(manifest, spec))
    keyed, timers = KeyedTable(groups, clock, registry=registry), TimerTable(groups)
    composite = CompositeTable(_NoTable(), keyed, timers)
    StateStore(spec.uid, setup.storage, lambda: composite).at(with_mark(part, None))
    return keyed, timers
