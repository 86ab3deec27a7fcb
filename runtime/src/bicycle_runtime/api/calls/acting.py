"""Acting on jobs: each request becomes an operation, which is answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.route import Call, Handler, answer_json

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
    key = call.request.headers.get("idempotency-key")
    return accepted(await call.scope.ask(kind, job, facts, key=key))


def accepted(asked: Operation) -> Response:
    """Return the answer that an operation has begun."""
    place = {"Location": f"/api/v1/operations/{asked.id}"}
    return answer_json(asked, code=202, headers=place)


async def operation(call: Call) -> Response:
    """Answer with an operation, if asked so only when it is over."""
    number = int(call.request.path_params["operation_id"])
    return answer_json(await call.scope.operation(number, call.query.wait))


async def withdraw(call: Call) -> Response:
    """Take a job that waits out of the queue."""
    number = int(call.request.path_params["operation_id"])
    return answer_json(await call.scope.withdraw(number))


async def operations(call: Call) -> Response:
    """Answer with the operations of all jobs."""
    return answer_json({"items": await call.scope.operations(limit=call.query.limit)})


async def job_operations(call: Call) -> Response:
    """Answer with the operations of one job."""
    await call.scope.known(call.job)
    return answer_json({"items": await call.scope.operations(call.job, limit=call.query.limit)})
