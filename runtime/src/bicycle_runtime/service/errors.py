"""Errors of the service: invalid requests, and unusable resources."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.errors import BicycleError
from bicycle_streams.access import answers

SERVICE_RUNNING = BicycleError.row(
    "BIC-2301",
    "home {home} is already served by process {pid}{url}; nothing was started",
    cause="Another process serves this home.",
    fix="use that service, stop it with `bicycle down`, or set BICYCLE_HOME to another directory",
)
METRICS_PORT_TAKEN = BicycleError.row(
    "BIC-2316",
    "metrics cannot be served at port {port} of 127.0.0.1: {reason}",
    cause="The port for metrics is used by another process or not permitted.",
    fix="choose another port, or 0 for a free port",
)
SERVICE_GONE = BicycleError.row(
    "BIC-2302",
    "no service runs for the home {home}",
    cause="No process serves this home.",
    fix="start the service with `bicycle up`",
)
OPERATION_UNKNOWN = BicycleError.row(
    "BIC-2304",
    "operation {operation} not found",
    cause="No operation has this number.",
    fix="use the number from the response to the request that started the operation",
)
OPERATION_FACTS_INVALID = BicycleError.row(
    "BIC-2305",
    "{kind}: invalid request: {problem}",
    cause="The parameters of an operation are invalid.",
    fix="{hint}",
)
OPERATION_KEY_REUSED = BicycleError.row(
    "BIC-2306",
    "idempotency key {key!r} was already used for another request, operation {operation}",
    cause="An idempotency key was used before for a different request.",
    fix="use a new key for each request, and the same key only to repeat a request",
)
OPERATION_INTERRUPTED = BicycleError.row(
    "BIC-2307",
    "the service ended during {kind} of job {job!r}; the outcome is unknown",
    cause="The service ended during an operation, and the outcome is unknown.",
    fix="check the job, and repeat the request if the operation did not complete",
)
JOB_ENDED = BicycleError.row(
    "BIC-2308",
    "{kind}: job {job!r} has ended with state {state}",
    cause="The request requires a job that has not ended.",
    fix="start the job first",
)
QUOTA_EXCEEDED = BicycleError.row(
    "BIC-2360",
    "{owner} may have at most {limit:,} {what} and has {used:,}; nothing was started",
    cause="An owner has used up the quota of jobs or of bytes of wheels.",
    fix="{hint}, or ask an administrator to raise the quota: PUT /api/v1/quotas/{owner}",
)
OPERATION_BEGUN = BicycleError.row(
    "BIC-2361",
    "operation {operation} is no longer queued; its state is {state}",
    cause="Only a queued job can be removed from the queue.",
    fix="cancel the job itself if it runs",
)
START_WITHDRAWN = BicycleError.row(
    "BIC-2362",
    "{actor} removed job {job!r} from the queue before it started",
    cause="A queued job was removed from the queue.",
    fix="submit the job again if it must run",
)
GRAPH_UNKNOWN = BicycleError.row(
    "BIC-2310",
    "graph of job {job!r} is not available: the job has not started to run",
    cause="The graph of a job is not known yet.",
    fix="repeat the request when the job runs",
)
READING_TIMED_OUT = BicycleError.row(
    "BIC-2311",
    "{what} did not respond within {waited_ms:duration}: {busy}",
    cause="A storage or file did not respond in time, or the service is busy; ``busy`` names it.",
    fix="try again later; if a storage does not respond, check the checkpoint storage of the job",
)
SERVICE_BUSY = BicycleError.row(
    "BIC-2312",
    "the queue for requests of this kind is full: {waiting} are waiting",
    cause="More requests are waiting than the service can queue.",
    fix="repeat the request after some seconds",
)
SERVICE_EXTRA_MISSING = BicycleError.row(
    "BIC-2313",
    "the service needs libraries that are not installed: {missing_text}",
    cause="The libraries of the service are not installed.",
    fix="install the libraries with `pip install 'bicycle-runtime[service]'`",
)
TRACING_EXTRA_MISSING = BicycleError.row(
    "BIC-2390",
    "{variable} enables tracing, but the libraries for tracing are not installed",
    cause="Tracing is enabled, but the libraries of OpenTelemetry are not installed.",
    fix="install the libraries with `pip install 'bicycle-runtime[tracing]'`, or unset {variable}",
)
SERVICE_START_FAILED = BicycleError.row(
    "BIC-2314",
    "the service ended during its start, with {how}",
    cause="The process of the service ended during its start without a reason.",
    fix="see {log}",
)
STATE_READER_ENDED = BicycleError.row(
    "BIC-2315",
    "the process that reads the state ended {attempts} times without a result: {reason}",
    cause="The process that reads the state of a job for the service ends each time.",
    fix="check the log of the service and the free memory of this machine, then repeat the request",
)


class ListQueryError(BicycleError):
    """A cursor, a sort key or a filter of a list is invalid."""

    code = "BIC-2309"
    message = "{name} {found!r} cannot be used: {problem}"
    fix = "{hint}"


JOB_NAME_TAKEN = BicycleError.row(
    "BIC-2328",
    "job {job!r} belongs to another owner",
    cause="The name of a job is used by another owner.",
    fix="choose another name for the job",
)
LOCATION_TAKEN = BicycleError.row(
    "BIC-2332",
    "{location} belongs to another owner",
    cause="A job or a savepoint would be written to a checkpoint folder of another owner.",
    fix="choose another directory, or omit it to use a directory of the home",
)


# Number of an error -> status code of the response to it.
ANSWERS = {
    **dict.fromkeys((1521, 1522, 1530, 1902, 1930, 1943, 2304, 2340), 404),
    # No epoch is sealed yet, the job runs, or it is being upgraded.
    **dict.fromkeys((1520, 1901, 1945, 2301, 2306, 2308, 2310, 2328, 2332, 2341, 2361), 409),
    **dict.fromkeys((2312, 2360), 429),
    **dict.fromkeys((*range(1_130, 1_140), 2303, 2311, 2315, 2317, 2318, 2411), 503),  # Storage.
    2309: 400,
}


def failure_of(error: BicycleError) -> dict[str, Any]:
    """Return the error of a failed operation, and whether it is temporary.

    Example:
        >>> failure_of(SERVICE_GONE(home="/home"))["is_temporary"]
        False
    """
    is_temporary = answers.answer_code(error, ANSWERS) in (409, 429, 503)
    return {**error.to_json(), "is_temporary": is_temporary}
