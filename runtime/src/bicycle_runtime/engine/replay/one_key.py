"""Showing operators one key only, when a replay is about that key.

Records are left out where they reach an operator that is keyed; timers and windows of other keys do
not fire. The state of other keys is loaded and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import cloudpickle

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.operators.batch import Batch, PickLineage
from bicycle_runtime.operators.functions.operator import Advance, Operator
from bicycle_runtime.operators.functions.process import StatefulOperator
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.operators.user_calls.user_functions import resolve
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.firing import Fired, Firing
from bicycle_sdk.functions import as_callable

Selector = Callable[[Any], Any]


def narrow_to(program: Program, setup: JobSetup, keys: Sequence[Any]) -> None:
    """Restrict the keyed operators of a program to some keys.

    Args:
        program: Built, and not run yet.
        setup: The job.
        keys: The keys.
    """
    for operator in program.operators():
        packs = operator.spec.vertex.descriptor.packs_records
        is_keyed = operator.spec.scope is StateScope.KEY_GROUPS
        if not is_keyed and not packs:
            continue
        # Behind a combining operator records are packed; that operator has left out the others.
        if not _is_behind_combining(setup, operator):
            operator.select = partial(_of_keys, _selectors(setup, operator), keys)
        if isinstance(operator, StatefulOperator):
            _narrow_timers(operator, keys)
        if isinstance(operator, WindowOperator):
            _narrow_firing(operator.firing, keys)


def _is_behind_combining(setup: JobSetup, operator: Operator) -> bool:
    inputs = setup.graph.inputs_of(operator.uid)
    return any(setup.graph.vertex(edge.source_id).descriptor.packs_records for edge in inputs)


def _selectors(setup: JobSetup, operator: Operator) -> list[Selector | None]:
    """Return the key selectors by input."""
    spec = operator.spec
    names = spec.input_selectors or (spec.key_selector,)
    return [_load(setup.bundle.payloads, name) for name in names]


def _load(payloads: Mapping[str, bytes], name: str | None) -> Selector | None:
    if name is None:
        return None
    selector = as_callable(cloudpickle.loads(payloads[name]), "get_key")
    return partial(resolve, selector) if is_async(selector) else selector


def _of_keys(selectors: Sequence[Selector | None], keys: Sequence[Any], batch: Batch) -> Batch:
    """Return the records of some keys; all of an input that has no keys."""
    selector = selectors[batch.ordinal if len(selectors) > 1 else 0]
    if selector is None:
        return batch
    picked = [index for index, value in enumerate(batch.values) if selector(value) in keys]
    groups = batch.groups
    if groups is not None:
        chosen = [groups[index] for index in picked]
        groups = bytes(chosen) if isinstance(groups, bytes) else chosen
    values = [batch.values[index] for index in picked]
    return Batch(values, PickLineage(batch.lineage, lambda: picked), groups, batch.ordinal)


def _narrow_timers(operator: StatefulOperator, keys: Sequence[Any]) -> None:
    begin_time = operator.begin_time

    def begin_with_keys(advance: Advance) -> None:
        """Forget the timers of other keys, without a trace in the state."""
        timers = operator.context.timers
        for queue in (timers.event, timers.processing, timers.waiting):
            queue.keep_only(keys)
        begin_time(advance)

    operator.begin_time = begin_with_keys  # type: ignore[method-assign]  # of this one, for a replay


def _narrow_firing(firing: Firing, keys: Sequence[Any]) -> None:
    results = firing.results

    def results_of_keys(fired: Sequence[Fired]) -> tuple[Sequence[Any], list[int]]:
        return results([each for each in fired if each.key in keys])

    firing.results = results_of_keys  # type: ignore[method-assign]  # of this one, for a replay
