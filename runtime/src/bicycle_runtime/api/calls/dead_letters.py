"""Reading of dead letters; operators may also read values of records."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.route import Call, answer_json
from bicycle_runtime.jobs.control.dead_letters import dead_letter, dead_letters
from bicycle_streams.access.roles import Role, require_role


async def letters(call: Call) -> Response:
    """Answer with dead letters, the newest first."""
    query, home = call.query, call.service.home
    found, following = await call.service.slow(
        dead_letters, home, call.job, operator=query.operator, after=query.after, limit=query.limit
    )
    items = call.service.secrets.hide(call.job, msgspec.to_builtins(found))
    return answer_json({"items": items, "next": following})


async def letter(call: Call) -> Response:
    """Return one dead letter; an operator's access to its value is noted."""
    name, is_revealed = str(call.request.path_params["letter"]), call.query.reveal
    if is_revealed:
        require_role(call.identity, Role.OPERATOR)
    found = await call.service.slow(
        dead_letter, call.service.home, call.job, name, is_revealed=is_revealed
    )
    if is_revealed:
        await call.scope.note("reveal", call.job, {"letter": name})
    return answer_json(call.service.secrets.hide(call.job, found))
