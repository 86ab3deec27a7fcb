"""Looking into the sealed state of windows, by key: what each window or strip holds so far."""

from __future__ import annotations

from typing import Any

import cloudpickle

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.operators.folding.aggregates import Folding
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.windows.build import window_table
from bicycle_runtime.operators.windows.meaning import window_settings
from bicycle_runtime.operators.windows.panes import Pane
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.windows import WindowTable
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.values.reading import StateBook
from bicycle_sdk.contexts import WATERMARK_MIN

__all__ = ["windows_of"]


def windows_of(
    setup: JobSetup, manifest: Manifest, spec: OperatorSpec
) -> dict[Any, dict[int, Any]]:
    """Return, by key, what is held from which time on: the result so far, or the records.

    Of sliding windows these are the strips that windows share; of sessions and of windows with a
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
        book = StateBook(spec.uid, manifest.forms.get(spec.uid))
        settings = window_settings(plan, folding)
        table.open(book, settings, keeps_records=plan.keeps_records)
        return CompositeTable(table, KeyedTable(GroupCache(1), lambda _domain: 0))

    for part in () if sealed is None else sealed.ranges:
        store: StateStore[CompositeTable[WindowTable]] = StateStore(
            spec.uid, setup.storage, new_table
        )
        table = store.at(part.with_mark(None)).main
        cells = {} if plan.keeps_records else table.cells.places
        for place, groups in cells.items():
            for keys in groups.values():
                for key, cell in keys.items():
                    found.setdefault(key, {}).update(_contents(place, cell, folding))
        for place, rows in table.records.places.items():
            for group, chunks in rows.items():
                for key in chunks:
                    found.setdefault(key, {})[place] = table.records.row(place, group, key)[1]
    return found


def _contents(place: int, cell: Any, folding: Folding) -> dict[int, Any]:
    if not isinstance(cell, list):
        return {place: folding.value(cell)}
    bounds = [
        (0 if one.start == WATERMARK_MIN else one.start, one.content)
        if isinstance(one, Pane)
        else one[::2]
        for one in cell
    ]
    return {start: folding.value(content) for start, content in bounds if content is not None}
