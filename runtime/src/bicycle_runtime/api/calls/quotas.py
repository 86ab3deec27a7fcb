"""What each owner may use: shown, and set."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.routing import Call, answer_json
from bicycle_runtime.service.users.owners import Quota

__all__ = ["quota", "set_quota"]


async def quota(call: Call) -> Response:
    """Answer with what an owner may use, and uses."""
    owner = str(call.request.path_params["owner"])
    return answer_json(await call.service.slow(call.service.quota_of, owner))


async def set_quota(call: Call) -> Response:
    """Set what an owner may use; jobs that run go on, whatever it says."""
    owner = str(call.request.path_params["owner"])
    given: Any = call.body
    asked = Quota(**msgspec.structs.asdict(given))
    await call.service.slow(
        call.service.set_quota, owner, asked, identity=call.identity,
        address=str(call.request.state.address),
    )  # fmt: skip
    return answer_json(await call.service.slow(call.service.quota_of, owner))
