"""Looking into the state of jobs."""

from __future__ import annotations

from starlette.responses import Response

from bicycle_runtime.api.route import Call, answer_json

__all__ = ["changes", "entries", "operators"]


async def operators(call: Call) -> Response:
    """Answer with the operators that have state, and what each keeps."""
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
    """Answer with what an epoch changed since another one."""
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
