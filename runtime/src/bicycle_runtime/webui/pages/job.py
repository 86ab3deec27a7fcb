"""One job: a common head, and a page for each subject, with live updates.

The head is rendered from the snapshot. Reading further data of a page may fail: then the page shows
the error instead of the data, below the head.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.control.dead_letters import DeadLetter, dead_letters
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.store.history import Operation
from bicycle_runtime.service.watching.fleet import Change
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import JobSummary, KnownJob, one_line
from bicycle_runtime.webui.drawing import drawing_of, operator_rows
from bicycle_runtime.webui.epoch_bars import waterfall
from bicycle_runtime.webui.formats import whole_number
from bicycle_runtime.webui.live import BEAT_S, PageMessage, live_answer
from bicycle_runtime.webui.pages.actions import ACTIONS, EPOCH_KINDS, fits, form_facts
from bicycle_runtime.webui.pages.state import read_state
from bicycle_runtime.webui.rendering import Site, now_ms
from bicycle_runtime.webui.sentences import limit_text
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import Role

_LOG_LINES = 500
_LOG_BEAT_S = 1.0
_SAMPLE_MS = 5_000
_NEWS_MS = 300_000  # For how long the end of an operation is shown at the head of each page.
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One page of a job.

    Attributes:
        name: The last part of its address, empty for the first tab.
        title: Its title.
        key: The key that opens it, after ``g``.
        read: Reads its data in addition to the snapshot.
        mark: A value that changes with its content: then the data is read again.
    """

    name: str
    title: str
    key: str
    read: Callable[[Site, KnownJob, Request], Awaitable[Facts]]
    mark: Callable[[KnownJob], Hashable]

    @property
    def template(self) -> str:
        """The template below the head."""
        return f"job/{self.name or 'overview'}.html"

    @property
    def stream(self) -> str:
        """The last part of the address of its stream."""
        return self.title.lower().replace(" ", "-")


async def _overview(site: Site, job: KnownJob, request: Request) -> Facts:
    history, name = site.service.history, job.summary.job_id
    changes = await site.service.slow(lambda: history.state_changes(name, limit=20))
    names = await site.service.slow(site.service.readings.operator_names, name)
    return {
        "changes": changes,
        "tier": _tier(request),
        "names": names,
        "limit": limit_text(job, names),
        "lag_chart": _lag_chart(job.summary),
    }


def _lag_chart(summary: JobSummary) -> tuple[str, str, str]:
    """Return title, column and format of the chart of unread input."""
    if summary.lag_records is None and summary.lag_bytes is not None:
        return ("Lag in bytes", "lag_bytes", "bytes")
    return ("Lag in records", "lag_records", "count")


async def _letters(site: Site, job: KnownJob, request: Request) -> Facts:
    after = request.query_params.get("after") or None
    found, following = await site.service.slow(
        dead_letters, site.service.home, job.summary.job_id, after=after
    )
    plain = site.service.secrets.hide(job.summary.job_id, msgspec.to_builtins(found))
    shown = msgspec.convert(plain, prepare_type(list[DeadLetter]))
    may_operate = request.state.identity.may(Role.OPERATOR)
    offered = (kind for kind in KINDS.values() if kind.tab == "dead-letters")
    can_replay = may_operate and any(fits(kind, job) for kind in offered)
    return {"letters": shown, "following": following, "can_replay": can_replay}


async def _graph(site: Site, job: KnownJob, _request: Request) -> Facts:
    graph = await site.service.slow(site.service.readings.graph, job.summary.job_id)
    rows = operator_rows(graph, job.status, job.paces)
    return {"rows": rows, "graph": graph, "drawing": drawing_of(graph, rows)}


async def _epochs(site: Site, job: KnownJob, request: Request) -> Facts:
    readings, cursor = site.service.readings, whole_number(request.query_params.get("after", ""))
    name = job.summary.job_id
    kept = await site.service.slow(lambda: readings.epochs(name, limit=50, after=cursor))
    recent = await site.service.slow(readings.recent_epochs, name)
    events = await site.service.slow(lambda: site.service.history.latest_events(name, limit=200))
    failures = [
        {
            "epoch": each.facts["epoch"],
            "at_ms": each.at_ms,
            "text": f"{each.facts['code']} {one_line(each.facts['message'])}",
        }
        for each in events
        if each.kind == "failure"
    ]
    return {"epochs": kept, "recent": waterfall(recent), "failures": failures[:20]}


async def _savepoints(site: Site, job: KnownJob, _request: Request) -> Facts:
    readings = site.service.readings
    return {"savepoints": await site.service.slow(readings.savepoints, job.summary.job_id)}


async def _exceptions(site: Site, job: KnownJob, _request: Request) -> Facts:
    readings = site.service.readings
    return {"exceptions": await site.service.slow(readings.exceptions, job.summary.job_id)}


async def _logs(site: Site, job: KnownJob, request: Request) -> Facts:
    readings, offset = site.service.readings, whole_number(request.query_params.get("after", ""))
    return {
        "log": await site.service.slow(
            lambda: readings.logs(job.summary.job_id, after=offset, limit=_LOG_LINES)
        )
    }


async def _config(site: Site, job: KnownJob, _request: Request) -> Facts:
    readings = site.service.readings
    return {"config": await site.service.slow(readings.config, job.summary.job_id)}


def _any_change(job: KnownJob) -> Hashable:
    return job.revision


def _run(job: KnownJob) -> Hashable:
    return job.summary.start_time


def _failures(job: KnownJob) -> Hashable:
    return (job.summary.state, job.summary.restarts, job.summary.errors)


def _letter_marks(job: KnownJob) -> Hashable:
    # An operator that fails or replays runs an epoch.
    return (_failures(job), job.summary.epoch if job.summary.errors else 0)


TABS = (
    Tab(name="", title="Overview", key="o", read=_overview, mark=_any_change),
    Tab(name="graph", title="Graph", key="g", read=_graph, mark=_any_change),
    Tab(
        name="epochs",
        title="Epochs",
        key="e",
        read=_epochs,
        mark=lambda job: (job.summary.start_time, job.summary.epoch),
    ),
    # Operations make and remove them; a page is read again at each.
    Tab(name="savepoints", title="Savepoints", key="s", read=_savepoints, mark=_run),
    Tab(name="exceptions", title="Exceptions", key="x", read=_exceptions, mark=_failures),
    Tab(name="dead-letters", title="Dead letters", key="d", read=_letters, mark=_letter_marks),
    # The result of a look-up stays unchanged while the job continues.
    Tab(name="state", title="State", key="t", read=read_state, mark=lambda _: None),
    Tab(name="logs", title="Logs", key="l", read=_logs, mark=_run),
    Tab(name="config", title="Configuration", key="c", read=_config, mark=_run),
)


async def job_page(site: Site, request: Request, tab: Tab) -> Response:
    """Return one page of a job."""
    job = site.scope(request).view.get(request.path_params["job"])
    if job is None:
        return missing_job(site, request)
    section = await _section(site, job, request, tab)
    words = dict(request.query_params)
    if "log" in section:
        words["next"] = section["log"]["next"]
    facts = {
        **await _head(site, job, request),
        **section,
        "tabs": TABS,
        "tab": tab,
        "live_query": urlencode(words),
    }
    if not tab.name:
        history, name = site.service.history, job.summary.job_id
        facts["samples"] = await site.service.slow(history.samples, name, tier=_tier(request))
    return site.page(request, "job.html", facts)


async def job_live(site: Site, request: Request, tab: Tab) -> Response:
    """Return the stream of one page of a job."""
    scope = site.scope(request)
    if scope.view.get(request.path_params["job"]) is None:
        return missing_job(site, request)
    live = _Live(site, request, tab)
    return live_answer(scope, live.render, beat_s=_LOG_BEAT_S if tab.name == "logs" else BEAT_S)


class _Live:
    """The live state of an open page of a job: sent data, and next updates."""

    def __init__(self, site: Site, request: Request, tab: Tab) -> None:
        self._site, self._request, self._tab = site, request, tab
        self._scope = site.scope(request)
        self._name = request.path_params["job"]
        self._mark: Hashable = None
        self._sampled: list[int] | None = None
        self._read_ms = 0
        self._log_offset = whole_number(request.query_params.get("next", ""))

    async def render(self, change: Change | None) -> list[PageMessage]:
        """Return the messages of a change, or of a while without one."""
        job = self._scope.view.get(self._name)
        if job is None:
            return [PageMessage(data=self._site.text("live/gone.html", {}))]
        lines = await self._log_lines() if self._tab.name == "logs" else []
        if change is None or (self._name not in change.jobs and not change.operations):
            return [*lines, *await self._samples()]
        facts = await _head(self._site, job, self._request)
        mark = self._tab.mark(job)
        is_section = self._tab.name != "logs" and (mark != self._mark or bool(change.operations))
        if is_section:
            self._mark = mark
            facts |= await _section(self._site, job, self._request, self._tab)
        facts |= {"tab": self._tab, "is_section": is_section, "now_ms": now_ms()}
        parts = PageMessage(data=self._site.text("live/job.html", facts))
        return [parts, *lines, *await self._data(facts)]

    async def _data(self, facts: Facts) -> list[PageMessage]:
        """Return the data for scripts of the page: the graph, or new samples."""
        if facts.get("drawing") is not None:
            return [PageMessage.of("graph", facts["drawing"])]
        return await self._samples()

    async def _samples(self) -> list[PageMessage]:
        """Return the samples for the charts if new ones are due, also of an idle job."""
        as_of_ms = self._site.service.fleet.view.as_of_ms
        if self._tab.name or as_of_ms - self._read_ms < _SAMPLE_MS:
            return []
        self._read_ms = as_of_ms
        history, tier = self._site.service.history, _tier(self._request)
        samples = await self._site.service.slow(lambda: history.samples(self._name, tier=tier))
        if samples["at_s"][-1:] == self._sampled:
            return []
        self._sampled = samples["at_s"][-1:]
        return [PageMessage.of("samples", samples)]

    async def _log_lines(self) -> list[PageMessage]:
        readings, offset = self._site.service.readings, self._log_offset
        log = await self._site.service.slow(
            lambda: readings.logs(self._name, after=offset, limit=_LOG_LINES)
        )
        self._log_offset = log["next"]
        return [PageMessage(data=self._site.text("live/log.html", log))] if log["lines"] else []


def _tier(request: Request) -> str:
    return "5m" if request.query_params.get("tier") == "5m" else "5s"


def missing_job(site: Site, request: Request) -> Response:
    """Return the page for a job that is not there."""
    known = [job.summary.job_id for job in site.scope(request).view.jobs[:5]]
    error = JOB_NOT_FOUND(
        job=request.path_params["job"],
        known=known,
        suggestion="",
        known_text=", ".join(known) or "none",
        home="the home of the service",
    )
    return site.refusal(request, error, status=404)


async def _head(site: Site, job: KnownJob, request: Request) -> Facts:
    recent = await site.scope(request).operations(job=job.summary.job_id, limit=5)
    may_operate = request.state.identity.may(Role.OPERATOR)
    return {
        "job": job.summary,
        "status": job.status,
        "operations": recent,
        "is_news": bool(recent) and _is_news(recent[0], job.summary),
        "may_operate": may_operate,
        "is_over": State(job.summary.state).is_final,
        "actions": [form_facts(each, job) for each in ACTIONS if may_operate and fits(each, job)],
        "epoch_kinds": EPOCH_KINDS,
    }


def _is_news(operation: Operation, job: JobSummary) -> bool:
    """Return whether all pages of a job show an operation, since it is recent.

    An operation that has started this run, such as a rollback, was requested before it.
    """
    if operation.ended_ms is None:
        return True
    return operation.ended_ms >= job.start_time and now_ms() - operation.ended_ms < _NEWS_MS


async def _section(site: Site, job: KnownJob, request: Request, tab: Tab) -> Facts:
    try:
        return {"problem": None, **await tab.read(site, job, request)}
    except BicycleError as error:
        return {"problem": error.to_json(), "fix": error.remedy}
