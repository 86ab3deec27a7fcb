"""The next step from a job as it is to a job as its resource specifies.

The operator stores nothing about its operations: the list of operations of the service contains
each one with its key, which consists of the resource's uid and generation, the number of the job's
last operation, the kind, and a digest. An operator that ends at any moment is followed by another
one that reads the same list. Two operators that read the same list request the same key, for which
the service performs one operation.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bicycle_operator.service import Conflict, Json, Refused, Service

Resource = Mapping[str, Any]
_ENDING = frozenset({"STOPPING", "CANCELING", "FAILING"})
# NONE: there is no job. LOST: its processes ended without a result, such as with their pod.
_RESUMABLE = frozenset({"NONE", "LOST", "STOPPED", "PAUSED", "SUSPENDED"})
_ENDED = _RESUMABLE | {"FAILED", "CANCELED", "FINISHED"}
# Delays before a failed step is repeated: the first of a temporary failure, and the longest.
FIRST_RETRY_S, RETRY_S = 5.0, 60.0
_REMOVALS = {"Drain": "drain", "Savepoint": "suspend", "Cancel": "cancel"}
# The parts of a spec that only a new start can change.
_OF_START = ("plugin", "pipeline", "params", "options", "engine", "spark", "slots")
_CURRENT, _PAGE = ("submit", "upgrade", "rescale"), 50  # The last of each kind describes a job.
_NO_OPERATION: Json = {"id": 0, "key": None, "kind": "", "state": "", "result": None}
_PATHS = {"submit": "/jobs", "savepoint": "/jobs/{job}/savepoints"}  # Others end with their kind.
_NO_EPOCH = "BIC-1520"  # The code of the error for a job that has nothing to save.
_LOST = "BIC-1906"  # The code of the error of a job whose processes ended without a result.


class Rejected(Exception):
    """A spec that cannot be carried out now: the reason in CamelCase, and a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of a resource: its state, and its operations, the newest first."""

    id: str
    uid: str
    state: str
    operations: list[Json]

    @property
    def start(self) -> Json | None:
        """Return the last start of the job if this resource requested it."""
        starts = (o for o in self.operations if (o["kind"], o["state"]) == ("submit", "done"))
        return last if (last := next(starts, None)) and self.is_own(last) else None

    def is_own(self, operation: Json) -> bool:
        """Return whether the resource requested an operation."""
        return str(operation["key"]).startswith(f"{self.uid}/")

    @property
    def lacks_savepoint(self) -> bool:
        """Return whether the resource requested a savepoint last, which is not complete."""
        last = next(filter(self.is_own, self.operations), _NO_OPERATION)
        is_save = self.start is not None and last["kind"] in ("suspend", "savepoint")
        has_failed = last["state"] in ("failed", "interrupted")
        return is_save and has_failed and last["error"]["code"] != _NO_EPOCH

    def last(self, kind: str, name: str) -> Any:
        """Return a fact of the last operation of a kind, or of the last start."""
        if (start := self.start) is None:
            return None
        since = (o for o in self.operations if o["id"] > start["id"] and o["state"] == "done")
        found = (o["facts"].get(name) for o in since if o["kind"] == kind)
        default = {**start["facts"]["options"], **start["facts"]}.get(name)
        return next((value for value in found if value is not None), default)


def job_name(resource: Resource) -> str:
    """Return the name of the job of a resource."""
    return f"{resource['metadata']['namespace']}.{resource['metadata']['name']}"


async def reconcile(resource: Resource, service: Service, *, now_s: float) -> Json:
    """Make one step for a BicycleJob or its deletion; return its status."""
    status: Json = dict(resource.get("status") or {})
    summary = await service.job(job_name(resource))
    if status.get("seen") == _seen(resource, summary, status, now_s):
        return status
    job = await _look(resource, service)
    try:
        is_busy = await _advance(resource, status, job, service, now_s=now_s)
    except Rejected as error:
        is_busy, (reason, text) = False, error.args
        kept = (status.get("failure") or {}) | {"step": None, "retry_s": None}
        status["failure"] = kept | {"reason": reason, "message": text, "at": now_s}
    status["seen"] = None if is_busy else _seen(resource, summary, status, now_s)
    status["observedGeneration"] = resource["metadata"]["generation"]
    _describe(resource, status, job, summary=summary, is_busy=is_busy, now_s=now_s)
    return status


def _seen(resource: Resource, summary: Json, status: Json, now_s: float) -> str:
    """Return a digest that changes when a step may be necessary."""
    failure = status.get("failure") or {"at": now_s}
    delays = (now_s - failure["at"]) // (failure.get("retry_s") or RETRY_S)
    shown = [summary.get(name) for name in ("state", "start_time", "plugin_version")]
    return _digest([resource["spec"], shown, delays, "deletionTimestamp" in resource["metadata"]])


async def _look(resource: Resource, service: Service) -> Job:
    """Return the job of a resource as it is now."""
    name, uid = job_name(resource), resource["metadata"]["uid"]
    path = f"/operations?job={quote(name)}&limit="
    found = (await service.send("GET", f"{path}{_PAGE}"))["items"]
    for kind in _CURRENT if len(found) == _PAGE else ():  # They may be behind the page.
        found += (await service.send("GET", f"{path}1&state=done&kind={kind}"))["items"]
    try:
        shown = (await service.send("GET", f"/jobs/{quote(name, safe='')}/status"))["status"]
    except Refused:
        shown = {"state": "NONE"}
    state = "LOST" if (shown.get("error") or {}).get("code") == _LOST else shown["state"]
    return Job(id=name, uid=uid, state=state, operations=found or [_NO_OPERATION])


async def _advance(
    resource: Resource, status: Json, job: Job, service: Service, *, now_s: float
) -> bool:
    """Make one step; return whether more steps follow."""
    last, is_deleted = job.operations[0], "deletionTimestamp" in resource["metadata"]
    is_current = str(last["key"]).startswith(f"{job.uid}/{resource['metadata']['generation']}/")
    is_ours = not is_deleted or any(map(job.is_own, job.operations))
    if last["state"] in ("waiting", "running") and is_ours:
        is_queued = (last["kind"], last["state"]) == ("submit", "waiting")
        if is_queued and job.is_own(last) and not is_current:  # Other operations continue.
            await service.send("DELETE", f"/operations/{last['id']}")
        return True
    step = _end(resource, job) if is_deleted else await _next_step(resource, job, service)
    if step is None:
        status["failure"] = None
        return job.state in _ENDING and is_ours
    former, kind, identity = status.get("failure") or {}, step[0], _digest(step)
    delay_s = former.get("retry_s") if former.get("step") == identity else 0.0
    has_failed = is_current and (last["kind"], last["state"]) == (kind, "failed")
    if has_failed and last["id"] != former.get("operation"):
        error = last["error"]
        reason, is_temporary = "OperationFailed", error.get("is_temporary", False)
        text = f"{error['code']}: {error['message']}; {error['fix']}"
    elif delay_s is None or now_s - former.get("at", now_s) < delay_s:
        return False
    else:
        try:
            await _ask(resource, job, service, step)
            return True
        except Refused as error:
            reason, text, is_temporary = "Rejected", str(error), isinstance(error, Conflict)
    text, retry_s = f"{kind}: {text}", None if kind == "upgrade" else RETRY_S
    if is_temporary:
        retry_s = min(2 * (delay_s or FIRST_RETRY_S / 2), RETRY_S)
        reason, text = "Retrying", f"{text}; the operator repeats it in {retry_s:.0f} s"
    status["failure"] = {"reason": reason, "message": text, "at": now_s, "step": identity,
                         "operation": last["id"], "retry_s": retry_s}  # fmt: skip
    return False


async def _next_step(resource: Resource, job: Job, service: Service) -> tuple[str, Json] | None:
    """Return the kind and the body of the next operation, or None without one."""
    spec, start = resource["spec"], job.start
    is_saved = spec.get("savepointPolicy") == "OnStop"
    if is_saved and job.state == "STOPPED" and job.lacks_savepoint:
        return "savepoint", {}
    is_suspended = spec.get("suspend", False)
    is_changed = start is None or not start["key"].endswith(f"/{_start_digest(spec)}")
    if job.state in _ENDED and not is_suspended:
        wheel = await _wheel(spec, service)
        is_changed = is_changed or wheel not in (None, job.last("upgrade", "digest"))
        if is_changed or job.state in _RESUMABLE:
            return "submit", _start(resource) | {"digest": wheel}
    elif job.state not in _ENDED and start is None:
        raise Rejected("JobExists", "another job of this name runs; end it, or rename the resource")
    elif job.state not in _ENDED | _ENDING and (is_suspended or is_changed):
        return "suspend" if is_saved else "pause" if is_suspended else "stop", {}
    elif job.state == "RUNNING":
        if spec.get("parallelism") not in (None, job.last("rescale", "parallelism")):
            return "rescale", {"parallelism": spec["parallelism"]}
        if (wheel := await _wheel(spec, service)) not in (None, job.last("upgrade", "digest")):
            return "upgrade", {"digest": wheel, "plugin": spec["plugin"], **spec.get("upgrade", {})}
    return None


def _end(resource: Resource, job: Job) -> tuple[str, Json] | None:
    """Return the next operation for a deleted resource, or None at its end."""
    policy = resource["spec"].get("deletionPolicy", "Savepoint")
    if job.start is not None and job.state not in _ENDED:
        return _REMOVALS[policy], {}
    is_unsaved = job.state in ("STOPPED", "FAILED", "LOST") and job.lacks_savepoint
    return ("savepoint", {}) if is_unsaved and policy == "Savepoint" else None


def _start(resource: Resource) -> Json:
    """Return the body of the request that starts the job, without its plugin's digest."""
    spec = resource["spec"]
    width = {"parallelism": spec["parallelism"]} if "parallelism" in spec else {}
    facts = {name: spec[name] for name in _OF_START if name in spec}
    return facts | {"options": spec.get("options", {}) | width, "name": job_name(resource)}


def _start_digest(spec: Mapping[str, Any]) -> str:
    return _digest([[spec.get(name) for name in _OF_START], "version" in spec])


async def _wheel(spec: Mapping[str, Any], service: Service) -> str | None:
    """Return the digest of the newest uploaded plugin of the specified version."""
    if (version := spec.get("version")) is None:
        return None
    found = [each for each in await service.listed("/plugins")
             if each["version"] == version and spec["plugin"] in each["plugins"]]  # fmt: skip
    if not found:
        text = f"the service has no uploaded plugin {spec['plugin']} {version}; upload its wheel"
        raise Rejected("PluginMissing", text)
    return str(max(found, key=lambda each: int(each["uploaded_ms"]))["digest"])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


async def _ask(resource: Resource, job: Job, service: Service, step: tuple[str, Json]) -> None:
    """Request an operation, with a key that another operator would use, too."""
    (kind, body), meta = step, resource["metadata"]
    digest = _start_digest(resource["spec"]) if kind == "submit" else _digest(body)
    key = f"{job.uid}/{meta['generation']}/{job.operations[0]['id']}/{kind}/{digest}"
    path = _PATHS.get(kind, f"/jobs/{{job}}/{kind}").format(job=quote(job.id, safe=""))
    await service.send("POST", path, body=body, key=key)


def _describe(
    resource: Resource, status: Json, job: Job, *, summary: Json, is_busy: bool,
    now_s: float,
) -> None:  # fmt: skip
    """Write the state, the counts and the conditions of a job into its status."""
    saved = filter(None, map(_savepoint_of, job.operations))
    status |= {
        "job": job.id, "phase": job.state, "version": summary.get("plugin_version"),
        "selector": f"bicycle.dev/job={resource['metadata']['name']}",
        "parallelism": job.last("rescale", "parallelism") or 0,
        "lastSavepoint": next(saved, status.get("lastSavepoint")),
    }  # fmt: skip
    if (failure := status.get("failure")) is not None:
        synced = ("False", failure["reason"], failure["message"])
    elif is_busy:
        text = job.operations[0].get("reason") or "an operation of the job has not ended"
        synced = ("False", "InProgress", text)
    else:
        synced = ("True", "Applied", "the job is as specified")
    text = summary.get("reason") or f"the job is {job.state}"
    ready = ("True" if job.state == "RUNNING" else "False", job.state.capitalize(), text)
    at = datetime.datetime.fromtimestamp(now_s, datetime.UTC).isoformat(timespec="seconds")
    since = {(c["type"], c["status"]): c["lastTransitionTime"]
             for c in status.get("conditions", [])}  # fmt: skip
    status["conditions"] = [
        {"type": kind, "status": state, "reason": reason, "message": message,
         "lastTransitionTime": since.get((kind, state), at),
         "observedGeneration": resource["metadata"]["generation"]}
        for kind, (state, reason, message) in (("Ready", ready), ("Synced", synced))
    ]  # fmt: skip


def _savepoint_of(operation: Json) -> Json | None:
    """Return the savepoint that an operation created, or None."""
    result = operation["result"] or {}
    found = result if operation["kind"] == "savepoint" else result.get("savepoint")
    url = found.get("url") if isinstance(found, dict) else found
    return None if url is None else {"url": url, "epoch": result["epoch"]}
