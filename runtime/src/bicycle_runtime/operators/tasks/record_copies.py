"""Records with more than one reader, and the readers that need copies.

Along a task records are passed as objects. An object that two branches get, that goes out and to a
side output, or that an operator may keep in its state, must not be changed by a function below it
for the others. So each branch in which a function may change records gets copies, unless no other
branch has the originals. Records of a type that cannot be changed in place are never copied.

Key selectors, filters and functions that return the time of a record must not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain as chained
from typing import Any

from bicycle_runtime.expressions.evaluation import has_expression
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.functions.answers import Load, loaded_function
from bicycle_runtime.operators.spec import ChainSpec, Link, OperatorSpec, StagePlan, StateScope
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_runtime.records.exactness import PLAIN
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.separation import separate

Copy = Callable[[Batch], Batch]
Changes = Callable[[OperatorSpec], bool]


def may_change(spec: OperatorSpec) -> bool:
    """Return whether the function of an operator may change the records that it gets."""
    return spec.vertex.descriptor.may_change_records


def may_change_by(load: Load) -> Changes:
    """Return ``may_change`` for loaded functions: an expression changes nothing.

    Args:
        load: Returns the object of a payload id.
    """
    known: dict[str, bool] = {}  # By uid: each function is loaded once.

    def changes(spec: OperatorSpec) -> bool:
        if spec.uid not in known:
            known[spec.uid] = may_change(spec) and not has_expression(loaded_function(spec, load))
        return known[spec.uid]

    return changes


def copied_inputs(spec: ChainSpec, changes: Changes) -> list[int]:
    """Return the operators of a chain that get copies of the previous one's output."""
    return [
        index + 1
        for index in range(len(spec.operators) - 1)
        if _has_others(spec, index) and any(map(changes, spec.operators[index + 1 :]))
    ]


def copied_edges(plan: StagePlan, spec: ChainSpec, changes: Changes) -> set[int]:
    """Return the edges out of a chain along which copies go."""
    readers = [
        route
        for route in spec.routes
        if route.link is Link.DIRECT and _changes_below(plan, route.target_chain, changes)
    ]
    changing = [route.edge for route in readers]
    last = len(spec.operators) - 1
    kept = (index for index in range(last + 1) if _has_others(spec, index))
    is_kept = any(not any(map(changes, spec.operators[index + 1 :])) for index in kept)
    if is_kept or len(changing) < len(spec.routes):
        return set(changing)
    # The last has the originals to itself, since the others have copies; unless it reads a side
    # output of an operator that may keep them.
    sides = (route for route in readers if route.tag is not None)
    from_keepers = {route.edge for route in sides if _keeps(spec.operators[route.operator])}
    return {*changing[:-1]} | from_keepers


def is_separating(plan: StagePlan, edge: int) -> bool:
    """Return whether records on an edge may share parts that a function changes.

    Results of operators with state may be the same row in several pairs or windows. How many of
    them travel together depends on epochs, so no row may be changed by the processing of another.
    """
    for spec in plan.chains:
        for route in spec.routes:
            if route.edge == edge:
                below = route.target_chain
                return _changes_below(plan, below, may_change) and _gives_kept(plan, spec)
    return False


def copier(declared: Any, *, sender: str) -> Copy | None:
    """Return a copier of a batch's records, or None for an immutable type.

    Args:
        declared: Their declared type; None when it is not known.
        sender: The sender, for errors.
    """
    if declared is not None and is_frozen_type(declared):
        return None
    codec = RecordCodec(declared, sender=sender)

    def copy(batch: Batch) -> Batch:
        lying = batch.values
        if isinstance(lying, Frame) and (own := lying.copy()) is not None:
            return replace(batch, values=own)
        values = batch.to_list()
        if _are_frozen(values):
            return batch
        data = codec.encode_typed(values)
        # Values pickled together would still have parts in common, and so would values that cannot
        # be encoded; an object with a lock or a connection can only be shared.
        copies = list(map(separate, values)) if data is None else codec.decode("typed", data)
        return replace(batch, values=copies)

    return copy


def _are_frozen(values: list[Any]) -> bool:
    """Return whether records are scalars, or tuples of scalars, whatever is declared."""
    kinds = set(map(type, values))
    if kinds <= PLAIN:
        return True
    return kinds == {tuple} and PLAIN.issuperset(map(type, chained.from_iterable(values)))


def _has_others(spec: ChainSpec, index: int) -> bool:
    """Return whether the operator or a side output may keep its output records."""
    sides = (route for route in spec.routes if route.tag is not None and route.operator == index)
    return _keeps(spec.operators[index]) or any(sides)


def _keeps(operator: OperatorSpec) -> bool:
    return operator.scope is not StateScope.NONE


def _gives_kept(plan: StagePlan, spec: ChainSpec) -> bool:
    """Return whether a chain's output may come from an operator that keeps it."""
    return any(map(_keeps, spec.operators)) or any(
        _gives_kept(plan, above)
        for above in plan.chains
        for route in above.routes
        if route.link is Link.DIRECT and route.target_chain == spec.index
    )


def _changes_below(plan: StagePlan, index: int, changes: Changes) -> bool:
    """Return whether a chain, or one that it passes objects to, may change them."""
    spec = next(chain for chain in plan.chains if chain.index == index)
    direct = (route for route in spec.routes if route.link is Link.DIRECT)
    return any(map(changes, spec.operators)) or any(
        _changes_below(plan, route.target_chain, changes) for route in direct
    )
