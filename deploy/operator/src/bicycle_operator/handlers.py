"""The handlers of kopf, which reconcile resources and write their status.

A timer makes all steps, and a lost watch only delays a change. The timer writes patches itself: if
a patch of kopf fails, kopf stops the timer until the operator restarts. kopf may call the handler
of a deletion, which makes the last steps, while a timer runs: both take the lock of the resource.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import kopf
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.patching import patch_obj

from bicycle_operator.autoscaling import autoscale
from bicycle_operator.reconciling import job_name, reconcile
from bicycle_operator.service import Json, Refused, Service, Unavailable

_JOBS = ("bicycle.dev", "v1alpha1", "bicyclejobs")
_NAME = re.compile("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # Of a BicycleJob, as in crds.yaml.
_SAVEPOINTS = ("bicycle.dev", "v1alpha1", "bicyclesavepoints")
_WARNINGS = frozenset({"Failed", "JobExists", "OperationFailed", "PluginMissing", "Rejected",
                       "Retrying", "ServiceUnavailable"})  # fmt: skip


def register(
    registry: kopf.OperatorRegistry, service: Service, settings: kopf.OperatorSettings, *,
    period_s: float,
) -> None:  # fmt: skip
    """Add the handlers of all resources; timers call them every ``period_s`` seconds."""

    async def write(patch: kopf.Patch, cause: Any) -> None:
        given = {name: cause[name] for name in ("resource", "namespace", "name", "logger")}
        try:
            await patch_obj(settings=settings, patch=patch, **given)
        except (APIError, aiohttp.ClientError, TimeoutError) as error:
            raise kopf.TemporaryError(f"not written: {error}", delay=period_s) from error

    async def advance(body: kopf.Body, cause: Any) -> bool:
        former, patch = dict(body.get("status", {})), kopf.Patch()
        try:
            status = await reconcile(body, service, now_s=time.time())
            if "autoscaling" in body["spec"]:
                await _autoscale(body, status, patch, service)
        except (Refused, Unavailable) as error:
            lost = {"status": "Unknown", "reason": "ServiceUnavailable", "message": str(error)}
            conditions = [{**each, **lost} for each in former.get("conditions", [])]
            status = {**former, "seen": None, "conditions": conditions}
        if status != former:
            patch.status.update(status)
        await write(patch, cause)
        for each in status["conditions"]:
            if each not in former.get("conditions", []):
                _report(body, each["reason"], each["message"])
        return any((c["type"], c["status"]) == ("Synced", "True") for c in status["conditions"])

    @kopf.timer(*_JOBS, interval=period_s, registry=registry)
    async def reconcile_job(body: kopf.Body, memo: Any, **cause: Any) -> None:
        async with memo.setdefault("lock", asyncio.Lock()):
            if "deletionTimestamp" not in body["metadata"]:  # kopf changes the body in a step.
                await advance(kopf.Body(cast(Any, dict(body))), cause)

    @kopf.on.delete(*_JOBS, registry=registry)
    async def remove_job(body: kopf.Body, memo: Any, **cause: Any) -> None:
        async with memo.setdefault("lock", asyncio.Lock()):
            if not await advance(body, cause):
                raise kopf.TemporaryError("see the condition Synced", delay=period_s)

    @kopf.timer(*_SAVEPOINTS, interval=period_s, registry=registry)
    async def take_savepoint(body: kopf.Body, **cause: Any) -> None:
        former, patch = dict(body.get("status", {})), kopf.Patch()
        try:
            status = await savepoint(body, former, service)
        except Unavailable:
            return
        if status["phase"] != former.get("phase"):
            patch.status.update(status)
            await write(patch, cause)
            _report(body, status["phase"], status.get("message") or status.get("url", ""))


async def savepoint(body: Mapping[str, Any], former: Json, service: Service) -> Json:
    """Create a savepoint once, and return the status of its resource."""
    if former.get("phase") in ("Completed", "Failed"):
        return former
    facts, meta = dict(body["spec"]), body["metadata"]
    if not _NAME.fullmatch(name := facts.pop("job")):  # Else it could name any path of the service.
        return {"phase": "Failed", "message": f"{name!r} is not the name of a BicycleJob"}
    try:
        path = f"/jobs/{quote(job_name({'metadata': {**meta, 'name': name}}), safe='')}/savepoints"
        found = await service.send("POST", path, body=facts, key=f"{meta['uid']}/savepoint")
    except Refused as error:
        return {"phase": "Failed", "message": str(error)}
    if found["state"] in ("waiting", "running"):
        return {"phase": "InProgress"}
    if found["state"] == "done":
        return {"phase": "Completed", **{name: found["result"][name] for name in ("url", "epoch")}}
    return {"phase": "Failed", "message": f"{found['error']['code']}: {found['error']['message']}"}


async def _autoscale(body: kopf.Body, status: Json, patch: kopf.Patch, service: Service) -> None:
    """Change the parallelism of the resource by the lag of its job."""
    reasons = {each["type"]: each["reason"] for each in status["conditions"]}
    is_steady = reasons == {"Ready": "Running", "Synced": "Applied"}
    lag = (await service.job(job_name(body))).get("lag_records") if is_steady else None
    former = status.get("autoscaling") or {}
    state, width = autoscale(body["spec"], former, lag=lag, now_s=time.time())
    status["autoscaling"] = state
    if width is not None:
        patch.spec["parallelism"] = width
        _report(body, "Autoscaled", f"parallelism {width}: {state['decisions'][0]['reason']}")


def _report(body: kopf.Body, reason: str, message: str) -> None:
    kind = "Warning" if reason in _WARNINGS else "Normal"
    kopf.event(body, type=kind, reason=reason, message=message)
