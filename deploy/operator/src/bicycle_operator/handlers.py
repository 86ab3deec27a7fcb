"""The handlers of kopf, which reconcile resources and write their status.

A timer makes all steps, and a lost watch only delays a change. kopf may call the handler of a
deletion beside a running timer: both take the lock of the resource.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import kopf

from bicycle_operator.autoscaling import autoscale
from bicycle_operator.reconciling import job_name, reconcile, remove
from bicycle_operator.service import Json, Refused, Service, Unavailable

_JOBS = ("bicycle.dev", "v1alpha1", "bicyclejobs")
_SAVEPOINTS = ("bicycle.dev", "v1alpha1", "bicyclesavepoints")
_WARNINGS = frozenset(
    {"Failed", "Rejected", "OperationFailed", "PluginMissing", "JobExists", "ServiceUnavailable"}
)


def register(registry: kopf.OperatorRegistry, service: Service, *, period_s: float) -> None:
    """Add the handlers of all resources; timers call them every ``period_s`` seconds."""

    @kopf.timer(*_JOBS, interval=period_s, registry=registry)
    async def reconcile_job(body: kopf.Body, patch: kopf.Patch, memo: Any, **_: Any) -> None:
        async with memo.setdefault("lock", asyncio.Lock()):
            if "deletionTimestamp" in body["metadata"]:
                return
            former = dict(body.get("status", {}))
            try:
                status = await reconcile(body, service, now_s=time.time())
                if "autoscaling" in body["spec"]:
                    await _autoscale(body, status, patch, service)
            except Unavailable as error:
                unknown = {"status": "Unknown", "reason": "ServiceUnavailable"}
                unknown["message"] = str(error)
                conditions = [{**each, **unknown} for each in former.get("conditions", [])]
                status = {**former, "seen": None, "conditions": conditions}
            if status != former:
                patch.status.update(status)
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
    async def take_savepoint(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        former = dict(body.get("status", {}))
        try:
            status = await savepoint(body, former, service)
        except Unavailable:
            return
        if status["phase"] != former.get("phase"):
            patch.status.update(status)
            _report(body, status["phase"], status.get("message") or status.get("url", ""))


async def savepoint(body: Mapping[str, Any], former: Json, service: Service) -> Json:
    """Create a savepoint once, and return the status of its resource.

    Raises:
        Unavailable: the service cannot answer now.
    """
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
