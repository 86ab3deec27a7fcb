"""Errors of the service: what cannot be asked of it, and what it cannot use."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

SERVICE_RUNNING = BicycleError.row(
    "BIC-2301",
    "the home {home} is served already, by process {pid}{url}; nothing was started",
    cause="Another process serves this home.",
    fix="use that service, end it with `bicycle down`, or set BICYCLE_HOME to another directory",
)


METRICS_PORT_TAKEN = BicycleError.row(
    "BIC-2316",
    "figures cannot be served at port {port} of 127.0.0.1: {reason}",
    cause="Another process listens at the port for figures, or this one may not.",
    fix="choose another port, or 0 for any that is free",
)


SERVICE_GONE = BicycleError.row(
    "BIC-2302",
    "no service runs for the home {home}",
    cause="No process serves this home.",
    fix="start one with `bicycle up`",
)


DATABASE_UNUSABLE = BicycleError.row(
    "BIC-2303",
    "the database {path} cannot be used: {reason}",
    cause="The database of the service was written by a newer version, is damaged, or is no "
    "database of ours.",
    fix="use the version of bicycle-runtime that wrote it. Where the file is damaged, end the "
    "service and restore the file from a copy, or try `sqlite3 {path} .recover`, or move it away: "
    "`bicycle up` makes a new one. Jobs and checkpoints stay; {lost} are lost with the file",
)


OPERATION_UNKNOWN = BicycleError.row(
    "BIC-2304",
    "there is no operation {operation}",
    cause="There is no operation of this number.",
    fix="take the number from the answer to the request that began it",
)


OPERATION_FACTS_INVALID = BicycleError.row(
    "BIC-2305",
    "{kind} cannot be done so: {problem}",
    cause="What comes with an operation is not what it takes.",
    fix="{hint}",
)


OPERATION_KEY_REUSED = BicycleError.row(
    "BIC-2306",
    "the idempotency key {key!r} was used for another request, operation {operation}",
    cause="An idempotency key was used before, for something else.",
    fix="use a new key for each request, and the same one only to repeat a request",
)


OPERATION_INTERRUPTED = BicycleError.row(
    "BIC-2307",
    "the service ended during {kind} of job {job!r}; it is not known to be done",
    cause="The service ended while it met an operation, and nobody knows what became of it.",
    fix="look at the job, and ask again if it was not done",
)


JOB_ENDED = BicycleError.row(
    "BIC-2308",
    "{kind}: job {job!r} has ended, it is {state}",
    cause="Something was asked of a job that has ended.",
    fix="start it again first",
)


QUOTA_EXCEEDED = BicycleError.row(
    "BIC-2360",
    "{owner} may have {limit:,} {what}, and has {used:,}; nothing was begun",
    cause="An owner has as many jobs, or bytes of wheels, as they may have.",
    fix="{hint}, or ask an administrator to raise the quota: PUT /api/v1/quotas/{owner}",
)


OPERATION_BEGUN = BicycleError.row(
    "BIC-2361",
    "operation {operation} does not wait any more: it is {state}",
    cause="Only a job that waits in the queue can be taken out of it.",
    fix="cancel the job itself, if it runs",
)


START_WITHDRAWN = BicycleError.row(
    "BIC-2362",
    "{actor} took job {job!r} out of the queue; nothing of it has begun",
    cause="A job waited for slots, and somebody took it out of the queue.",
    fix="ask for it again, if it is to run after all",
)


GRAPH_UNKNOWN = BicycleError.row(
    "BIC-2310",
    "the graph of job {job!r} is not known: it has not begun to run",
    cause="The graph of a job is not known yet.",
    fix="ask again once the job runs",
)


READING_TIMED_OUT = BicycleError.row(
    "BIC-2311",
    "{what} has no answer after {waited_ms:duration}: {busy}",
    cause="A storage or file did not answer in time, or the service is busy; ``busy`` names it.",
    fix="try again later; if a storage does not answer, check the checkpoint storage of the job",
)


SERVICE_BUSY = BicycleError.row(
    "BIC-2312",
    "the service has {waiting} requests of this kind waiting and takes no more",
    cause="More is asked than the service can queue.",
    fix="ask again in some seconds",
)


SERVICE_EXTRA_MISSING = BicycleError.row(
    "BIC-2313",
    "the service needs libraries that are not installed: {missing_text}",
    cause="The libraries of the service are not installed.",
    fix="install them with `pip install 'bicycle-runtime[service]'`",
)


TRACING_EXTRA_MISSING = BicycleError.row(
    "BIC-2390",
    "{variable} names a receiver of spans, and the libraries for it are not installed",
    cause="Spans are wanted, and the libraries of OpenTelemetry are not installed.",
    fix="install them with `pip install 'bicycle-runtime[tracing]'`, or unset {variable}",
)


SERVICE_START_FAILED = BicycleError.row(
    "BIC-2314",
    "the service ended while it started, with {how}",
    cause="The process of the service ended while it started, and did not say why.",
    fix="read {log}",
)


STATE_READER_ENDED = BicycleError.row(
    "BIC-2315",
    "the process that reads the state ended {attempts} times before it answered: {reason}",
    cause="The process that looks into the state of a job for the service ends each time.",
    fix="look at the log of the service, and whether this machine has memory left; then ask again",
)


class ListQueryError(BicycleError):
    """A cursor, a sort key or a filter of a list is none that the service knows."""

    code = "BIC-2309"
    message = "{name} {found!r} cannot be used: {problem}"
    fix = "{hint}"
