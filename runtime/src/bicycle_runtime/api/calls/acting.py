"""Acting on jobs: each request becomes an operation, which is answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.route import Call, Handler, answer_json

if TYPE_CHECKING:
    from bicycle_runtime.jobs.operations.operation import OperationKind
    from bicycle_runtime.service.store.history import Operation


def asking(kind: OperationKind) -> Handler:
    """Return the handler that starts an operation of this kind."""

    async def ask(call: Call) -> Response:
        words = dict(call.request.path_params)
        job = words.pop("job_id", None)
        body = {} if call.body is None else msgspec.to_builtins(call.body)
        facts = {**{name: value for name, value in body.items() if value is not None}, **words}
        key = call.request.headers.get("idempotency-key")
        return accepted(await call.scope.ask(kind.name, job, facts, key=key))

    return ask


def accepted(asked: Operation) -> Response:
    """Return the answer that an operation has begun."""
    location = {"Location": f"/api/v1/operations/{asked.id}"}
    return answer_json(asked, code=202, headers=location)


async def operation(call: Call) -> Response:
    """Answer with an operation, if asked so only when it is over."""
    number = int(call.request.path_params["operation_id"])
    return answer_json(await call.scope.operation(number, call.query.wait))


async def withdraw(call: Call) -> Response:
    """Take a job that waits out of the queue."""
    number = int(call.request.path_params["operation_id"])
    return answer_json(await call.scope.withdraw(number))


async def operations(call: Call) -> Response:
    """Answer with the operations of all jobs, or of one that may not have started yet."""
    found = await call.scope.operations(**msgspec.structs.asdict(call.query))
    return answer_json({"items": found})


async def job_operations(call: Call) -> Response:
    """Answer with the operations of one job."""
    await call.scope.known(call.job)
    return answer_json({"items": await call.scope.operations(job=call.job, limit=call.query.limit)})
