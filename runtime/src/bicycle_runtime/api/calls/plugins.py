"""Plugins that are uploaded: taken, listed, removed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from bicycle_runtime.api.calls.acting import accepted
from bicycle_runtime.api.errors import BODY_UNREADABLE
from bicycle_runtime.api.route import Call, answer_json
from bicycle_runtime.api.uploads import UPLOAD_FILES, read_form
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.service.plugins.uploaded_plugins import InstallFacts

if TYPE_CHECKING:
    from bicycle_runtime.service.store.history import Operation

_WAIT_S = 55.0  # Below the usual timeout of a minute of clients and proxies.


async def plugins(call: Call) -> Response:
    """Answer with all uploaded plugins."""
    return answer_json({"items": await call.scope.plugins()})


async def plugin(call: Call) -> Response:
    """Answer with one uploaded plugin."""
    digest = str(call.request.path_params["digest"])
    return answer_json(await call.scope.plugin(digest))


async def upload(call: Call) -> Response:
    """Install a wheel. The answer is the plugin; the operation when that takes longer."""
    async with read_form(call.request) as form:
        facts = await _receive(call, form)
    asked = await _ask(call, "install", msgspec.to_builtins(facts))
    over = await call.scope.operation(asked.id, _WAIT_S)
    if not over.is_over:
        return accepted(over)
    if over.error is not None:
        raise error_from_json(over.error)
    result = over.result or {}
    location = f"/api/v1/plugins/{facts.digest}"
    code = 201 if result["is_new"] else 200
    return answer_json(result["plugin"], code=code, headers={"Location": location})


async def remove(call: Call) -> Response:
    """Begin the removal of a plugin."""
    facts = {"digest": str(call.request.path_params["digest"])}
    return accepted(await _ask(call, "remove_plugin", facts))


async def _receive(call: Call, form: FormData) -> InstallFacts:
    wheel, lock = form.get("wheel"), form.get("lock")
    unknown = sorted(set(form) - set(UPLOAD_FILES))
    if unknown or not isinstance(wheel, UploadFile) or not wheel.filename:
        raise BODY_UNREADABLE(
            problem="the form must have one file `wheel` and at most one file `lock`"
        )
    data = await lock.read() if isinstance(lock, UploadFile) else lock
    locked = data.encode() if isinstance(data, str) else data
    return await asyncio.to_thread(call.scope.receive, wheel.filename, wheel.file, locked or None)


async def _ask(call: Call, kind: str, facts: dict[str, Any]) -> Operation:
    key = call.request.headers.get("idempotency-key")
    return await call.scope.ask(kind, None, facts, key=key)
