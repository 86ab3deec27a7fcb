"""Levels: the choice of column operators for all chains that a task runs together.

A chain begins on columns if a source, a window or a chain before it emits them: the output of a
fork, or the input of a union, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bicycle_runtime.expressions.evaluation import has_expression
from bicycle_runtime.frames.record_shapes import RESULT_SHAPE, RecordShape
from bicycle_runtime.operators.columnar import EXPRESSION_KINDS, NO_COLUMNS
from bicycle_runtime.operators.columnar.choice import (
    MAPS,
    ChainChoice,
    Choosing,
    ColumnSteps,
    Load,
    folds,
    shape_of_source,
    window_reason,
)
from bicycle_runtime.operators.spec import ChainSpec, Link, OperatorSpec, StagePlan
from bicycle_sdk.graph import OperatorKind


def choose_level(
    plan: StagePlan,
    level: int,
    load: Load,
    *,
    gives_fields: Callable[[str], bool],
) -> dict[int, ChainChoice]:
    """Choose for the chains of a level, by their index.

    Args:
        plan: The chains of the job.
        level: Which of them run in one task.
        load: Returns the object of a payload id.
        gives_fields: Returns whether a source emits frames; called when nothing else
            needs records, so that it may begin to.
    """
    chains = plan.chains_at(level)
    choices = _Choices(load, {chain.index: _inputs(plan, chain) for chain in chains})
    for chain in chains:
        choices.choose(chain)
    sources = (chain for chain in chains if chain.operators[0].vertex.kind is OperatorKind.SOURCE)
    choices.refused = {
        chain.index
        for chain in sources
        if not (choices.spares_records(chain.index) and gives_fields(chain.operators[0].uid))
    }
    if choices.refused:
        for chain in chains:
            choices.choose(chain)
    return choices.found


def choose_all(
    plan: StagePlan,
    load: Load,
    *,
    gives_fields: Callable[[str], bool],
) -> dict[str, str | None]:
    """Return for each operator of a job why it works on records, or None.

    Args: as of ``choose_level``.
    """
    found: dict[str, str | None] = {}
    for level in range(plan.level_count):
        chosen = choose_level(plan, level, load, gives_fields=gives_fields)
        for choice in chosen.values():
            found |= choice.because
    for chain in plan.chains:
        found |= dict.fromkeys(_expressions(chain, load))
    for uid in found:
        folding = f"{uid}-combine"
        if found[uid] is None and found.get(folding) is not None:
            found[uid] = f"{folding!r} works on records"
    in_order = (spec.uid for chain in plan.chains for spec in chain.operators)
    return {uid: found[uid] for uid in in_order if uid in found}


class _Choices:
    """The choices for the chains of a level, in order of their inputs.

    Args:
        load: Returns the object of a payload id.
        inputs: By index of a chain, the chains whose output it takes as it is; None if it also has
            others.
    """

    def __init__(self, load: Load, inputs: Mapping[int, Sequence[int] | None]) -> None:
        self._load, self._inputs = load, inputs
        self.found: dict[int, ChainChoice] = {}
        self.refused: set[int] = set()  # chains whose sources emit records
        self._lasts: dict[int, str] = {}  # the last operator of each chain

    def choose(self, chain: ChainSpec) -> None:
        """Choose for a chain after the chains that send it their output."""
        self._lasts[chain.index] = chain.operators[-1].uid
        self.found[chain.index] = self._choose(chain)

    def spares_records(self, index: int) -> bool:
        """Return whether columns avoid records in a chain, or downstream of it."""
        below = (at for at, inputs in self._inputs.items() if inputs and index in inputs)
        return self.found[index].spares_records or any(map(self.spares_records, below))

    def _choose(self, chain: ChainSpec) -> ChainChoice:
        kind = chain.operators[0].vertex.kind
        if kind is OperatorKind.WINDOW:
            return self._behind_window(chain)
        if kind is OperatorKind.SOURCE:
            return self._behind_source(chain)
        shape = self._shape_of_inputs(chain)
        if folds(chain):
            found = self._folding(chain.operators, shape, {}, first=0)
            if shape is not None:
                return found
            return _records(chain, self._lack(chain))
        if shape is None:
            return _records(chain, NO_COLUMNS)
        return self._going_on(chain.operators, shape, {}, first=0)

    def _behind_window(self, chain: ChainSpec) -> ChainChoice:
        window, *others = chain.operators
        plan = self._load(window.vertex.payload_id("function"))
        because = {window.uid: window_reason(window, plan)}
        if plan.process is not None or plan.keeps_records:
            reason = "it reads the results of a window as records"
            return ChainChoice(
                because=because | dict.fromkeys([spec.uid for spec in others], reason)
            )
        if folds(chain):
            found = self._folding(others, RESULT_SHAPE, {}, first=1)
            return replace(found, because={**because, **found.because})
        return self._going_on(others, RESULT_SHAPE, because, first=1)

    def _behind_source(self, chain: ChainSpec) -> ChainChoice:
        source, *others = chain.operators
        shape, is_refused = shape_of_source(chain, self._load), chain.index in self.refused
        if folds(chain):
            reason = None
            if shape is None:
                reason = "its records have no type with plain fields"
            found = self._folding(others, shape, {source.uid: reason}, first=1)
            if found.steps is None or not is_refused:
                return found
            reason = "its connector returns records"
            return self._folding(others, shape, {source.uid: reason}, first=1)
        if shape is None or is_refused:
            return _records(chain, NO_COLUMNS)
        return self._going_on(others, shape, {source.uid: None}, first=1)

    def _shape_of_inputs(self, chain: ChainSpec) -> RecordShape | None:
        """Return the shape of a chain's input, or None if it includes records."""
        inputs = self._inputs[chain.index]
        shapes = [self.found[index].gives for index in inputs or ()]
        return shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else None

    def _lack(self, chain: ChainSpec) -> str:
        inputs = self._inputs[chain.index]
        if inputs is None:
            return "its input comes through an exchange"
        return f"{self._lasts[inputs[0]]!r} works on records"

    def _going_on(
        self, specs: Sequence[OperatorSpec], shape: RecordShape, because: dict[str, str | None],
        *, first: int,
    ) -> ChainChoice:  # fmt: skip
        """Choose for a chain without a fold: columns as far as they go."""
        choosing = Choosing(specs, self._load, shape)
        choosing.go_on_from_columns()
        is_made = any(step.kind in MAPS for step in choosing.found)
        last = specs[-1] if specs else None
        is_written = (
            last is not None
            and last.vertex.kind is OperatorKind.SINK
            and choosing.because[last.uid] is None
        )
        steps = ColumnSteps(steps=tuple(choosing.found), columns=(), windows=None)
        return ChainChoice(
            because=because | choosing.because,
            steps=steps if choosing.found else None,
            first=first,
            gives=choosing.shape,
            spares_records=is_made or (is_written and shape.is_open),
        )

    def _folding(
        self, specs: Sequence[OperatorSpec], shape: RecordShape | None,
        because: dict[str, str | None], *, first: int,
    ) -> ChainChoice:  # fmt: skip
        """Choose for a chain whose last step folds a window before the shuffle."""
        choosing = Choosing(specs, self._load, shape)
        choosing.go()
        found = choosing.because | because
        blocker = next((uid for uid in [*because, *found] if found[uid] is not None), None)
        if blocker is not None:
            behind = f"{blocker!r} works on records"
            return ChainChoice(because={uid: reason or behind for uid, reason in found.items()})
        plan = self._load(specs[-1].vertex.payload_id("function"))
        steps = ColumnSteps(
            steps=tuple(choosing.found),
            columns=tuple(choosing.columns),
            windows=plan.assigner,
        )
        return ChainChoice(because=found, steps=steps, first=first, spares_records=True)


def _records(chain: ChainSpec, reason: str) -> ChainChoice:
    return ChainChoice(because=dict.fromkeys([spec.uid for spec in chain.operators], reason))


def _inputs(plan: StagePlan, chain: ChainSpec) -> list[int] | None:
    """Return the chains whose output a chain reads unchanged, or None with others."""
    routes = [
        (above.index, route)
        for above in plan.chains
        for route in above.routes
        if route.target_chain == chain.index
    ]
    if any(route.link is not Link.DIRECT or route.tag is not None for _, route in routes):
        return None
    return [index for index, _ in routes]


def _expressions(chain: ChainSpec, load: Load) -> Iterator[str]:
    """Yield the operators that compute an expression, and so create columns."""
    for spec in chain.operators:
        kind = spec.vertex.kind
        if kind in EXPRESSION_KINDS and has_expression(load(spec.vertex.payload_id("function"))):
            yield spec.uid
