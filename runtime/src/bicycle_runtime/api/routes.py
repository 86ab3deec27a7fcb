"""The table of routes: everything that the API has, each once, and what can be asked behind a path.

Requests, the OpenAPI document, the reference page and the tests are made of it. The paths of the
first REST API (below ``/api``) are the same handlers as those below ``/api/v1``.
"""

from __future__ import annotations

from typing import Any

from bicycle_runtime.api import shapes
from bicycle_runtime.api.calls import acting, dead_letters, jobs, plugins, quotas, service, state
from bicycle_runtime.api.route import TEXT, Route, Shape
from bicycle_runtime.api.uploads import UPLOAD_FILES
from bicycle_runtime.jobs.control.dead_letters import Letter
from bicycle_runtime.jobs.control.topology import Topology
from bicycle_runtime.service.operations import kinds
from bicycle_runtime.service.operations.savepoints import RestoreFacts
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from bicycle_runtime.service.store.history import Operation
from bicycle_runtime.service.users.roles import Role

__all__ = ["ALIASES", "ROUTES", "served_paths"]

_JOB = "/jobs/{job_id}"


class JobQueryWords(Shape, frozen=True, kw_only=True):
    """Which jobs, in which order: see ``JobQuery``. ``state`` may be given several times."""

    state: tuple[str, ...] = ()
    owner: str = ""
    text: str = ""
    sort: str = "-start_time"
    limit: int = 50
    after: str | None = None


class LimitQuery(Shape, frozen=True, kw_only=True):
    """How many entries at most, 1 to 500."""

    limit: int = 50


class AfterQuery(Shape, frozen=True, kw_only=True):
    """Entries behind this number, and how many of them, 1 to 500."""

    after: int = 0
    limit: int = 200


class EpochQuery(Shape, frozen=True, kw_only=True):
    """Epochs older than ``after``, and how many of them, 1 to 500."""

    after: int | None = None
    limit: int = 50


class DeadLetterQuery(Shape, frozen=True, kw_only=True):
    """Letters of ``operator`` behind the one named ``after``, and how many of them, 1 to 500."""

    operator: str | None = None
    after: str | None = None
    limit: int = 50


class SamplesQuery(Shape, frozen=True, kw_only=True):
    """``tier`` is 5s (the last hour) or 5m (the last seven days)."""

    tier: str = "5s"


class HistoryQuery(Shape, frozen=True, kw_only=True):
    """How many minutes back, 1 to 10,080; points are 5 s apart up to an hour, else 5 minutes."""

    minutes: int = 30


class MetricsQuery(Shape, frozen=True, kw_only=True):
    """``older_names`` also tells metrics under names that have a newer one in base units."""

    older_names: bool = True


class LogQuery(Shape, frozen=True, kw_only=True):
    """Lines from byte ``after`` on, or the last ones; with ``follow`` a stream of events."""

    after: int | None = None
    limit: int = 200
    follow: bool = False


class WaitQuery(Shape, frozen=True, kw_only=True):
    """How many seconds to wait for the end of the operation, 0 to 60."""

    wait: float = 0.0


class SavepointQuery(Shape, frozen=True, kw_only=True):
    """``verify`` reads every file and compares checksums."""

    verify: bool = False


class LetterQuery(Shape, frozen=True, kw_only=True):
    """``reveal`` tells the value of the record, too: for operators, and noted in the audit log."""

    reveal: bool = False


def _looking(path: str, summary: str, handler: Any, answer: Any, **more: Any) -> Route:
    errors = (404, *more.pop("errors", ()))
    return Route(
        method="GET", path=_JOB + path, summary=summary, handler=handler, answer=answer,
        errors=errors, **more,
    )  # fmt: skip


def _acting(path: str, summary: str, kind: str, *, method: str = "POST") -> Route:
    return Route(
        method=method, path=_JOB + path, summary=summary, handler=acting.asking(kind),
        answer=Operation, code=202, role=Role.OPERATOR, takes_key=True,
        body=kinds.KINDS[kind].facts if method == "POST" else None,
        errors=(400, 404, 409, 413, 415, 422, 429) if method == "POST" else (404, 409, 422, 429),
    )  # fmt: skip


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/jobs", summary="List jobs, filtered, sorted, page by page.",
          handler=jobs.jobs, query=JobQueryWords, answer=shapes.JobList, errors=(304,)),
    Route(method="POST", path="/jobs", summary="Start the job of a plugin.",
          handler=acting.submit, body=kinds.SubmitFacts, answer=Operation, code=202,
          role=Role.OPERATOR, takes_key=True, errors=(400, 404, 409, 413, 415, 422, 429)),
    _looking("", "Show one job with everything that its driver tells.", jobs.job,
             shapes.JobDetail),
    Route(method="GET", path="/statuses", summary="List jobs with all that their drivers tell.",
          handler=jobs.statuses, answer=shapes.StatusList),
    _acting("", "End a job at once; another way to say cancel.", "cancel", method="DELETE"),
    _looking("/status", "Show all that the driver of a job tells, read now.", jobs.status,
             shapes.StatusAnswer),
    _looking("/metrics", "Read the figures of a job.", jobs.metrics, shapes.MetricList),
    _looking("/tasks", "List the operators of a job with their counts.", jobs.tasks,
             shapes.TaskList),
    _looking("/graph", "Show the graph of a job as it runs.", jobs.graph, shapes.Graph,
             errors=(409, 422, 503)),
    _looking("/epochs", "List the epochs that the checkpoint storage retains.", jobs.epochs,
             shapes.EpochList, query=EpochQuery, errors=(422, 503)),
    _looking("/checkpoints", "List the epochs that the checkpoint storage retains.", jobs.epochs,
             shapes.EpochList, query=EpochQuery, errors=(422, 503)),
    _looking("/savepoints", "List the savepoints beside the checkpoints of a job.",
             jobs.savepoints, shapes.SavepointList, errors=(422, 503)),
    _looking("/savepoints/{savepoint}", "Show what is in a savepoint.", jobs.savepoint,
             shapes.SavepointReport, query=SavepointQuery, errors=(409, 422, 503)),
    Route(method="DELETE", path=f"{_JOB}/savepoints/{{savepoint}}",
          summary="Remove a savepoint; jobs that began with it have copies of their own.",
          handler=acting.delete_savepoint, answer=Operation, code=202, role=Role.OPERATOR,
          takes_key=True, errors=(404, 409, 422, 429)),
    _looking("/exceptions", "List what failed in a job, each kind once.", jobs.exceptions,
             shapes.ExceptionList),
    _looking("/dead-letters", "List records that functions refused.", dead_letters.letters,
             shapes.DeadLetterList, query=DeadLetterQuery, errors=(422,)),
    _looking("/dead-letters/{letter}", "Show one dead letter.", dead_letters.letter, Letter,
             query=LetterQuery, errors=(422,)),
    _looking("/config", "Show what a job was started with, without secrets.", jobs.config,
             shapes.JobConfigAnswer, errors=(422,)),
    _looking("/logs", "Read the log of a job, or follow it.", jobs.logs, shapes.LogPage,
             query=LogQuery, has_stream=True),
    _looking("/samples", "Read throughput, lag and size over time.", jobs.samples,
             shapes.SamplesAnswer, query=SamplesQuery),
    _looking("/samples/{operator}", "Read what an operator did over time.", jobs.operator_samples,
             shapes.OperatorSamples, query=SamplesQuery),
    _looking("/states", "List the steps in the life of a job.", jobs.state_changes,
             shapes.StateChangeList, query=LimitQuery),
    _looking("/events", "Follow what happens to a job.", jobs.events, str,
             media="text/event-stream", errors=(429,)),
    _looking("/state", "List operators with state; all entries are read.", state.operators,
             state.Operators, query=state.OperatorsQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/state/diff", "Show what an epoch changed since another one.", state.changes,
             state.Changes, query=state.ChangesQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/state/{operator}/{state}", "Find entries of a state, most often those of a key.",
             state.entries, state.Entries, query=state.EntriesQuery, role=Role.OPERATOR,
             errors=(409, 422, 429, 503)),
    _looking("/operations", "List what was asked of a job.", acting.job_operations,
             shapes.OperationList, query=LimitQuery),
    _acting("/stop", "Stop a job after its epoch.", "stop"),
    _acting("/drain", "End a job as if its input had ended.", "drain"),
    _acting("/dismiss", "Dismiss that a job needs attention, until something new happens.",
            "dismiss"),
    _acting("/resume", "Start a job that has ended again, as it was started last.", "resume"),
    _acting("/cancel", "End a job at once; what is not sealed is read again.", "cancel"),
    _acting("/savepoints", "Take a savepoint of a job.", "savepoint"),
    _acting("/suspend", "Stop a job, and take a savepoint of where it stopped.", "suspend"),
    _acting("/rescale", "Change the parallelism of a running job.", "rescale"),
    _acting("/dead-letters/replay", "Give dead letters to their operators once more.",
            "replay_letters"),
    _acting("/upgrade", "Go on with another version of the plugin.", "upgrade"),
    _acting("/upgrade/plan", "Hold another version against the last epoch; nothing is changed.",
            "plan_upgrade"),
    Route(method="GET", path="/operations", summary="List what was asked of jobs.",
          handler=acting.operations, query=LimitQuery, answer=shapes.OperationList),
    Route(method="GET", path="/operations/{operation_id:int}",
          summary="Show an operation, if asked so only when it is over.",
          handler=acting.operation, query=WaitQuery, answer=Operation,
          errors=(404, 429)),
    Route(method="DELETE", path="/operations/{operation_id:int}",
          summary="Take a job that waits out of the queue.", handler=acting.withdraw,
          answer=Operation, role=Role.OPERATOR, errors=(404, 409, 429)),
    Route(method="GET", path="/slots", summary="Show the slots of Spark masters, and who waits.",
          handler=service.slots, answer=shapes.SlotList),
    Route(method="GET", path="/quotas/{owner}", summary="Show what an owner may use.",
          handler=quotas.quota, answer=shapes.QuotaAnswer, role=Role.ADMIN),
    Route(method="PUT", path="/quotas/{owner}", summary="Set what an owner may use.",
          handler=quotas.set_quota, body=shapes.QuotaBody, answer=shapes.QuotaAnswer,
          role=Role.ADMIN, errors=(400, 413, 415, 422, 429)),
    Route(method="GET", path="/plugins", summary="List the uploaded plugins.",
          handler=plugins.plugins, answer=shapes.PluginList),
    Route(method="POST", path="/plugins", summary="Upload a wheel, and install it by itself.",
          handler=plugins.upload, upload=UPLOAD_FILES, answer=UploadedPlugin, code=201,
          codes=(200,), role=Role.OPERATOR, takes_key=True, errors=(202, 409, 413, 415, 422, 429)),
    Route(method="GET", path="/plugins/{digest}", summary="Show one uploaded plugin.",
          handler=plugins.plugin, answer=UploadedPlugin, errors=(404,)),
    Route(method="DELETE", path="/plugins/{digest}", summary="Remove a plugin no job needs.",
          handler=plugins.remove, answer=Operation, code=202, role=Role.OPERATOR, takes_key=True,
          errors=(404, 409, 422, 429)),
    Route(method="GET", path="/events", summary="Follow what happens to all jobs.",
          handler=jobs.events, answer=str, media="text/event-stream", errors=(429,)),
    Route(method="GET", path="/topology", summary="Show which jobs read and write which streams.",
          handler=service.topology, answer=Topology),
    Route(method="GET", path="/cluster", summary="Show what all jobs come to.",
          handler=service.cluster, answer=shapes.Cluster),
    Route(method="GET", path="/cluster/workers", summary="List the processes of jobs.",
          handler=service.workers, answer=shapes.WorkerList),
    *(Route(method="GET", path=path, summary="Read the figures of all jobs.",
            handler=service.all_metrics, answer=shapes.MetricList)
      for path in ("/cluster/metrics", "/metrics")),
    Route(method="GET", path="/metrics/history", summary="Read what all jobs came to over time.",
          handler=service.metrics_history, query=HistoryQuery,
          answer=shapes.MetricsHistory),
    Route(method="GET", path="/savepoints", summary="List the savepoints of all jobs.",
          handler=jobs.all_savepoints, answer=shapes.SavepointList, errors=(422, 503)),
    Route(method="POST", path="/savepoints/restore",
          summary="Put a savepoint into the empty checkpoint directory of a job.",
          handler=acting.restore, body=RestoreFacts, answer=Operation, code=202,
          role=Role.OPERATOR, takes_key=True, errors=(400, 404, 409, 413, 415, 422, 429)),
    Route(method="GET", path="/audit", summary="Read who has changed what.",
          handler=service.audit, query=AfterQuery, answer=shapes.AuditList,
          role=Role.ADMIN),
    Route(method="GET", path="/metrics", summary="Figures as text for Prometheus.",
          handler=service.metrics, query=MetricsQuery, answer=str, media=TEXT, is_root=True),
    Route(method="GET", path="/health", summary="Tell that the service is there.",
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
