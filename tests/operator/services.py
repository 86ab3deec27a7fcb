"""A service of jobs without processes, over HTTP, for tests of the operator.

Requests are parsed by the real kinds of operations, and responses have the real shapes. Each
operation that is not held is performed by the next request that reads it.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from bicycle_runtime.api import shapes
from bicycle_runtime.api.errors import answer_code
from bicycle_runtime.api.routes import LimitQuery
from bicycle_runtime.jobs.errors import JOB_LOST, JOB_NOT_FOUND, JobRunningError
from bicycle_runtime.service.errors import JOB_ENDED, OPERATION_KEY_REUSED, failure_of
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from bicycle_runtime.service.store.history import Operation
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.errors import BicycleError
from tests.unit.service.fleets import known

PATHS = {kind.path: kind for kind in KINDS.values() if kind.path and kind.method == "POST"}
ENDS = {
    "pause": State.PAUSED, "stop": State.STOPPED, "suspend": State.SUSPENDED,
    "drain": State.FINISHED, "cancel": State.CANCELED,
}  # fmt: skip
LIMIT = LimitQuery().limit  # Of lists, unless the request names another one.


@dataclass
class Run:
    """The current run of a job."""

    state: State
    start_time: int
    body: dict[str, Any]
    parallelism: int | None
    is_lost: bool = False
    lag: int | None = 0


@dataclass
class JobsWithoutProcesses:
    """The jobs, and everything that was requested.

    Attributes:
        held: Kinds of operations that stay waiting.
        fails: Errors by kind; the next operation of the kind fails with it.
        refuses: Errors by kind; the next request of the kind is rejected with it.
        unsaved: The error of each savepoint of a job that has stopped.
        started: Names of the jobs that were started, in order.
        performed: Kinds of the performed operations, in order.
        at_plugins: Is called, and removed, by the next request for the plugins.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    keys: dict[str, tuple[Any, int]] = field(default_factory=dict)
    wheels: list[UploadedPlugin] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    fails: dict[str, BicycleError] = field(default_factory=dict)
    refuses: dict[str, BicycleError] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    performed: list[str] = field(default_factory=list)
    unsaved: BicycleError | None = None
    is_down: bool = False
    now_ms: int = 1_000
    at_plugins: Callable[[], Awaitable[None]] | None = None

    def upload(self, plugin: str, version: str, *, build: str = "a") -> None:
        self.wheels.append(
            UploadedPlugin(
                digest=f"{build}-{plugin}-{version}", name=plugin, version=version, file="a.whl",
                byte_count=1, plugins={plugin: "a:b"}, libraries=[], has_lock=True, python="3.11",
                platform="linux", owner="", uploaded_ms=len(self.wheels),
            )
        )  # fmt: skip

    def lose(self, name: str) -> None:
        """End the processes of a job without a final status."""
        self.runs[name].state, self.runs[name].is_lost = State.FAILED, True

    def end(self, name: str, state: State) -> None:
        self.runs[name].state = state

    def request(self, path: str, job: str, body: Any, key: str) -> Operation:
        kind = PATHS[path]
        if key in self.keys:
            facts, number = self.keys[key]
            if facts != [path, job, body]:
                raise OPERATION_KEY_REUSED(key=key, operation=number)
            return self.look(number)
        kind.parse(body)
        if (error := self.refuses.pop(kind.name, None)) is not None:
            raise error
        name = body["name"] if kind.makes_job else job
        run = self.runs.get(name)
        if run is None and not kind.makes_job:
            raise JOB_NOT_FOUND(job=name, known=[], known_text="none", suggestion="", home="/")
        is_live = run is not None and not run.state.is_final
        if kind.makes_job and is_live:
            raise JobRunningError(job=name, pid=1, location="/home")
        if kind.needs_running and not is_live:
            raise JOB_ENDED(kind=kind.name, job=name, state="ended")
        self.now_ms += 10
        operation = Operation(
            id=len(self.operations) + 1, actor="a", job=name, kind=kind.name,
            facts=copy.deepcopy(body), state="waiting", asked_ms=self.now_ms, key=key,
        )  # fmt: skip
        self.operations.append(operation)
        self.keys[key] = ([path, job, body], operation.id)
        return operation

    def look(self, number: int) -> Operation:
        """Perform an operation that waits and is not held, and return it."""
        found = self.operations[number - 1]
        if found.state == "waiting" and found.kind not in self.held:
            self.now_ms += 10
            error = self.fails.pop(found.kind, None)
            result = None
            if error is None:
                try:
                    result = self._perform(found)
                except BicycleError as raised:
                    error = raised
            found = msgspec.structs.replace(
                found, state="done" if error is None else "failed", result=result,
                error=error and failure_of(error), ended_ms=self.now_ms,
            )  # fmt: skip
            self.operations[number - 1] = found
        return found

    def _perform(self, operation: Operation) -> dict[str, Any]:
        run = self.runs.get(operation.job)
        if operation.kind == "submit":
            if run is not None and not run.state.is_final:
                raise JobRunningError(job=operation.job, pid=1, location="/home")
            width = operation.facts["options"].get("parallelism")
            self.runs[operation.job] = Run(State.RUNNING, self.now_ms, operation.facts, width)
            self.started.append(operation.job)
            self.performed.append("submit")
            return {"job_id": operation.job, "state": "CREATED"}
        assert run is not None
        result: dict[str, Any] = {"state": "", "epoch": 7}
        if operation.kind in ENDS:
            is_lost = operation.kind == "suspend" and self.unsaved is not None
            run.state = State.STOPPED if is_lost else ENDS[operation.kind]
            if operation.kind == "suspend":
                result["savepoint"] = {"url": "file:/s/1", "epoch": 7, "name": "1"}
        elif operation.kind == "savepoint":
            result |= {"url": f"file:/s/{operation.facts.get('name', 'now')}"}
        elif operation.kind == "rescale":
            run.parallelism = operation.facts["parallelism"]
        elif operation.kind == "upgrade":
            run.body = {**run.body, "digest": operation.facts["digest"]}
            result["savepoint"] = "file:/s/upgrade"
        if operation.kind in ("suspend", "savepoint") and self.unsaved and run.state.is_final:
            raise self.unsaved
        self.performed.append(operation.kind)
        return result

    def rows(self) -> list[Any]:
        rows = []
        for name, run in self.runs.items():
            version = (run.body.get("digest") or "").rpartition("-")[2]
            facts = {"started_ms": run.start_time, "lag_records": run.lag}
            rows.append(known(name, state=run.state, plugin_version=version, **facts).summary)
        return rows


@asynccontextmanager
async def serving(jobs: JobsWithoutProcesses) -> AsyncIterator[str]:
    """Serve the jobs, and yield the URL."""
    app = web.Application(middlewares=[_errors(jobs)])
    routes = web.RouteTableDef()

    @routes.get("/api/v1/jobs")
    async def listed(_request: web.Request) -> web.Response:
        rows = jobs.rows()
        return _json(shapes.JobList(items=rows, next=None, total=len(rows)))

    @routes.get("/api/v1/jobs/{job}/status")
    async def status(request: web.Request) -> web.Response:
        run = jobs.runs.get(request.match_info["job"])
        if run is None:
            return _json({"code": "BIC-1902", "message": "job not found"}, code=404)
        facts: dict[str, Any] = {"state": run.state.value, "started_ms": run.start_time}
        if run.is_lost:  # As `job_status` answers.
            facts["error"] = JOB_LOST(job="a", pid=1, seen="").to_json()
        return _json(shapes.StatusAnswer(status=facts))

    @routes.get("/api/v1/plugins")
    async def plugins(_request: web.Request) -> web.Response:
        if (change := jobs.at_plugins) is not None:
            jobs.at_plugins = None
            await change()
        return _json(shapes.PluginList(items=jobs.wheels))

    @routes.get("/api/v1/operations")
    async def operations(request: web.Request) -> web.Response:
        name, limit = request.query["job"], int(request.query.get("limit", LIMIT))
        found = [jobs.look(each.id) for each in reversed(jobs.operations) if each.job == name]
        for column in ("kind", "state"):
            word = request.query.get(column)
            found = [each for each in found if word in (None, getattr(each, column))]
        return _json(shapes.OperationList(items=found[:limit]))

    @routes.delete("/api/v1/operations/{number}")
    async def withdraw(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        found = jobs.operations[number - 1]
        if found.state == "waiting":
            found = msgspec.structs.replace(found, state="canceled")
            jobs.operations[number - 1] = found
        return _json(found)

    async def request_operation(request: web.Request) -> web.Response:
        job = request.match_info.get("job", "")
        path = request.path.removeprefix("/api/v1").replace(f"/{job}/", "/{job_id}/")
        key = request.headers["Idempotency-Key"]
        return _json(jobs.request(path, job, await request.json(), key), code=202)

    app.add_routes(routes)
    app.router.add_post("/api/v1/jobs", request_operation)
    app.router.add_post("/api/v1/jobs/{job}/{kind}", request_operation)
    async with TestServer(app) as server:
        yield str(server.make_url(""))


def _errors(jobs: JobsWithoutProcesses) -> Any:
    @web.middleware
    async def answer(request: web.Request, handler: Any) -> web.StreamResponse:
        if jobs.is_down:
            return web.Response(status=503, text="{}", content_type="application/json")
        try:
            return await handler(request)
        except BicycleError as error:
            return _json(error.to_json(), code=answer_code(error))

    return answer


def _json(value: Any, *, code: int = 200) -> web.Response:
    data = msgspec.json.encode(value)
    return web.Response(body=data, content_type="application/json", status=code)
