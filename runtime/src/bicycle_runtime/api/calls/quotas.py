"""Quotas of owners: shown, and set."""

from __future__ import annotations

from starlette.responses import Response

from bicycle_runtime.api.route import Call, answer_json


async def quota(call: Call) -> Response:
    """Return the quota of an owner, and its use."""
    owner = str(call.request.path_params["owner"])
    return answer_json(await call.scope.quota(owner))


async def set_quota(call: Call) -> Response:
    """Set the quota of an owner; running jobs continue."""
    owner = str(call.request.path_params["owner"])
    await call.scope.set_quota(owner, call.body)
    return answer_json(await call.scope.quota(owner))
