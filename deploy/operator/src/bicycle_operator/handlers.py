"""The handlers of kopf, which reconcile resources and write their status.

A timer makes all steps, and a lost watch only delays a change. The timer writes patches itself: if
a patch of kopf fails, kopf stops the timer until the operator restarts. kopf may call the handler
of a deletion while a timer runs, so both take the lock of the resource.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import kopf
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.patching import patch_obj

from bicycle_operator.autoscaling import autoscale
from bicycle_operator.reconciling import job_name, reconcile, remove
from bicycle_operator.service import Json, Refused, Service, Unavailable

_JOBS = ("bicycle.dev", "v1alpha1", "bicyclejobs")
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

    @kopf.timer(*_JOBS, interval=period_s, registry=registry)
    async def reconcile_job(body: kopf.Body, memo: Any, **cause: Any) -> None:
        async with memo.setdefault("lock", asyncio.Lock()):
            if "deletionTimestamp" in body["metadata"]:
                return
            former, patch = dict(body.get("status", {})), kopf.Patch()
            try:
                status = await reconcile(body, service, now_s=time.time())
                if "autoscaling" in body["spec"]:
                    await _autoscale(body, status, patch, service)
            except Unavailable as error:
                lost = {"status": "Unknown", "reason": "ServiceUnavailable", "message": str(error)}
                conditions = [{**each, **lost} for each in former.get("conditions", [])]
                status = {**former, "seen": None, "conditions": conditions}
            if status != former:
                patch.status.update(status)
            await write(patch, cause)
            for each in status["conditions"]:
                if each not in former.get("conditions", []):
                    _report(body, each["reason"], each["message"])

    @kopf.on.delete(*_JOBS, registry=registry)
    async def remove_job(body: kopf.Body, memo: Any, **_: Any) -> None:
        async with memo.setdefault("lock", asyncio.Lock()):
            try:
                waits = await remove(body, service)
            except (Refused, Unavailable) as error:
                waits = str(error)
        if waits is not None:
            raise kopf.TemporaryError(waits, delay=period_s)

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
    facts, uid = dict(body["spec"]), body["metadata"]["uid"]
    job = job_name({"metadata": {**body["metadata"], "name": facts.pop("job")}})
    try:
        path = f"/jobs/{job}/savepoints"
        found = await service.send("POST", path, body=facts, key=f"{uid}/savepoint")
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
