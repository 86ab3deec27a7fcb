"""Actions on jobs: each is confirmed with its consequences before it is done.

With scripts the question is a dialog on the page; without, the same form is a page of its own. Both
send the form here, which asks the service for an operation and goes back to the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bicycle_runtime.jobs.operations.operation import Availability, OperationKind
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import DISMISSIBLE, KnownJob
from bicycle_runtime.webui.formats import amount, count
from bicycle_runtime.webui.rendering import Site
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import Role, require_role

_BULK_MAX = 500
_ENDING = (State.STOPPING, State.CANCELING, State.FAILING)


# The buttons at the head of a job's page, in this order.
ACTIONS = tuple(kind for kind in KINDS.values() if kind.button and not kind.tab)
# Their request waits for the end of the running epoch.
EPOCH_KINDS = frozenset(kind.name for kind in KINDS.values() if kind.waits_for_epoch)
[_BULK] = (kind for kind in KINDS.values() if kind.is_bulk)


def fits(kind: OperationKind, job: KnownJob) -> bool:
    """Return whether the page offers an operation in the present state of a job."""
    state = State(job.summary.state)
    is_offered: Mapping[Availability, bool] = {
        "always": True,
        "running": state is State.RUNNING,
        "active": not state.is_final and state not in _ENDING,
        "not canceling": state is State.PAUSED
        or (not state.is_final and state is not State.CANCELING),
        "ended": state.is_final and state is not State.FINISHED,
        "attention": not DISMISSIBLE.isdisjoint(job.summary.attention),
    }
    return is_offered[kind.available]


async def action_page(site: Site, request: Request) -> Response:
    """Return the page that asks once more."""
    require_role(request.state.identity, Role.OPERATOR)
    job = site.scope(request).view.get(request.path_params["job"])
    kind = KINDS.get(request.path_params["kind"])
    if job is None or kind is None or not kind.button or not fits(kind, job):
        return RedirectResponse(f"/jobs/{request.path_params['job']}", status_code=303)
    words = request.query_params
    facts = form_facts(kind, job, savepoint=words.get("savepoint", ""))
    facts["letter"] = words.get("letter", "")
    if kind.wheel:
        plugins = await site.scope(request).plugins()
        plugins.sort(key=lambda each: job.summary.plugin not in each.plugins)  # Its own come first.
        facts["plugins"] = plugins
    return site.page(request, "action.html", facts)


def form_facts(kind: OperationKind, job: KnownJob, *, savepoint: str = "") -> dict[str, Any]:
    """Return the facts of the form that confirms an operation.

    Args:
        kind: The operation.
        job: Its job.
        savepoint: Name of the savepoint of the operation; empty without a savepoint.
    """
    unread = job.status.reading_count
    again = amount(unread, "record") if unread else "Input of the running epoch"
    question = kind.question.format(
        job=job.summary.name, epoch=count(job.summary.epoch), name=savepoint,
        unread=f"{again} will be read again by the next run.",
    )  # fmt: skip
    current = {} if kind.current is None else kind.current(job.status)
    infos = {info.name: info for info in kind.option_infos}
    inputs = [(infos[name], current.get(name)) for name in kind.inputs]
    return dict(
        job=job.summary, status=job.status, kind=kind, question=question, inputs=inputs,
        savepoint=savepoint,
    )  # fmt: skip


async def action_do(site: Site, request: Request) -> Response:
    """Request the operation, and go back to the job, which shows it.

    If the operation has a plan, the plan is requested first, and its page asks once more.
    """
    name, kind = request.path_params["job"], request.path_params["kind"]
    require_role(request.state.identity, Role.OPERATOR)
    if kind not in KINDS or not KINDS[kind].button:
        return RedirectResponse(f"/jobs/{name}", status_code=303)
    async with request.form() as form:
        facts: dict[str, Any] = {
            word: str(text).strip() for word, text in form.items() if str(text).strip()
        }
    chosen, service = KINDS[kind], site.service
    if chosen.plan is not None and not facts.pop("planned", ""):
        chosen = chosen.plan
    try:
        if chosen.from_form is not None:
            facts = dict(await service.slow(chosen.from_form, service.home, name, facts))
        asked = await site.scope(request).ask(chosen.name, name if chosen.has_job else None, facts)
    except BicycleError as error:
        return site.refusal(request, error, status=409)
    if not chosen.has_job or not chosen.button:
        return RedirectResponse(f"/plugins/operations/{asked.id}", status_code=303)
    tab = chosen.tab
    return RedirectResponse(f"/jobs/{name}{'/' if tab else ''}{tab}", status_code=303)


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
                await scope.ask(_BULK.name, name, {})
            except BicycleError as error:
                return site.refusal(request, error, status=409)
    return RedirectResponse("/jobs", status_code=303)


def _can_stop(job: KnownJob) -> bool:
    return fits(_BULK, job)
