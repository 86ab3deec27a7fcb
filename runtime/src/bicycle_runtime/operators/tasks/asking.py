"""Questions to operators: use of columns, and sources that emit frames.

A frame passes operators that work on columns, up to the first one that needs records. A source
emits frames only if that spares somewhere the creation of records; otherwise rows would be made of
its documents first, and then records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.operators.columnar import NO_COLUMNS
from bicycle_runtime.operators.functions.answers import Asked, ColumnAnswer, Load
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.transform import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapOperator,
    PassOperator,
)
from bicycle_runtime.operators.functions.watermarks import AssignOperator, SourceOperator
from bicycle_runtime.operators.spec import ChainSpec, Link, OperatorSpec, StagePlan
from bicycle_runtime.operators.tasks.sink import SinkOperator
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.combine import CombineOperator
from bicycle_sdk.graph import OperatorKind

_ANSWERS: dict[OperatorKind, Callable[[OperatorSpec, Load, RecordShape | None], ColumnAnswer]] = {
    OperatorKind.SOURCE: SourceOperator.answer,
    OperatorKind.UNION: PassOperator.answer,
    OperatorKind.ASSIGN_TIMESTAMPS: AssignOperator.answer,
    OperatorKind.FILTER: FilterOperator.answer,
    OperatorKind.MAP: MapOperator.answer,
    OperatorKind.FLAT_MAP: FlatMapOperator.answer,
    OperatorKind.KEY_BY: KeyByOperator.answer,
    OperatorKind.WINDOW_COMBINE: CombineOperator.answer,
    OperatorKind.WINDOW: WindowOperator.answer,
    OperatorKind.SINK: SinkOperator.answer,
}
# Kinds that compute on columns; others emit frames, or read them as they are.
ON_COLUMNS = frozenset(_ANSWERS) - {OperatorKind.SOURCE, OperatorKind.WINDOW, OperatorKind.SINK}


def ask_operator(spec: OperatorSpec, load: Load) -> Asked:
    """Return the answers of an operator; ``load`` returns the object of a payload id."""
    return Asked(partial(_ANSWERS.get(spec.vertex.kind, Operator.answer), spec, load))


def ask_all(
    plan: StagePlan, load: Load, *, gives_fields: Callable[[str], bool]
) -> dict[str, str | None]:
    """Return for each operator of a job why it works on records, or None.

    Args:
        plan: The chains of the job.
        load: Returns the object of a payload id.
        gives_fields: Returns whether a source can emit frames.
    """
    asked = {spec.uid: ask_operator(spec, load) for spec in plan.operators()}
    found: dict[str, str | None] = {}
    for level in range(plan.level_count):
        found |= Level(plan, level, asked, gives_fields=gives_fields).because
    for uid in found:
        folding = f"{uid}-combine"
        if found[uid] is None and found.get(folding) is not None:
            found[uid] = _works_on_records(folding)
    return {spec.uid: found[spec.uid] for spec in plan.operators()}


class Level:
    """The answers of the operators of a level; ``asked`` has them by uid.

    ``because`` has the reason for records by operator, None for columns, and ``sources`` the shape
    of the records of each source that emits frames, by uid. ``gives_fields`` returns whether a
    source can emit frames; it is called only if the source should, so that it may begin to.
    """

    def __init__(
        self, plan: StagePlan, level: int, asked: Mapping[str, Asked],
        *, gives_fields: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._asked = asked
        self._chains = plan.chains_at(level)
        self._inputs = {chain.index: _inputs(plan, chain) for chain in self._chains}
        self._lasts = {chain.index: chain.operators[-1].uid for chain in self._chains}
        # Chains whose sources emit records, and the reason, None if frames are useless.
        self._refusals: dict[int, str | None] = {}
        self._ask()
        for chain in self._chains:
            source = chain.operators[0]
            if source.vertex.kind is not OperatorKind.SOURCE:
                continue
            if not self._spares_records(chain.index):
                self._refusals[chain.index] = None
            elif not gives_fields(source.uid):
                self._refusals[chain.index] = "its connector returns records"
        if self._refusals:
            self._ask()

    def _ask(self) -> None:
        """Find the answers for all chains, each after its inputs."""
        self.because: dict[str, str | None] = {}
        self.sources: dict[str, RecordShape | None] = {}
        self._shapes: dict[int, RecordShape | None] = {}  # of the output of chains
        self._spared_chains: set[int] = set()
        for chain in self._chains:
            shape, lack = self._input(chain)
            first, steps = chain.operators[0], self._steps(chain.operators, shape)
            if chain.index in self._refusals:
                self.because |= _find_reasons_of_records(steps, self._refusals[chain.index])
                steps = self._steps(chain.operators[1:], None)  # Expressions begin columns.
                reasons = _find_reasons(steps, lack).items()
                self.because |= {uid: None for uid, reason in reasons if reason is None}
            else:
                if first.vertex.kind is OperatorKind.SOURCE:
                    self.sources[first.uid] = steps[0].answer.gives
                self.because |= _find_reasons(steps, lack)
            self._shapes[chain.index] = steps[-1].answer.gives if steps else None
            if any(step.is_asked and step.answer.spares_records for step in steps):
                self._spared_chains.add(chain.index)

    def _steps(self, specs: Sequence[OperatorSpec], shape: RecordShape | None) -> list[_Step]:
        steps = []
        for spec in specs:
            answer = self._asked[spec.uid].for_shape(shape)
            is_first = spec.vertex.kind in (OperatorKind.SOURCE, OperatorKind.WINDOW)
            steps.append(_Step(spec, answer, is_first or shape is not None or answer.begins))
            shape = answer.gives
        return steps

    def _input(self, chain: ChainSpec) -> tuple[RecordShape | None, str]:
        """Return the shape of a chain's input, None for records, and the reason."""
        inputs = self._inputs[chain.index]
        shapes = [self._shapes[index] for index in inputs or ()]
        shape = shapes[0] if shapes and all(each == shapes[0] for each in shapes) else None
        if chain.operators[-1].vertex.kind is not OperatorKind.WINDOW_COMBINE:
            return shape, NO_COLUMNS
        if inputs:
            return shape, _works_on_records(self._lasts[inputs[0]])
        return shape, "its input comes through an exchange"

    def _spares_records(self, index: int) -> bool:
        """Return whether columns avoid records in a chain, or downstream of it."""
        below = (at for at, above in self._inputs.items() if above and index in above)
        return index in self._spared_chains or any(map(self._spares_records, below))


class _Step(NamedTuple):
    """An operator and its answer; ``is_asked``: its input is a frame, or may be any."""

    spec: OperatorSpec
    answer: ColumnAnswer
    is_asked: bool


def _find_reasons(steps: Sequence[_Step], lack: str) -> dict[str, str | None]:
    """Return the reasons of operators; ``lack`` is the reason before the first frame."""
    because: dict[str, str | None] = {}
    for spec, answer, is_asked in steps:
        because[spec.uid] = answer.because if is_asked else lack
        if not is_asked or answer.gives is not None:
            continue
        if spec.vertex.kind is OperatorKind.WINDOW:
            lack = "it reads the results of a window as records"
        elif spec.vertex.kind is OperatorKind.SOURCE and not _folds(steps):
            because[spec.uid] = lack
        elif answer.because is not None:
            lack = _works_on_records(spec.uid)
    return because


def _find_reasons_of_records(steps: Sequence[_Step], refusal: str | None) -> dict[str, str | None]:
    """Return the reasons of operators of a source that emits records."""
    if not _folds(steps):
        return {step.spec.uid: NO_COLUMNS for step in steps}
    reasons = {step.spec.uid: step.answer.because for step in steps}
    source = steps[0].spec.uid
    reasons[source] = refusal or reasons[source]
    blocker = next((uid for uid, reason in reasons.items() if reason is not None), source)
    return {uid: reason or _works_on_records(blocker) for uid, reason in reasons.items()}


def _inputs(plan: StagePlan, chain: ChainSpec) -> list[int] | None:
    """Return the chains whose output a chain gets as it is, or None with others."""
    routes = [
        (above.index, route)
        for above in plan.chains
        for route in above.routes
        if route.target_chain == chain.index
    ]
    if any(route.link is not Link.DIRECT or route.tag is not None for _, route in routes):
        return None
    return [index for index, _ in routes]


def _folds(steps: Sequence[_Step]) -> bool:
    return steps[-1].spec.vertex.kind is OperatorKind.WINDOW_COMBINE


def _works_on_records(uid: str) -> str:
    return f"{uid!r} works on records"
