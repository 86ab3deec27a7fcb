"""Actions on jobs: each is confirmed with its consequences before it is done.

With scripts the question is a dialog on the page; without, the same form is a page of its own. Both
send the form here, which asks the service for an operation and goes back to the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bicycle_runtime.base.options import describe
from bicycle_runtime.jobs.savepoints.commands import savepoint_of
from bicycle_runtime.jobs.upgrading.upgrade import UpgradeOptions
from bicycle_runtime.service.users.roles import Role, require_role
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import DISMISSIBLE, KnownJob
from bicycle_runtime.webui.formats import whole_number
from bicycle_runtime.webui.rendering import Site
from bicycle_sdk.errors import BicycleError

__all__ = [
    "ACTIONS", "REMOVE_SAVEPOINT", "REPLAY", "RESTORE", "UPGRADE", "Action", "action_do",
    "action_page", "bulk_stop_do", "bulk_stop_page", "upgrade_do", "upgrade_page",
]  # fmt: skip

_BULK_MAX = 500
_ENDING = (State.STOPPING, State.CANCELING, State.FAILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be asked of a job.

    Attributes:
        kind: The kind of the operation.
        title: The text of its button.
        is_destructive: Whether the job ends by it.
        needs_running: Whether it needs a job that runs, and is not about to end.
    """

    kind: str
    title: str
    is_destructive: bool = False
    needs_running: bool = False

    def fits(self, job: KnownJob) -> bool:
        """Return whether the action is possible for a job now."""
        state = State(job.summary.state)
        if self.kind in ("delete_savepoint", "restore"):
            return True
        if self.needs_running:
            return state is State.RUNNING
        if self.kind == "dismiss":
            return not DISMISSIBLE.isdisjoint(job.summary.attention)
        if self.kind == "resume":
            return state.is_final and state is not State.FINISHED
        if self.kind == "cancel":
            return not state.is_final and state is not State.CANCELING
        return not state.is_final and state not in _ENDING


ACTIONS = (
    Action(kind="savepoint", title="Savepoint", needs_running=True),
    Action(kind="rescale", title="Rescale", needs_running=True),
    Action(kind="stop", title="Stop", is_destructive=True),
    Action(kind="suspend", title="Stop with savepoint", is_destructive=True, needs_running=True),
    Action(kind="drain", title="Drain", is_destructive=True, needs_running=True),
    Action(kind="cancel", title="Cancel", is_destructive=True),
    Action(kind="resume", title="Start again"),
    Action(kind="dismiss", title="Dismiss"),
)
REPLAY = Action(kind="replay_letters", title="Replay", needs_running=True)
REMOVE_SAVEPOINT = Action(kind="delete_savepoint", title="Delete savepoint", is_destructive=True)
RESTORE = Action(kind="restore", title="Restore savepoint")
UPGRADE = Action(kind="upgrade", title="Upgrade", needs_running=True)  # It has a page of its own.
_BY_KIND: Mapping[str, Action] = {
    action.kind: action for action in (*ACTIONS, REPLAY, REMOVE_SAVEPOINT, RESTORE)
}


# Where what was asked for is seen.
_TABS = {REPLAY.kind: "/dead-letters", REMOVE_SAVEPOINT.kind: "/savepoints"}


async def action_page(site: Site, request: Request) -> Response:
    """Return the page that asks once more."""
    require_role(request.state.identity, Role.OPERATOR)
    job = site.scope(request).view.get(request.path_params["job"])
    action = _BY_KIND.get(request.path_params["kind"])
    if job is None or action is None or not action.fits(job):
        return RedirectResponse(f"/jobs/{request.path_params['job']}", status_code=303)
    words = request.query_params
    facts = {
        "job": job.summary,
        "status": job.status,
        "action": action,
        "letter": words.get("letter", ""),
        "savepoint": words.get("savepoint", ""),
    }
    return site.page(request, "action.html", facts)


async def action_do(site: Site, request: Request) -> Response:
    """Request the operation, and go back to the job, which shows it."""
    name, kind = request.path_params["job"], request.path_params["kind"]
    require_role(request.state.identity, Role.OPERATOR)
    if kind not in _BY_KIND:
        return RedirectResponse(f"/jobs/{name}", status_code=303)
    async with request.form() as form:
        facts = _facts(kind, form)
    try:
        if kind == RESTORE.kind:
            return await _restore(site, request, name, facts)
        await site.scope(request).ask(kind, name, facts)
    except BicycleError as error:
        return site.refusal(request, error, status=409)
    return RedirectResponse(f"/jobs/{name}{_TABS.get(kind, '')}", status_code=303)


async def _restore(
    site: Site, request: Request, job: str, facts: Mapping[str, Any]
) -> Response:  # fmt: skip
    """Restore a job from a savepoint of another, and redirect to the result."""
    service = site.service
    place = await service.slow(savepoint_of, service.home, job, facts["savepoint"])
    wanted = {"url": place.url, "checkpoint_dir": facts["checkpoint_dir"], "name": facts["name"]}
    asked = await site.scope(request).ask(RESTORE.kind, None, wanted)
    return RedirectResponse(f"/plugins/operations/{asked.id}", status_code=303)


async def upgrade_page(site: Site, request: Request) -> Response:
    """Return the form for the version and strategy of an upgrade."""
    require_role(request.state.identity, Role.OPERATOR)
    job = site.scope(request).view.get(request.path_params["job"])
    if job is None or not UPGRADE.fits(job):
        return RedirectResponse(f"/jobs/{request.path_params['job']}", status_code=303)
    plugins = await site.scope(request).plugins()
    plugins.sort(key=lambda each: job.summary.plugin not in each.plugins)  # Its own come first.
    facts = {"job": job.summary, "plugins": plugins, "options": describe(UpgradeOptions)}
    return site.page(request, "upgrade.html", facts)


async def upgrade_do(site: Site, request: Request) -> Response:
    """Request the plan, which is shown before any change, or the upgrade itself."""
    require_role(request.state.identity, Role.OPERATOR)
    job = request.path_params["job"]
    async with request.form() as form:
        facts, is_planned = _upgrade_facts(form), bool(form.get("planned"))
    try:
        kind = UPGRADE.kind if is_planned else "plan_upgrade"
        asked = await site.scope(request).ask(kind, job, facts)
    except BicycleError as error:
        return site.refusal(request, error, status=409)
    away = f"/jobs/{job}" if is_planned else f"/plugins/operations/{asked.id}"
    return RedirectResponse(away, status_code=303)


def _upgrade_facts(form: FormData) -> dict[str, Any]:
    """Return the fields of the form; the service refuses invalid numbers."""
    facts: dict[str, Any] = {"digest": str(form.get("digest", ""))}
    for name in ("plugin", "strategy"):
        if form.get(name):
            facts[name] = str(form[name])
    for name in ("epochs", "watch_ms", "catch_up_ms"):
        if text := str(form.get(name, "")).strip():
            facts[name] = _number_or_text(text)
    for name in ("skip_savepoint", "allow_dropped_state"):
        facts[name] = bool(form.get(name))
    return facts


async def bulk_stop_page(site: Site, request: Request) -> Response:
    """Return the page that asks whether all chosen jobs are to be stopped."""
    require_role(request.state.identity, Role.OPERATOR)
    view = site.scope(request).view
    names = request.query_params.getlist("job")[:_BULK_MAX]
    jobs = [job.summary for name in names if (job := view.get(name)) and _can_stop(job)]
    return site.page(request, "bulk_stop.html", {"jobs": jobs})


async def bulk_stop_do(site: Site, request: Request) -> Response:
    """Request the stop of each job; jobs that ended meanwhile are skipped."""
    require_role(request.state.identity, Role.OPERATOR)
    async with request.form() as form:
        names = [str(name) for name in form.getlist("job")][:_BULK_MAX]
    scope = site.scope(request)
    for name in names:
        job = scope.view.get(name)
        if job is not None and _can_stop(job):
            try:
                await scope.ask("stop", name, {})
            except BicycleError as error:
                return site.refusal(request, error, status=409)
    return RedirectResponse("/jobs", status_code=303)


def _can_stop(job: KnownJob) -> bool:
    return _BY_KIND["stop"].fits(job)


def _number_or_text(text: str) -> int | str:
    number = whole_number(text)
    return text if number is None else number


def _facts(kind: str, form: FormData) -> dict[str, Any]:
    """Return the fields of a form; the service refuses invalid values.

    What makes no sense is left as it is: the service refuses it.
    """
    if kind == RESTORE.kind:
        words = ("savepoint", "checkpoint_dir", "name")
        return {word: str(form.get(word, "")).strip() for word in words}
    name, width = str(form.get("name", "")).strip(), str(form.get("parallelism", "")).strip()
    if kind in ("savepoint", "suspend", REMOVE_SAVEPOINT.kind) and name:
        return {"name": name}
    if kind == "rescale":
        return {"parallelism": _number_or_text(width)}
    if kind == REPLAY.kind and form.get("letter"):
        return {"letters": [str(form["letter"])]}
    return {}
