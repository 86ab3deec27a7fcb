"""Orders for each task of each level, from planned slices and sealed state. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bicycle_runtime.contract import Slice, StagedFile
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.operators.spec import ChainSpec, StagePlan, StateScope
from bicycle_runtime.operators.tasks.orders import EpochOrder, LetterOrder, TaskOrder, TimeOrder
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.graph import Partitioning


def epoch_orders(
    plan: StagePlan, last: Manifest, *, epoch: int, now_ms: int, is_interval_over: bool,
    slices: Mapping[str, Sequence[Slice]], time: TimeOrder, letters: Sequence[LetterOrder] = (),
) -> list[EpochOrder]:  # fmt: skip
    """Return one order per level, for the epoch behind ``last``.

    Slice i of a source goes to subtask ``i % parallelism``, a feedback file to the subtask it was
    written for (modulo the parallelism, which may have changed since); files sent to all subtasks
    go to all current ones. Letters of keyed operators go to all: each takes the letters of its
    keys.
    """
    orders = []
    edges = plan.edges_with_turns()
    for level, parallelism in enumerate(plan.level_parallelism):
        tasks = [_empty() for _ in range(parallelism)]
        for chain in plan.chains_at(level):
            _add_slices(tasks, chain, slices)
            _add_states(tasks, chain, last.states)
            _add_feedback(tasks, chain, plan, last.feedback)
            _add_turns(tasks, chain, edges, last.turns)
            _add_letters(tasks, chain, letters)
        orders.append(
            EpochOrder(
                epoch=epoch,
                now_ms=now_ms,
                is_interval_over=is_interval_over,
                tasks=tasks,
                time=time,
            )
        )
    return orders


def _empty() -> TaskOrder:
    return TaskOrder(slices={}, states={}, feedback={}, turns={}, letters=[])


def _add_slices(
    tasks: list[TaskOrder], chain: ChainSpec, slices: Mapping[str, Sequence[Slice]]
) -> None:
    uid = chain.operators[0].uid
    for index, part in enumerate(slices.get(uid, ())):
        tasks[index % chain.parallelism].slices.setdefault(uid, []).append(part)


def _add_states(
    tasks: list[TaskOrder], chain: ChainSpec, states: Mapping[str, OperatorState]
) -> None:
    for operator in chain.operators:
        if operator.scope is not StateScope.NONE:
            for subtask, state in enumerate(states[operator.uid].ranges):
                tasks[subtask].states[operator.uid] = state


def _add_feedback(
    tasks: list[TaskOrder],
    chain: ChainSpec,
    plan: StagePlan,
    feedback: Mapping[int, Sequence[StagedFile]],
) -> None:
    routes = {
        route.edge: route
        for other in plan.chains
        for route in other.routes
        if route.target_chain == chain.index
    }
    for edge in sorted(routes.keys() & feedback.keys()):
        if routes[edge].partitioning is Partitioning.BROADCAST:
            # Every target of then has a copy; the targets of now all take the first one's.
            copies = [file for file in feedback[edge] if file.details["target"] == 0]
            for task in tasks[: chain.parallelism]:
                task.feedback.setdefault(edge, []).extend(copies)
            continue
        for file in feedback[edge]:
            target = file.details["target"] % chain.parallelism
            tasks[target].feedback.setdefault(edge, []).append(file)


def _add_letters(tasks: list[TaskOrder], chain: ChainSpec, letters: Sequence[LetterOrder]) -> None:
    operators = {operator.uid: operator for operator in chain.operators}
    for number, letter in enumerate(letters):
        operator = operators.get(letter.operator)
        if operator is None:
            continue
        if operator.scope is StateScope.KEY_GROUPS:
            for task in tasks[: chain.parallelism]:
                task.letters.append(letter)
        else:
            tasks[number % chain.parallelism].letters.append(letter)


def _add_turns(
    tasks: list[TaskOrder],
    chain: ChainSpec,
    edges: Mapping[int, str],
    turns: Mapping[str, Sequence[int]],
) -> None:
    for route in chain.routes:
        known = turns.get(edges.get(route.edge, ""), ())
        for task, turn in zip(tasks[: chain.parallelism], known, strict=False):
            task.turns[route.edge] = turn
