"""Looking into the state of jobs: questions, answers, and their shapes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from bicycle_runtime.api.route import Call, Shape, answer_json
from bicycle_runtime.jobs.checkpoints.sealed_queries import SealedOperator


class OperatorsQuery(Shape, frozen=True, kw_only=True):
    """A retained ``epoch``; the newest one without it."""

    epoch: int | None = None


class EntriesQuery(Shape, frozen=True, kw_only=True):
    """A query of entries: a ``key`` (JSON, or a text), or a prefix of text keys."""

    key: str | None = None
    prefix: str | None = None
    epoch: int | None = None
    limit: int = 20


class ChangesQuery(Shape, frozen=True, kw_only=True):
    """A query of changes in ``epoch`` (the newest) ``since`` another epoch."""

    since: int | None = None
    epoch: int | None = None
    operator: str | None = None
    state: str | None = None
    limit: int = 20


class Operators(Shape, frozen=True, kw_only=True):
    """Operators with state in an epoch."""

    url: str
    epoch: int
    operators: list[SealedOperator]


class StateRow(Shape, frozen=True, kw_only=True):
    """One entry; a pickled value is shown by type, size and checksum, never loaded."""

    operator: str
    state: str
    kind: str
    key_group: int | None
    task: int | None
    key: Any
    part: Any
    value: Any
    since_ms: int | None
    bytes: int


class Entries(Shape, frozen=True, kw_only=True):
    """Entries of a state in an epoch, perhaps empty; ``is_cut``: there are more."""

    url: str
    epoch: int
    entries: list[StateRow]
    is_cut: bool


class StateChangeRow(Shape, frozen=True, kw_only=True):
    """One entry that was added, removed or changed."""

    change: str
    state: str
    kind: str
    key_group: int | None
    task: int | None
    key: Any
    part: Any
    before: Any
    after: Any


class OperatorChanges(Shape, frozen=True, kw_only=True):
    """The changes in an operator: totals, and the first changes."""

    operator: str
    added: int
    removed: int
    changed: int
    changes: list[StateChangeRow]


class Changes(Shape, frozen=True, kw_only=True):
    """The changes between two ``epochs``, and the number of records between them."""

    url: str
    epochs: list[int]
    record_count: int
    operators: list[OperatorChanges]


async def operators(call: Call) -> Response:
    """Return the operators that have state, with their states."""
    found = await call.service.state(call.job, "operators", epoch=call.query.epoch)
    return answer_json(found)


async def entries(call: Call) -> Response:
    """Answer with entries of one state."""
    path, query = call.request.path_params, call.query
    found = await call.service.state(
        call.job,
        "entries",
        operator=path["operator"],
        state=path["state"],
        key=query.key,
        prefix=query.prefix,
        epoch=query.epoch,
        limit=query.limit,
    )
    return answer_json(found)


async def changes(call: Call) -> Response:
    """Return the changes of an epoch since another one."""
    query = call.query
    found = await call.service.state(
        call.job,
        "changes",
        since=query.since,
        epoch=query.epoch,
        operator=query.operator,
        state=query.state,
        limit=query.limit,
    )
    return answer_json(found)
