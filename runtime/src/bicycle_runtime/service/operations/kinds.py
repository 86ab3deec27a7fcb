"""Kinds of operations: the facts that each takes, and how it is met.

Each is met by the same call as the command of that name uses, in a thread, and may take minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

import msgspec

from bicycle_runtime.base.ids import system_random
from bicycle_runtime.base.options import from_mapping
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.extraction.scripts import is_script
from bicycle_runtime.jobs.control.ending import cancel_job, drain_job, publish_remaining, stop_job
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.letter_replay import (
    LetterReplayOptions,
    ask_for_replay,
    chosen_letters,
)
from bicycle_runtime.jobs.control.rescaling import RescaleOptions, ask_for_rescale
from bicycle_runtime.jobs.control.submitting import (
    PreparedStart,
    resume_job,
    resumed_request,
    submit,
)
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home, place_job
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_runtime.jobs.upgrading.notes import require_no_upgrade
from bicycle_runtime.jobs.upgrading.upgrade import (
    UpgradeOptions,
    plan_upgrade,
    upgrade_job,
)
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID
from bicycle_runtime.service.operations.operation_kind import Kind, NoFacts, Result, Surroundings
from bicycle_runtime.service.operations.parameter_check import require_parameters
from bicycle_runtime.service.operations.pipeline_files import PipelineFile, keep_pipeline
from bicycle_runtime.service.operations.savepoints import (
    SAVEPOINT_KINDS,
    SavepointFacts,
    name_savepoint,
    take_savepoint,
)
from bicycle_runtime.service.plugins.uploaded_plugins import (
    InstallFacts,
    environment_of,
    find_uploaded,
    install_plugin,
    remove_plugin,
    require_unused,
)
from bicycle_runtime.service.watching.summaries import Dismissal

__all__ = [
    "KINDS",
    "STARTING",
    "RemoveFacts",
    "ReplayFacts",
    "RescaleFacts",
    "ResumeFacts",
    "SubmitFacts",
    "UpgradeFacts",
    "slots_wanted",
]

_LETTERS_MAX = 10_000
_PLUGIN_LENGTH_MAX = 4_096  # A pipeline is named by its path.


class RescaleFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``parallelism`` of all operators, and by uid in ``operators``, which wins."""

    parallelism: int | None = None
    operators: dict[str, int] = {}
    timeout_ms: int = 120_000


class SubmitFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job: a plugin with its parameters, and options as ``bicycle submit`` has them.

    In place of the plugin a ``pipeline`` may be given; it names functions of plugins only that are
    installed beside the service.
    ``digest`` is that of an uploaded plugin; without it the plugin is installed beside the service.
    ``options`` are those of ``JobOptions``, ``engine`` those of ``EngineOptions``, each by name.
    ``slots`` says how many slots of its master it takes; without, the parallelism that is given, or
    one.
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
    """The facts of ``resume``: the required slots, by default the parallelism or 1.

    The service gives the ``master``, whose slots the job waits for.
    """

    slots: int | None = None
    master: str | None = None


class UpgradeFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of ``upgrade``: the ``digest`` of a plugin, its name, the strategy.

    ``strategy``, ``epochs``, ``watch_ms``, ``catch_up_ms`` and ``skip_savepoint`` are those of
    ``UpgradeOptions``. The service gives the ``mark``, by which it knows the upgrade again.
    """

    digest: str
    plugin: str | None = None
    strategy: Literal["stop-and-go", "blue-green"] = "stop-and-go"
    epochs: int = 3
    watch_ms: int = 60_000
    catch_up_ms: int = 600_000
    skip_savepoint: bool = False
    allow_dropped_state: bool = False
    mark: str = ""


class ReplayFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of ``replay_letters``: ids or all new letters, of one operator or all.

    The service gives the ``mark``, by which the job knows the request again.
    """

    letters: list[str] = []
    operator: str | None = None
    timeout_ms: int = 120_000
    mark: str = ""


class RemoveFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``digest`` of an uploaded plugin."""

    digest: str


def _as_given(_where: Surroundings, _job: str, facts: Any, _now_ms: int) -> Any:
    return facts


def _stop(where: Surroundings, job: str, _facts: NoFacts) -> Result:
    return _end_result(stop_job(where.home, job, clock=where.clock))


def _drain(where: Surroundings, job: str, _facts: NoFacts) -> Result:
    return _end_result(drain_job(where.home, job, clock=where.clock))


def _cancel(where: Surroundings, job: str, _facts: NoFacts) -> Result:
    if job_status(where.home, job).state.is_final:
        return _end_result(job_status(where.home, job))
    status = cancel_job(where.home, job, clock=where.clock)
    return _end_result(publish_remaining(where.home, status, clock=where.clock))


def _end_result(status: JobStatus) -> Result:
    stuck = [msgspec.to_builtins(thread) for thread in status.stuck]
    return {
        "state": status.state.value, "epoch": status.epoch, **({"stuck": stuck} if stuck else {})
    }  # fmt: skip


def _suspend(where: Surroundings, job: str, facts: SavepointFacts) -> Result:
    """Stop a job, and take a savepoint of where it stopped."""
    status = stop_job(where.home, job, clock=where.clock)
    return {**_end_result(status), "savepoint": take_savepoint(where, job, facts)}


def _check_rescale(_where: Surroundings, _job: str, facts: RescaleFacts, _now_ms: int) -> Any:
    _rescale_options(facts)
    if facts.parallelism is None and not facts.operators:
        raise OPERATION_FACTS_INVALID(
            kind="rescale", problem="parallelism is missing",
            hint="set `parallelism`, or `operators` with uids and numbers",
        )  # fmt: skip
    if any(width < 1 for width in facts.operators.values()):
        raise OPERATION_FACTS_INVALID(
            kind="rescale", problem="parallelism must be at least 1", hint="use 1 or more"
        )
    return facts


def _rescale_options(facts: RescaleFacts) -> RescaleOptions:
    return RescaleOptions(parallelism=facts.parallelism, timeout_ms=facts.timeout_ms)


def _rescale(where: Surroundings, job: str, facts: RescaleFacts) -> Result:
    options = _rescale_options(facts)
    done = ask_for_rescale(where.home, job, options, facts.operators, clock=where.clock)
    return done.to_json()


def _found_rescale(
    where: Surroundings, job: str, facts: RescaleFacts, _asked_ms: int
) -> Result | None:
    """Return the new widths if they are the requested ones, else None."""
    widths = {uid: each.parallelism for uid, each in job_status(where.home, job).operators.items()}
    wanted = facts.operators
    if not wanted or any(widths.get(uid) != width for uid, width in wanted.items()):
        return None
    return {"new": widths}


def _place_submit(where: Surroundings, _job: str, facts: SubmitFacts, _now_ms: int) -> SubmitFacts:
    """Determine the name of a job without one, by which it is found again."""
    if facts.pipeline is not None:
        facts = _with_kept_pipeline(where.home, facts, facts.pipeline)
    elif not facts.plugin:
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem="either `plugin` or `pipeline` must be set", hint="give one"
        )
    elif is_script(facts.plugin):
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem=f"{facts.plugin!r} is a file",
            hint="use an installed plugin or a pipeline; without a service, submit runs FILE.py",
        )  # fmt: skip
    for group in ("plugin", "name"):
        if group in facts.options:
            raise OPERATION_FACTS_INVALID(
                kind="submit", problem=f"`{group}` must not be an option",
                hint=f"set `{group}` next to `options`",
            )  # fmt: skip
    _require_slots("submit", facts.slots)
    options = _request(facts, where.home).options
    place = place_job(options, where.home, clock=where.clock, source=system_random())
    former = place.folder.status()
    if former is not None and not former.state.is_final:
        for pid, started in (
            (former.pid, former.pid_started),
            (former.supervisor_pid, former.supervisor_started),
        ):
            if is_alive(pid, started):
                raise JobRunningError(job=former.id, pid=pid, place=str(place.folder.path))
    return msgspec.structs.replace(facts, name=place.job)


def _with_kept_pipeline(home: Home, facts: SubmitFacts, pipeline: PipelineFile) -> SubmitFacts:
    """Keep a pipeline as a file, by its content; it has to be one that can be read."""
    if facts.plugin or facts.digest is not None:
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem="`pipeline` cannot be combined with `plugin` or `digest`",
            hint="set only one of them",
        )  # fmt: skip
    path = keep_pipeline(home, pipeline)
    options = {**facts.options, "functions_of_plugins": True}
    return msgspec.structs.replace(facts, pipeline=None, plugin=str(path), options=options)


def _request(facts: SubmitFacts, home: Home) -> JobRequest:
    from_mapping(EngineOptions, facts.engine)
    given = {"plugin": facts.plugin, **facts.options}
    if facts.digest is not None:
        if "plugin_env" in facts.options:
            raise OPERATION_FACTS_INVALID(
                kind="submit", problem="`digest` cannot be combined with the option `plugin_env`",
                hint="set only one of them",
            )  # fmt: skip
        given["plugin_env"] = _environment(home, facts.digest, facts.plugin)
    if facts.name is not None:
        given["name"] = facts.name
    return JobRequest(
        options=from_mapping(JobOptions, given),
        params=facts.params,
        engine=facts.engine,
        spark=facts.spark,
    )


def _environment(home: Home, digest: str, plugin: str) -> str:
    """Return the environment of an uploaded plugin that has this entry point."""
    known = find_uploaded(home, digest)
    if plugin not in known.plugins:
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem=f"{known.title} has no plugin {plugin!r}",
            hint=f"its plugins are {', '.join(known.plugins)}",
        )  # fmt: skip
    return environment_of(home, digest)


def slots_wanted(facts: SubmitFacts | ResumeFacts) -> tuple[str | None, int]:
    """Return the master of a job to start, and the required number of slots.

    Without a number that is how wide the job will be, as far as its options tell.
    """
    if isinstance(facts, ResumeFacts):
        return facts.master, facts.slots or 1
    found = facts.options.get("parallelism")
    width = int(found) if isinstance(found, int | str) and str(found).isdecimal() else 1
    return facts.options.get("master"), facts.slots or width


def _verify_submit(where: Surroundings, facts: SubmitFacts) -> None:
    require_parameters(_request(facts, where.home), where.home)


def _submit(where: Surroundings, _job: str, facts: SubmitFacts) -> Result:
    status = submit(_request(facts, where.home), where.home, python=sys.executable)
    return {"job_id": status.id, "state": status.state.value}


def _found_start(
    where: Surroundings, job: str, _facts: SubmitFacts | ResumeFacts, asked_ms: int
) -> Result | None:
    status = job_status(where.home, job)
    if status.started_ms < asked_ms:
        return None
    return {"job_id": status.id, "state": status.state.value}


def _check_resume(
    where: Surroundings, job: str, facts: ResumeFacts, _now_ms: int
) -> ResumeFacts:  # fmt: skip
    """Determine the slots of an ended job, which is started as it was last."""
    _require_slots("resume", facts.slots)
    request = resumed_request(where.home, job)
    slots = facts.slots or request.options.parallelism
    return ResumeFacts(slots=slots, master=request.options.master)


def _require_slots(kind: str, slots: int | None) -> None:
    if slots is not None and slots < 1:
        raise OPERATION_FACTS_INVALID(
            kind=kind,
            problem=f"slots must be at least 1, got {slots}",
            hint="use 1 or more, or omit it",
        )


def _resume(where: Surroundings, job: str, _facts: ResumeFacts) -> Result:
    status = resume_job(where.home, job, python=sys.executable)
    return {"job_id": status.id, "state": status.state.value, "epoch": status.epoch}


def _dismiss(where: Surroundings, job: str, _facts: NoFacts) -> Result:
    """Return the dismissed facts of a job, which need no attention from now on."""
    status = job_status(where.home, job)
    is_failed = status.state is JobState.FAILED
    return {"dismissed": msgspec.to_builtins(Dismissal.of(status, is_failed=is_failed))}


def _check_upgrade(
    where: Surroundings, job: str, facts: UpgradeFacts, now_ms: int
) -> UpgradeFacts:  # fmt: skip
    require_no_upgrade(where.home, job)
    _upgrade_options(facts)
    _upgrade_request(where.home, job, facts)
    return msgspec.structs.replace(facts, mark=str(now_ms))


def _upgrade_options(facts: UpgradeFacts) -> UpgradeOptions:
    return UpgradeOptions(
        strategy=facts.strategy,
        epochs=facts.epochs,
        watch_ms=facts.watch_ms,
        catch_up_ms=facts.catch_up_ms,
        skip_savepoint=facts.skip_savepoint,
    )


def _upgrade_request(home: Home, job: str, facts: UpgradeFacts) -> JobRequest:
    """Return the request of a job, with another version of its plugin."""
    former = home.find(job).read_request()
    plugin = facts.plugin or former.options.plugin
    options = replace(
        former.options, plugin=plugin, plugin_env=_environment(home, facts.digest, plugin),
        name=job_status(home, job).job, from_=None, trust=False,
        allow_dropped_state=facts.allow_dropped_state,
    )  # fmt: skip
    return replace(former, options=options)


def _plan_upgrade(where: Surroundings, job: str, facts: UpgradeFacts) -> Result:
    """Hold the version against the last epoch; nothing is changed."""
    status, wanted = job_status(where.home, job), _upgrade_request(where.home, job, facts)
    plan = plan_upgrade(
        where.home, wanted, checkpoint=status.checkpoint, job=job,
        is_followed=facts.strategy == "blue-green",
    )  # fmt: skip
    return {
        "changes": plan["changes"], "plugin_version": plan["plugin_version"],
        "epoch": status.epoch, "former_version": status.plugin_version,
    }  # fmt: skip


def _upgrade(where: Surroundings, job: str, facts: UpgradeFacts) -> Result:
    home = where.home

    def start(request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        return submit(request, home, python=sys.executable, is_trial=is_trial)

    def prepare() -> PreparedStart:
        return PreparedStart(home.find(job), home, python=sys.executable)

    return upgrade_job(
        home, job, _upgrade_request(home, job, facts), _upgrade_options(facts), token=facts.mark,
        clock=where.clock, start=start, prepare=prepare,
    )  # fmt: skip


def _choose_letters(where: Surroundings, job: str, facts: ReplayFacts, now_ms: int) -> ReplayFacts:
    """Determine the letters to replay, since others may arrive before."""
    _replay_options(facts)
    if facts.letters and facts.operator is not None:
        raise OPERATION_FACTS_INVALID(
            kind="replay_letters", problem="`letters` cannot be combined with `operator`",
            hint="set one of them, or omit both to replay all letters of the job",
        )  # fmt: skip
    chosen = chosen_letters(where.home, job, facts.letters, operator=facts.operator)
    letters = [each.id for each in chosen]
    if len(letters) > _LETTERS_MAX:
        raise OPERATION_FACTS_INVALID(
            kind="replay_letters", problem=f"too many letters: {len(letters):,}",
            hint=f"replay at most {_LETTERS_MAX:,} at once: list them, or select one operator",
        )  # fmt: skip
    return msgspec.structs.replace(facts, letters=letters, mark=f"service-{now_ms}")


def _replay_options(facts: ReplayFacts) -> LetterReplayOptions:
    return LetterReplayOptions(timeout_ms=facts.timeout_ms)


def _replay_letters(where: Surroundings, job: str, facts: ReplayFacts) -> Result:
    if not facts.letters:
        return {"letters": [], "epochs": []}
    found = chosen_letters(where.home, job, facts.letters)
    done = ask_for_replay(
        where.home, job, found, _replay_options(facts), clock=where.clock, token=facts.mark
    )
    return cast("Result", msgspec.to_builtins(done))


def _install(where: Surroundings, _job: str, facts: InstallFacts) -> Result:
    plugin, is_new = install_plugin(where.home, facts, clock=where.clock)
    return {"plugin": msgspec.to_builtins(plugin), "is_new": is_new}


def _check_remove(
    where: Surroundings, _job: str, facts: RemoveFacts, _now_ms: int
) -> RemoveFacts:  # fmt: skip
    require_unused(where.home, facts.digest)
    return facts


def _remove(where: Surroundings, _job: str, facts: RemoveFacts) -> Result:
    return {"plugin": msgspec.to_builtins(remove_plugin(where.home, facts.digest))}


KINDS: Mapping[str, Kind] = {
    "stop": Kind(facts=NoFacts, settle=_as_given, meet=_stop, is_repeated=True),
    "drain": Kind(facts=NoFacts, settle=_as_given, meet=_drain, is_repeated=True),
    "cancel": Kind(facts=NoFacts, settle=_as_given, meet=_cancel, is_repeated=True),
    **SAVEPOINT_KINDS,
    "suspend": Kind(
        facts=SavepointFacts, settle=name_savepoint, meet=_suspend, needs_running=True
    ),
    "rescale": Kind(
        facts=RescaleFacts, settle=_check_rescale, meet=_rescale, find=_found_rescale,
        needs_running=True,
    ),
    "submit": Kind(
        facts=SubmitFacts, settle=_place_submit, verify=_verify_submit, meet=_submit,
        find=_found_start,
    ),
    "dismiss": Kind(facts=NoFacts, settle=_as_given, meet=_dismiss, is_repeated=True),
    "resume": Kind(facts=ResumeFacts, settle=_check_resume, meet=_resume, find=_found_start),
    "plan_upgrade": Kind(
        facts=UpgradeFacts, settle=_check_upgrade, meet=_plan_upgrade, is_repeated=True,
        needs_running=True,
    ),
    "upgrade": Kind(
        facts=UpgradeFacts, settle=_check_upgrade, meet=_upgrade, is_repeated=True,
        needs_running=True,
    ),
    "replay_letters": Kind(
        facts=ReplayFacts, settle=_choose_letters, meet=_replay_letters, is_repeated=True,
        needs_running=True,
    ),
    "install": Kind(facts=InstallFacts, settle=_as_given, meet=_install, is_repeated=True),
    "remove_plugin": Kind(facts=RemoveFacts, settle=_check_remove, meet=_remove),
}  # fmt: skip
STARTING = ("submit", "resume")  # Kinds that start a job: they wait for slots.
