"""The table of routes: each route of the API once, with its parameters.

Requests, the OpenAPI document, the reference page and the tests use it. The paths of the first REST
API (below ``/api``) have the same handlers as the paths below ``/api/v1``.
"""

from __future__ import annotations

from typing import Any

from bicycle_runtime.api import shapes
from bicycle_runtime.api.calls import acting, dead_letters, jobs, plugins, quotas, service, state
from bicycle_runtime.api.operation_bodies import body_of
from bicycle_runtime.api.route import TEXT, Route, Shape
from bicycle_runtime.api.uploads import UPLOAD_FILES
from bicycle_runtime.jobs.control.dead_letters import Letter
from bicycle_runtime.jobs.control.topology import JobTopology
from bicycle_runtime.jobs.operations.operation import OperationKind
from bicycle_runtime.service.operations import kinds
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from bicycle_runtime.service.store.history import Operation
from bicycle_runtime.service.users.owners import Quota
from bicycle_runtime.service.watching.listing import JobQuery
from bicycle_streams.access.roles import Role

_JOB = "/jobs/{job_id}"


class LimitQuery(Shape, frozen=True, kw_only=True):
    """The maximum number of entries, 1 to 500."""

    limit: int = 50


class OperationsQuery(LimitQuery, frozen=True, kw_only=True):
    """A maximum, a job that may wait for its first start, a kind and a state."""

    job: str | None = None
    kind: str | None = None
    state: str | None = None


class AfterQuery(Shape, frozen=True, kw_only=True):
    """Entries behind this number, and how many of them, 1 to 500."""

    after: int = 0
    limit: int = 200


class EpochQuery(Shape, frozen=True, kw_only=True):
    """Epochs older than ``after``, and how many of them, 1 to 500."""

    after: int | None = None
    limit: int = 50


class DeadLetterQuery(Shape, frozen=True, kw_only=True):
    """The query for letters of ``operator`` after ``after``, at most 1 to 500."""

    operator: str | None = None
    after: str | None = None
    limit: int = 50


class SamplesQuery(Shape, frozen=True, kw_only=True):
    """``tier`` is 5s (the last hour) or 5m (the last seven days)."""

    tier: str = "5s"


class HistoryQuery(Shape, frozen=True, kw_only=True):
    """The minutes of history, 1 to 10,080, in steps of 5 s up to an hour, else 5 min."""

    minutes: int = 30


class MetricsQuery(Shape, frozen=True, kw_only=True):
    """The option ``older_names`` adds metrics under their former names."""

    older_names: bool = True


class LogQuery(Shape, frozen=True, kw_only=True):
    """The query for lines after a byte, or the last ones; ``follow`` for a stream."""

    after: int | None = None
    limit: int = 200
    follow: bool = False


class WaitQuery(Shape, frozen=True, kw_only=True):
    """The seconds to wait for the end of the operation, 0 to 60."""

    wait: float = 0.0


class SavepointQuery(Shape, frozen=True, kw_only=True):
    """``verify`` reads every file and compares checksums."""

    verify: bool = False


class LetterQuery(Shape, frozen=True, kw_only=True):
    """The option ``reveal`` adds the record's value, for operators and with audit."""

    reveal: bool = False


def _looking(path: str, summary: str, handler: Any, answer: Any, **more: Any) -> Route:
    errors = (404, *more.pop("errors", ()))
    return Route(
        method="GET", path=_JOB + path, summary=summary, handler=handler, answer=answer,
        errors=errors, **more,
    )  # fmt: skip


def _operations() -> tuple[Route, ...]:
    """Return the routes of the operations."""
    found = [kind for kind in kinds.KINDS.values() if kind.path]
    second = [_operation(kind, *kind.second_route) for kind in found if kind.second_route]
    return (*(_operation(kind, kind.method, kind.path) for kind in found), *second)


def _operation(kind: OperationKind, method: str, path: str) -> Route:
    has_body = method == "POST"
    return Route(
        method=method, path=path, summary=kind.summary, handler=acting.asking(kind),
        answer=Operation, code=202, role=Role.OPERATOR, takes_key=True,
        body=body_of(kind) if has_body else None,
        errors=(400, 404, 409, 413, 415, 422, 429) if has_body else (404, 409, 422, 429),
    )  # fmt: skip


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/jobs", summary="List jobs, with filters, sorting and pages.",
          handler=jobs.jobs, query=JobQuery, answer=shapes.JobList, errors=(304,)),
    _looking("", "Show one job with its complete status.", jobs.job,
             shapes.JobDetail),
    Route(method="GET", path="/statuses", summary="List jobs with their complete status.",
          handler=jobs.statuses, answer=shapes.StatusList),
    _looking("/status", "Read the current status that the driver reports.", jobs.status,
             shapes.StatusAnswer),
    _looking("/metrics", "Read the metrics of a job.", jobs.metrics, shapes.MetricList),
    _looking("/tasks", "List the operators of a job with their counters.", jobs.tasks,
             shapes.TaskList),
    _looking("/graph", "Show the graph of a running job.", jobs.graph, shapes.Graph,
             errors=(409, 422, 503)),
    _looking("/epochs", "List the epochs that the checkpoint storage retains.", jobs.epochs,
             shapes.EpochList, query=EpochQuery, errors=(422, 503)),
    _looking("/checkpoints", "List the epochs that the checkpoint storage retains.", jobs.epochs,
             shapes.EpochList, query=EpochQuery, errors=(422, 503)),
    _looking("/savepoints", "List the savepoints of a job.",
             jobs.savepoints, shapes.SavepointList, errors=(422, 503)),
    _looking("/savepoints/{name}", "Show the contents of a savepoint.", jobs.savepoint,
             shapes.SavepointReport, query=SavepointQuery, errors=(409, 422, 503)),
    _looking("/exceptions", "List the errors of a job, one entry per kind.", jobs.exceptions,
             shapes.ExceptionList),
    _looking("/dead-letters", "List the dead letters of a job.", dead_letters.letters,
             shapes.DeadLetterList, query=DeadLetterQuery, errors=(422,)),
    _looking("/dead-letters/{letter}", "Show one dead letter.", dead_letters.letter, Letter,
             query=LetterQuery, errors=(422,)),
    _looking("/config", "Show the configuration of a job without secrets.", jobs.config,
             shapes.JobConfigAnswer, errors=(422,)),
    _looking("/logs", "Read the log of a job, or follow it.", jobs.logs, shapes.LogPage,
             query=LogQuery, has_stream=True),
    _looking("/samples", "Read the history of throughput, lag and state size.", jobs.samples,
             shapes.SamplesAnswer, query=SamplesQuery),
    _looking("/samples/{operator}", "Read the history of an operator.", jobs.operator_samples,
             shapes.OperatorSamples, query=SamplesQuery),
    _looking("/states", "List the state changes of a job.", jobs.state_changes,
             shapes.StateChangeList, query=LimitQuery),
    _looking("/events", "Follow the events of a job.", jobs.events, str,
             media="text/event-stream", errors=(429,)),
    _looking("/state", "List operators with state. Reads all entries.", state.operators,
             state.Operators, query=state.OperatorsQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/state/diff", "Compare the state of two epochs.", state.changes,
             state.Changes, query=state.ChangesQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/state/{operator}/{state}", "Find entries of a state, by key or prefix.",
             state.entries, state.Entries, query=state.EntriesQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/operations", "List the operations of a job.", acting.job_operations,
             shapes.OperationList, query=LimitQuery),
    *_operations(),
    Route(method="GET", path="/operations", summary="List the operations of all jobs, or of one.",
          handler=acting.operations, query=OperationsQuery, answer=shapes.OperationList),
    Route(method="GET", path="/operations/{operation_id:int}",
          summary="Show an operation, or wait for its end.",
          handler=acting.operation, query=WaitQuery, answer=Operation,
          errors=(404, 429)),
    Route(method="DELETE", path="/operations/{operation_id:int}",
          summary="Remove a waiting job from the queue.", handler=acting.withdraw,
          answer=Operation, role=Role.OPERATOR, errors=(404, 409, 429)),
    Route(method="GET", path="/slots", summary="Show slots of Spark masters and waiting jobs.",
          handler=service.slots, answer=shapes.SlotList),
    Route(method="GET", path="/quotas/{owner}", summary="Show the quota of an owner.",
          handler=quotas.quota, answer=shapes.QuotaAnswer, role=Role.ADMIN),
    Route(method="PUT", path="/quotas/{owner}", summary="Set the quota of an owner.",
          handler=quotas.set_quota, body=Quota, answer=shapes.QuotaAnswer,
          role=Role.ADMIN, errors=(400, 413, 415, 422, 429)),
    Route(method="GET", path="/plugins", summary="List the uploaded plugins.",
          handler=plugins.plugins, answer=shapes.PluginList),
    Route(method="POST", path="/plugins",
          summary="Upload a wheel and install it in a separate environment.",
          handler=plugins.upload, upload=UPLOAD_FILES, answer=UploadedPlugin, code=201,
          codes=(200,), role=Role.OPERATOR, takes_key=True, errors=(202, 409, 413, 415, 422, 429)),
    Route(method="GET", path="/plugins/{digest}", summary="Show one uploaded plugin.",
          handler=plugins.plugin, answer=UploadedPlugin, errors=(404,)),
    Route(method="DELETE", path="/plugins/{digest}", summary="Remove a plugin that no job uses.",
          handler=plugins.remove, answer=Operation, code=202, role=Role.OPERATOR, takes_key=True,
          errors=(404, 409, 422, 429)),
    Route(method="GET", path="/events", summary="Follow the events of all jobs.",
          handler=jobs.events, answer=str, media="text/event-stream", errors=(429,)),
    Route(method="GET", path="/topology", summary="Show which jobs read and write which streams.",
          handler=service.topology, answer=JobTopology),
    Route(method="GET", path="/cluster", summary="Show totals over all jobs.",
          handler=service.cluster, answer=shapes.ClusterTotals),
    Route(method="GET", path="/cluster/workers", summary="List the processes of jobs.",
          handler=service.workers, answer=shapes.WorkerList),
    *(Route(method="GET", path=path, summary="Read the metrics of all jobs.",
            handler=service.all_metrics, answer=shapes.MetricList)
      for path in ("/cluster/metrics", "/metrics")),
    Route(method="GET", path="/metrics/history", summary="Read the history of the totals.",
          handler=service.metrics_history, query=HistoryQuery,
          answer=shapes.MetricsHistory),
    Route(method="GET", path="/savepoints", summary="List the savepoints of all jobs.",
          handler=jobs.all_savepoints, answer=shapes.SavepointList, errors=(422, 503)),
    Route(method="GET", path="/audit", summary="Read the audit log.",
          handler=service.audit, query=AfterQuery, answer=shapes.AuditList,
          role=Role.ADMIN),
    Route(method="GET", path="/metrics", summary="Read metrics in the text format of Prometheus.",
          handler=service.metrics, query=MetricsQuery, answer=str, media=TEXT, is_root=True),
    Route(method="GET", path="/health", summary="Check that the service responds.",
          handler=service.health, answer=shapes.Health, is_root=True, role=Role.NOBODY),
)  # fmt: skip

# Paths of the first REST API, which are also available below `/api`.
ALIASES = frozenset(
    {
        "/jobs", "/jobs/{job_id}", "/jobs/{job_id}/tasks", "/jobs/{job_id}/checkpoints",
        "/jobs/{job_id}/graph", "/jobs/{job_id}/exceptions", "/cluster", "/cluster/workers",
        "/metrics", "/metrics/history",
    }
)  # fmt: skip


def served_paths(route: Route) -> list[str]:
    """Return the paths at which a route is to be had, the first the best."""
    if route.is_root:
        return [route.path]
    return [f"/api/v1{route.path}", *([f"/api{route.path}"] if route.path in ALIASES else [])]
