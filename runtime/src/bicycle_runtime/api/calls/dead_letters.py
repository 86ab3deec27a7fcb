"""Looking at dead letters; values of records are not told."""

from __future__ import annotations

from starlette.responses import Response

from bicycle_runtime.api.routing import Call, answer_json
from bicycle_runtime.jobs.control.dead_letters import dead_letter, dead_letters

__all__ = ["letter", "letters"]


async def letters(call: Call) -> Response:
    """Answer with dead letters, the newest first."""
    query, home = call.query, call.service.home
    found, following = await call.service.slow(
        dead_letters, home, call.job, operator=query.operator, after=query.after, limit=query.limit
    )
    return answer_json({"items": found, "next": following})


async def letter(call: Call) -> Response:
    """Answer with one dead letter."""
    name = str(call.request.path_params["letter"])
    return answer_json(await call.service.slow(dead_letter, call.service.home, call.job, name))
