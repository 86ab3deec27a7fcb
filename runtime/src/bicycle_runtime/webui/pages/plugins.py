"""Uploaded plugins: the list, the upload, a job started from one, and the removal.

A change that takes time is an operation, with a page that shows its progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.plugins.errors import PLUGIN_UNKNOWN
from bicycle_runtime.service.store.history import Operation
from bicycle_runtime.webui.rendering import Site
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import Role, require_role

_FILES_MAX = 2


async def plugins_page(site: Site, request: Request) -> Response:
    """Return the list, with the form for another one."""
    return site.page(request, "plugins.html", {"plugins": await site.scope(request).plugins()})


async def upload_do(site: Site, request: Request) -> Response:
    """Take a wheel, and go to the page that shows how it is installed."""
    require_role(request.state.identity, Role.OPERATOR)
    try:
        async with request.form(max_files=_FILES_MAX, max_fields=_FILES_MAX) as form:
            facts = await _receive(site, request, form)
        asked = await _ask(site, request, "install", facts)
    except HTTPException as error:
        return site.refusal(request, _unreadable(str(error.detail)), status=400)
    except BicycleError as error:
        return site.refusal(request, error, status=422)
    return _to(asked)


async def operation_page(site: Site, request: Request) -> Response:
    """Return how an operation goes; the page is requested again until it is over."""
    return await _about_operation(site, request, "operation.html")


async def withdraw_page(site: Site, request: Request) -> Response:
    """Return the page that asks once more before a job is taken out of the queue."""
    require_role(request.state.identity, Role.OPERATOR)
    return await _about_operation(site, request, "withdraw.html")


async def _about_operation(site: Site, request: Request, template: str) -> Response:
    try:
        found = await site.scope(request).operation(int(request.path_params["number"]))
    except BicycleError as error:
        return site.refusal(request, error, status=404)
    kind = KINDS[found.kind]
    title = (kind.title or kind.summary).format(job=found.job, file=found.facts.get("file", ""))
    planned = next((each for each in KINDS.values() if each.plan is kind), None)
    facts = {"operation": found, "kind": kind, "title": title, "planned": planned}
    return site.page(request, template, facts)


async def withdraw_do(site: Site, request: Request) -> Response:
    """Take a job out of the queue, and go back to the list."""
    require_role(request.state.identity, Role.OPERATOR)
    try:
        await site.scope(request).withdraw(int(request.path_params["number"]))
    except BicycleError as error:
        return site.refusal(request, error, status=409)
    return RedirectResponse("/jobs", status_code=303)


async def start_page(site: Site, request: Request) -> Response:
    """Return the form that starts a job of a plugin."""
    require_role(request.state.identity, Role.OPERATOR)
    return await _about(site, request, "start_job.html")


async def start_do(site: Site, request: Request) -> Response:
    """Request the start of a job, and go to the page that shows how it goes."""
    digest = str(request.path_params["digest"])
    require_role(request.state.identity, Role.OPERATOR)
    async with request.form() as form:
        given = {name: str(value).strip() for name, value in form.items()}
    try:
        asked = await _ask(site, request, "submit", {"digest": digest, **_job_facts(given)})
    except BicycleError as error:
        return site.refusal(request, error, status=409)
    return _to(asked)


async def remove_page(site: Site, request: Request) -> Response:
    """Return the page that asks once more."""
    require_role(request.state.identity, Role.OPERATOR)
    return await _about(site, request, "remove_plugin.html")


async def remove_do(site: Site, request: Request) -> Response:
    """Request the removal, and go to the page that shows how it goes."""
    require_role(request.state.identity, Role.OPERATOR)
    facts = {"digest": str(request.path_params["digest"])}
    try:
        asked = await _ask(site, request, "remove_plugin", facts)
    except BicycleError as error:
        is_gone = error.code == PLUGIN_UNKNOWN.code
        return site.refusal(request, error, status=404 if is_gone else 409)
    return _to(asked)


async def _about(site: Site, request: Request, template: str) -> Response:
    try:
        found = await site.scope(request).plugin(str(request.path_params["digest"]))
    except BicycleError as error:
        return site.refusal(request, error, status=404)
    return site.page(request, template, {"plugin": found})


async def _receive(site: Site, request: Request, form: FormData) -> dict[str, Any]:
    wheel, lock = form.get("wheel"), form.get("lock")
    if not isinstance(wheel, UploadFile) or not wheel.filename:
        raise _unreadable("no wheel was chosen")
    data = await lock.read() if isinstance(lock, UploadFile) else None
    receive = site.scope(request).receive
    facts = await asyncio.to_thread(receive, wheel.filename, wheel.file, data or None)
    plain: dict[str, Any] = msgspec.to_builtins(facts)
    return plain


def _unreadable(problem: str) -> BicycleError:
    return OPERATION_FACTS_INVALID(kind="install", problem=problem, hint="choose a file *.whl")


def _job_facts(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a job's form; the service refuses invalid values."""
    options: dict[str, Any] = {
        name: given[name] for name in ("master", "parallelism") if given.get(name)
    }
    if given.get("follow"):
        options["follow"] = True
    pairs = (line.partition("=") for line in given.get("params", "").splitlines() if line.strip())
    facts: dict[str, Any] = {
        "plugin": given.get("plugin", ""),
        "options": options,
        "params": {name.strip(): value.strip() for name, _, value in pairs},
    }
    return {**facts, "name": given["name"]} if given.get("name") else facts


async def _ask(site: Site, request: Request, kind: str, facts: Mapping[str, Any]) -> Operation:
    return await site.scope(request).ask(kind, None, facts)


def _to(asked: Operation) -> Response:
    return RedirectResponse(f"/plugins/operations/{asked.id}", status_code=303)
