"""Acting on jobs: each request becomes an operation, which is answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.routing import Call, Handler, answer_json

if TYPE_CHECKING:
    from bicycle_runtime.service.store.history import Operation

__all__ = [
    "accepted",
    "asking",
    "delete_savepoint",
    "job_operations",
    "operation",
    "operations",
    "restore",
    "submit",
    "withdraw",
]


def asking(kind: str) -> Handler:
    """Return the handler that asks an operation of this kind of the job in the path."""

    async def ask(call: Call) -> Response:
        return await _ask(call, kind, call.job)

    return ask


async def delete_savepoint(call: Call) -> Response:
    """Begin the removal of a savepoint."""
    facts = {"name": str(call.request.path_params["savepoint"])}
    return await _ask(call, "delete_savepoint", call.job, facts)


async def submit(call: Call) -> Response:
    """Begin the start of a job."""
    return await _ask(call, "submit", None)


async def restore(call: Call) -> Response:
    """Begin to put a savepoint into the place of a job that has no epoch yet."""
    return await _ask(call, "restore", None)


async def _ask(
    call: Call, kind: str, job: str | None, facts: dict[str, Any] | None = None
) -> Response:
    if facts is None:
        facts = {} if call.body is None else msgspec.to_builtins(call.body)
    asked = await call.service.slow(
        call.service.operations.ask,
        kind,
        job,
        facts,
        identity=call.identity,
        key=call.request.headers.get("idempotency-key"),
        address=str(call.request.state.address),
    )
    return accepted(asked)


def accepted(asked: Operation) -> Response:
    """Return the answer that an operation has begun."""
    place = {"Location": f"/api/v1/operations/{asked.id}"}
    return answer_json(asked, code=202, headers=place)


async def operation(call: Call) -> Response:
    """Answer with an operation, if asked so only when it is over."""
    number = int(call.request.path_params["operation_id"])
    found = await call.service.operations.wait(number, call.query.wait)
    return answer_json(found)


async def withdraw(call: Call) -> Response:
    """Take a job that waits out of the queue."""
    number = int(call.request.path_params["operation_id"])
    found = await call.service.slow(
        call.service.operations.withdraw, number, identity=call.identity,
        address=str(call.request.state.address),
    )  # fmt: skip
    return answer_json(found)


async def operations(call: Call) -> Response:
    """Answer with the operations of all jobs."""
    found = await call.service.slow(call.service.operations.recent, limit=call.query.limit)
    return answer_json({"items": found})


async def job_operations(call: Call) -> Response:
    """Answer with the operations of one job."""
    await call.service.known(call.job)
    recent = call.service.operations.recent
    return answer_json({"items": await call.service.slow(recent, call.job, limit=call.query.limit)})
