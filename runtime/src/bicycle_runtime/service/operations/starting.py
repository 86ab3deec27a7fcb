"""Operations that start a job: submit and resume. They wait for slots."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from typing import Annotated, Any

import msgspec

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.extraction.extract import check_plugin
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_runtime.extraction.scripts import is_script
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.submitting import resumed_request, submit
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_runtime.jobs.options import JobRequest, options_of_new_job
from bicycle_runtime.jobs.plugins.environments import find_plugin
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID
from bicycle_runtime.service.operations.pipeline_files import PipelineFile, keep_pipeline
from bicycle_runtime.service.plugins.uploaded_plugins import plugin_environment
from bicycle_sdk.errors import BicycleError, ParameterError
from bicycle_sdk.options import from_mapping
from bicycle_sdk.random_source import system_random

# Doors wait ten seconds for an answer.
_LIMITS = ExtractionLimits(wall_time_ms=6_000)
_TURN_S = 3.0
_turns = threading.BoundedSemaphore(2)
_PLUGIN_LENGTH_MAX = 4_096  # A pipeline or SQL file is named by its path.


class SubmitFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job: a plugin with its parameters, and options as ``bicycle submit`` has them.

    A ``pipeline``, or a Python or SQL file in its place, may replace the plugin. A pipeline or SQL
    may use only functions of plugins that are installed in the environment of the service.
    ``digest`` identifies an uploaded plugin; without it, the plugin is in the environment of the
    service. ``options`` are options of ``JobOptions``, ``engine`` options of ``EngineOptions``, by
    name. ``slots`` is the number of slots of its master; by default its parallelism, or one.
    """

    plugin: Annotated[str, msgspec.Meta(max_length=_PLUGIN_LENGTH_MAX)] = ""
    pipeline: PipelineFile | None = None
    digest: str | None = None
    name: str | None = None
    options: dict[str, Any] = {}
    params: dict[str, str] = {}
    engine: dict[str, Any] = {}
    spark: dict[str, str] = {}
    slots: int | None = None


class ResumeFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slots of its master that the job takes. Default: its parallelism."""

    slots: int | None = None


class StoredResume(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a job that is resumed, and the ``master`` of its last start."""

    slots: int | None = None
    master: str | None = None


def _settle_submit(call: OperationCall, facts: SubmitFacts) -> SubmitFacts:
    """Return the facts with the name of the job, by which it is found after a crash."""
    if facts.pipeline is not None:
        facts = _with_kept_pipeline(call.home, facts, facts.pipeline)
    elif not facts.plugin:
        raise _refusal("either `plugin` or `pipeline` must be set", hint="give one")
    elif is_script(facts.plugin):
        raise _refusal(f"{facts.plugin!r} is a file", hint="send its text as `pipeline`")
    for group in ("plugin", "name"):
        if group in facts.options:
            hint = f"set `{group}` next to `options`"
            raise _refusal(f"`{group}` must not be an option", hint=hint)
    _require_slots("submit", facts.slots)
    options = _request(facts, call.home).options
    location = locate_job(options, call.home, clock=call.clock, source=system_random())
    former = location.folder.status()
    if former is not None and not former.state.is_final:
        for pid, started in (
            (former.pid, former.pid_started),
            (former.supervisor_pid, former.supervisor_started),
        ):
            if is_alive(pid, started):
                raise JobRunningError(job=former.id, pid=pid, location=str(location.folder.path))
    return msgspec.structs.replace(facts, name=location.job)


def _require_slots(kind: str, slots: int | None) -> None:
    if slots is not None and slots < 1:
        problem = f"slots must be at least 1, got {slots}"
        raise _refusal(problem, hint="use 1 or more, or omit it", kind=kind)


def _refusal(problem: str, *, hint: str, kind: str = "submit") -> BicycleError:
    return OPERATION_FACTS_INVALID(kind=kind, problem=problem, hint=hint)


def _with_kept_pipeline(home: Home, facts: SubmitFacts, pipeline: PipelineFile) -> SubmitFacts:
    """Keep a pipeline as a file, by its content; it has to be one that can be read."""
    if facts.plugin or facts.digest is not None:
        problem = "`pipeline` cannot be combined with `plugin` or `digest`"
        raise _refusal(problem, hint="set only one of them")
    path = keep_pipeline(home, pipeline)
    options = {**facts.options, "functions_of_plugins": True}
    return msgspec.structs.replace(facts, pipeline=None, plugin=str(path), options=options)


def _request(facts: SubmitFacts, home: Home) -> JobRequest:
    from_mapping(EngineOptions, facts.engine)
    given = {"plugin": facts.plugin, **facts.options}
    if facts.digest is not None:
        if "plugin_env" in facts.options:
            problem = "`digest` cannot be combined with the option `plugin_env`"
            raise _refusal(problem, hint="set only one of them")
        given["plugin_env"] = plugin_environment(home, facts.digest, facts.plugin)
    if facts.name is not None:
        given["name"] = facts.name
    return JobRequest(
        options=options_of_new_job(given),
        params=facts.params,
        engine=facts.engine,
        spark=facts.spark,
    )


def slots_wanted(facts: SubmitFacts | StoredResume) -> tuple[str | None, int]:
    """Return the master of a job that will start, and the slots that the job needs.

    Without a number the slots are the parallelism in the options, or one.
    """
    if isinstance(facts, StoredResume):
        return facts.master, facts.slots or 1
    found = facts.options.get("parallelism")
    width = int(found) if isinstance(found, int | str) and str(found).isdecimal() else 1
    return facts.options.get("master"), facts.slots or width


def _require_parameters(request: JobRequest, home: Home) -> None:
    """Check the parameters of a request, as far as the time allows.

    The plugin is loaded in a child process; its graph is not built. Other faults of the plugin are
    left to the start of the job, which reports them in the job's log.

    Raises:
        ParameterError: a parameter is unknown, missing or ill-typed.
    """
    if not _turns.acquire(timeout=_TURN_S):
        return  # Many starts at once: each finds out by itself.
    try:
        here = dataclasses.replace(request.options, master=None)
        check_plugin(find_plugin(here, home).ref, _LIMITS, params=request.params)
    except ParameterError:
        raise
    except (BicycleError, OSError):
        return
    finally:
        _turns.release()


def _verify_submit(call: OperationCall, facts: SubmitFacts) -> None:
    _require_parameters(_request(facts, call.home), call.home)


def _submit(call: OperationCall, facts: SubmitFacts) -> Result:
    status = submit(_request(facts, call.home), call.home, python=sys.executable)
    return {"job_id": status.id, "state": status.state.value}


def _found_start(call: OperationCall, _facts: SubmitFacts | StoredResume) -> Result | None:
    status = job_status(call.home, call.job)
    if status.started_ms < call.asked_ms:
        return None
    return {"job_id": status.id, "state": status.state.value}


def _settle_start(kind: str, call: OperationCall, facts: ResumeFacts) -> StoredResume:
    """Return the master and the slots that the job waits for."""
    _require_slots(kind, facts.slots)
    request = resumed_request(call.home, call.job)
    slots = facts.slots or request.options.parallelism
    return StoredResume(slots=slots, master=request.options.master)


def with_slots(kind: OperationKind) -> OperationKind:
    """Return an operation that starts a job, and waits for the slots of the job."""
    settle = functools.partial(_settle_start, kind.name)
    return dataclasses.replace(
        kind, options=ResumeFacts, stored=StoredResume, settle=settle, find=_found_start
    )


SUBMIT = OperationKind(
    name="submit",
    rpc="SubmitJob",
    starts_job=True,
    summary="Start the job of a plugin or of a pipeline.",
    options=SubmitFacts,
    settle=_settle_submit,
    verify=_verify_submit,
    perform=_submit,
    find=_found_start,
    path="/jobs",
    title="Starting job {job}",
    progress="The service builds the job and starts Spark.",
)
