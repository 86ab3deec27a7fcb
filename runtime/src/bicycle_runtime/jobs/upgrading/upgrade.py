"""The upgrade of a job to another version, and the way back if it fails.

*Stop-and-go* stops the job and starts the version behind it. *Blue-green* makes the version follow
the job first, as its shadow: it makes state of its own, and its output is not visible. It is taken
only when it has proved itself, and then begins at the end of the job.

Each step is noted in ``upgrade.json`` in the job's folder before it begins, and may be done again:
an upgrade that is found again after a crash, at any point, continues at the noted step. Both
versions work on one checkpoint directory, each behind the epochs that the other has sealed, so that
nothing is read or published twice, also on the way back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.children import NoAnswerError, ask_child
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.checkpoints.epoch_reports import report_checkpoints
from bicycle_runtime.jobs.control.ending import cancel_job, stop_job
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.errors import (
    REQUEST_TIMED_OUT,
    SHADOW_FAILED,
    UPGRADE_FAILED,
    UPGRADE_NOT_PLANNED,
    UPGRADE_STUCK,
    UPGRADE_UNDERWAY,
    VERSION_FAILED,
    JobRunningError,
)
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.savepoints.commands import create_savepoint, savepoint_of
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_runtime.jobs.upgrading.following import Following
from bicycle_runtime.jobs.upgrading.notes import (
    Strategy,
    UpgradeNote,
    UpgradeStep,
    forget_upgrade,
    read_upgrade,
    write_upgrade,
)
from bicycle_runtime.jobs.upgrading.starts import Prepare, Prepared, Start
from bicycle_runtime.recovery.errors import SAVEPOINT_TAKEN
from bicycle_runtime.recovery.savepoints import read_savepoint
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.options import CheckedOptions, option

_PLANNING = "bicycle_runtime.jobs.upgrading.planning"  # The program that makes the plan.
_PLANNING_TIMEOUT_S = 300
_POLL_S = 0.1
_HAND_OVER_EPOCHS = 1  # It has neither input nor output.
_SAVEPOINT_TIMEOUT_MS = 3_600_000
_SAVEPOINT_SHARE = 3  # Of the time for stopping, one part of so many is for the savepoint.


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeOptions(CheckedOptions):
    """The strategy of an upgrade, and the tests of the new version."""

    strategy: Strategy = option(
        "stop-and-go",
        doc=(
            "Strategy: stop-and-go stops the job and starts the new version after it; blue-green "
            "first runs the new version in parallel with the job, with separate state and without "
            "visible output, until it is stable."
        ),
    )
    epochs: int = option(
        3,
        low=1,
        high=100_000,
        doc="Number of sealed epochs after which the new version is accepted.",
    )
    watch_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc=(
            "Time without a failure after which the new version is accepted even with fewer epochs."
        ),
    )
    catch_up_ms: int = option(
        600_000,
        low=1_000,
        high=86_400_000,
        doc=(
            "Time limit for the new version to catch up with the job; then a blue-green upgrade "
            "is aborted."
        ),
    )
    skip_savepoint: bool = option(
        default=False, doc="Create no savepoint before the previous version is stopped."
    )


def upgrade_job(
    home: Home, job: str, wanted: JobRequest, options: UpgradeOptions, *, token: str, clock: Clock,
    start: Start, prepare: Prepare | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Upgrade a running job to another version of its plugin.

    1. Plan: compare the version with the last epoch; a version that does not fit changes nothing.
    2. Save: take a savepoint while the job runs; if its epoch hangs, after the job has stopped.
    3. Follow, in blue-green only: the new version runs as a shadow of the previous one until it
       has caught up and is stable; if it fails, the job is not changed.
    4. Stop: after Spark for the new version has started, the previous version seals and publishes a
       last epoch.
    5. Start: the new version continues after this epoch.
    6. Watch: wait until it has sealed epochs, or has run for a time; if it fails, the previous
       version continues after the epochs of the new one.

    Args:
        home: The home of the job.
        job: The job's id.
        wanted: The job with the new version.
        options: The time for which it is watched, and whether a savepoint is taken.
        token: Identifier of this upgrade. An upgrade with the noted token is continued.
        clock: Clock for time limits.
        start: Starts a job and waits until it runs, as ``submit`` does.
        prepare: Starts Spark for the new version while the job runs. If None, Spark starts after
            the job has stopped, and blue-green is not available.

    Returns:
        ``changes`` of the plan, ``plugin_version``, ``epoch`` (the last of the previous version),
        ``savepoint`` (its URL or None), ``gap_ms`` between the last epoch of the previous version
        and the first of the new one (None if there was no input), and ``strategy``. A job that
        already runs this version is left unchanged; ``changes`` is then None.

    Raises:
        UPGRADE_UNDERWAY: another upgrade of the job has not ended.
        STATE_WOULD_BE_LOST: the version does not fit the state; the job continues.
        BLUE_GREEN_REFUSED: the version does not read the input of the job; the job continues.
        SHADOW_FAILED: the version failed while it followed the job, which was not changed.
        UPGRADE_FAILED: the version failed, and the previous one runs again.
        UPGRADE_STUCK: the version failed, and the previous one cannot run either.
        BicycleError: the version cannot be planned; the job continues.
    """
    note = read_upgrade(home, job)
    if note is not None and note.token != token:
        raise UPGRADE_UNDERWAY(job=job, step=note.step.value)
    if note is None and _runs(home, job, wanted):  # A killed upgrade had only to report it.
        status = job_status(home, job)
        return {
            "changes": None, "plugin_version": status.plugin_version, "epoch": status.epoch,
            "savepoint": None, "gap_ms": None, "strategy": options.strategy,
        }  # fmt: skip
    if note is None:
        # 1. Plan: compare the version with the last epoch; a version that does not fit changes
        # nothing.
        note = _plan(home, job, wanted, token=token, strategy=options.strategy)
        write_upgrade(home, job, note)
    upgrade = _Upgrade(home, job, note, options, clock=clock, start=start, prepare=prepare)
    try:
        return upgrade.run()
    finally:
        upgrade.drop()


class _Upgrade:
    """An upgrade that is noted."""

    def __init__(
        self, home: Home, job: str, note: UpgradeNote, options: UpgradeOptions, *, clock: Clock,
        start: Start, prepare: Prepare | None,
    ) -> None:  # fmt: skip
        self._prepare = prepare
        self._ahead: Prepared | None = None
        self._home = home
        self._job = job
        self._note = note
        self._options = options
        self._clock = clock
        self._start = start
        self._pause = threading.Event()
        self._began = clock.monotonic()
        self._is_hung = False
        self._following: Following | None = None
        if note.strategy == "blue-green":
            assert prepare is not None
            self._following = Following(home, job, note.wanted, clock=clock, prepare=prepare)

    def run(self) -> dict[str, Any]:
        """Continue from the noted step to the end."""
        note = self._note
        try:
            if note.step is UpgradeStep.SAVE:
                self._save()
            if self._following is not None:
                self._follow(self._following)
            if note.step in (UpgradeStep.STOP, UpgradeStep.START, UpgradeStep.WATCH):
                self._go_on()
        except (BicycleError, OSError) as error:
            if note.step is UpgradeStep.SAVE:
                self._forget()
                raise
            failure = _failure_of(error)
            if note.step is UpgradeStep.FOLLOW:
                self.drop()
                self._forget()
                why = f"{failure.code} {failure.summary}"
                raise SHADOW_FAILED(job=self._job, reason=why, cause=failure.to_json()) from error
            if note.step is UpgradeStep.STOP:  # It may still end, at any time.
                cancel_job(self._home, self._job, clock=self._clock)
            note.error = failure.to_json()
            with contextlib.suppress(OSError):  # A full disk must not leave the job stopped.
                self._to(UpgradeStep.BACK)
            note.step = UpgradeStep.BACK
        if note.step is UpgradeStep.BACK:
            self._go_back()
        self._forget()
        return {
            **{name: note.plan[name] for name in ("changes", "plugin_version")},
            "epoch": note.epoch, "savepoint": note.savepoint,
            "gap_ms": note.gap_ms, "strategy": note.strategy,
        }  # fmt: skip

    def _save(self) -> None:
        # 2. Save: take a savepoint while the job runs; if its epoch hangs, after the job has
        # stopped.
        if not self._options.skip_savepoint:
            try:
                self._take_savepoint(is_hopeless=self._hangs)
            except BicycleError as error:
                self._is_hung = self._hangs()
                if error.code != REQUEST_TIMED_OUT.code or not self._is_hung:
                    raise
        self._to(UpgradeStep.STOP if self._following is None else UpgradeStep.FOLLOW)

    def _take_savepoint(self, *, is_hopeless: Callable[[], bool] = lambda: False) -> None:
        """Take a savepoint, unless this upgrade took it before its process was killed."""
        name = f"upgrade-{self._note.token}"
        storage = savepoint_of(self._home, self._job, name)
        try:
            create_savepoint(
                self._home, self._job, name=name, to=None,
                clock=self._clock, timeout_ms=_SAVEPOINT_TIMEOUT_MS, is_hopeless=is_hopeless,
            )  # fmt: skip
        except BicycleError as error:
            if error.code != SAVEPOINT_TAKEN.code:
                raise
            read_savepoint(storage)
        self._note.savepoint = storage.url

    def _hangs(self) -> bool:
        """Return whether the savepoint has waited for one epoch of the job for too long."""
        status = job_status(self._home, self._job)
        if status.state.is_final or status.epoch_began_ms is None:
            return False
        options = self._home.find(self._job).read_request().options
        patience_ms = options.stop_timeout_ms // _SAVEPOINT_SHARE
        epoch_ms = self._clock.now_ms() - status.epoch_began_ms
        return min(epoch_ms, self._waited_ms()) >= patience_ms

    def _waited_ms(self) -> int:
        return round((self._clock.monotonic() - self._began) * 1_000)

    def _follow(self, following: Following) -> None:
        # 3. Follow, in blue-green only: the new version runs as a shadow of the previous one until
        # it has caught up and is stable; if it fails, the job is not changed.
        note, options = self._note, self._options
        if note.step is UpgradeStep.STOP and not job_status(self._home, self._job).state.is_final:
            self._to(UpgradeStep.FOLLOW)  # Its process has ended while it had to stop the job.
        if note.step is UpgradeStep.FOLLOW:
            following.prove(
                epochs=options.epochs, watch_ms=options.watch_ms, catch_up_ms=options.catch_up_ms
            )
            self._to(UpgradeStep.STOP)

    def _go_on(self) -> None:
        note = self._note
        if note.step is UpgradeStep.STOP:
            # 4. Stop: after Spark for the new version has started, the previous version seals and
            # publishes a last epoch. A job that hangs has already used a part of its stop timeout,
            # and is stopped at once.
            if self._following is None and self._prepare is not None and not self._is_hung:
                self._ahead = self._prepare()
                self._ahead.wait()
            waited_ms = self._waited_ms() if self._is_hung else 0
            stopped = stop_job(self._home, self._job, clock=self._clock, waited_ms=waited_ms)
            note.epoch = stopped.epoch
            if note.savepoint is None and not self._options.skip_savepoint:
                self._take_savepoint()
            if self._following is not None:
                self._following.reach(note.epoch)
                self._ahead = self._following.ahead
            self._to(UpgradeStep.START)
        if note.step is UpgradeStep.START:
            # 5. Start: the new version continues after this epoch.
            self._begin(JobRequest.from_json(note.wanted), is_trial=True)
            self._to(UpgradeStep.WATCH)
        # 6. Watch: wait until it has sealed epochs, or has run for a time; if it fails, the
        # previous version continues after the epochs of the new one.
        self._watch()

    def _begin(self, request: JobRequest, *, is_trial: bool) -> None:
        """Start a job, or wait for the start that a killed process has begun.

        The first failure of a trial ends the wait: restarts do not repair a version that fails.

        Raises:
            JobRunningError: another version of the job is running.
        """
        start = self._start if self._ahead is None else self._ahead.start
        try:
            start(request, is_trial=is_trial)
        except JobRunningError:
            if not _runs(self._home, self._job, request):
                raise
            self._until(
                lambda status: (
                    status.has_begun or status.state.is_final or (is_trial and status.restarts)
                )
            )

    def drop(self) -> None:
        """End the prepared and unneeded processes."""
        if self._following is not None:
            self._following.drop()
        if self._ahead is not None:
            self._ahead.drop()
            self._ahead = None

    def _watch(self) -> None:
        deadline = self._clock.monotonic() + self._options.watch_ms / 1_000
        last = self._note.epoch + (0 if self._following is None else _HAND_OVER_EPOCHS)

        def has_stayed(status: JobStatus) -> bool:
            self._require_well(status)
            if self._note.gap_ms is None and status.epoch > last:
                self._note.gap_ms = self._gap_ms(status, last + 1)
            is_proved = status.epoch >= last + self._options.epochs or status.state.is_final
            return is_proved or self._clock.monotonic() >= deadline

        found = self._until(has_stayed)
        if not found.has_begun and not found.state.is_final:  # It may have been ended by others.
            raise self._failure("it has not reached RUNNING")

    def _require_well(self, status: JobStatus) -> None:
        if status.error is not None:
            raise error_from_json(status.error)
        if status.state is JobState.FAILED:
            raise self._failure("it has failed")
        if status.restarts:
            last = status.restarts[-1]
            raise self._failure(f"{last.code} {last.message}")

    def _failure(self, reason: str) -> BicycleError:
        return VERSION_FAILED(
            job=self._job, version=self._note.plan["plugin_version"], reason=reason
        )  # fmt: skip

    def _go_back(self) -> None:
        """End the new version, if it still runs, and resume the former one."""
        self.drop()
        note = self._note
        cause, former = note.error or {}, JobRequest.from_json(note.former)
        why = f"{cause.get('code')} {cause.get('message')}"
        try:
            status = job_status(self._home, self._job)
            if not status.state.is_final and not _runs(self._home, self._job, former):
                cancel_job(self._home, self._job, clock=self._clock)
            self._begin(former, is_trial=False)
        except (BicycleError, OSError) as error:
            self._forget()
            failure = _failure_of(error)
            raise UPGRADE_STUCK(
                job=self._job, reason=why, second=f"{failure.code} {failure.summary}",
                savepoint=note.savepoint or "none",
            ) from error  # fmt: skip
        self._forget()
        raise UPGRADE_FAILED(
            job=self._job, reason=why, epoch=note.epoch, savepoint=note.savepoint, cause=cause
        )

    def _gap_ms(self, status: JobStatus, first_epoch: int) -> int | None:
        """Return the time between the last epoch of one version and the other's first."""
        storage, now_ms = open_storage(status.checkpoint), self._clock.now_ms()
        try:
            sealed = {
                each.epoch: each.sealed_ms for each in report_checkpoints(storage, now_ms=now_ms)
            }
        except BicycleError:  # The storage may be slow: the figure is not worth the upgrade.
            return None
        last, first = sealed.get(self._note.epoch), sealed.get(first_epoch)
        return None if last is None or first is None else first - last

    def _until(self, is_met: Callable[[JobStatus], object]) -> JobStatus:
        while True:
            status = job_status(self._home, self._job)
            if is_met(status):
                return status
            self._pause.wait(_POLL_S)

    def _to(self, step: UpgradeStep) -> None:
        write_upgrade(self._home, self._job, msgspec.structs.replace(self._note, step=step))
        self._note.step = step

    def _forget(self) -> None:
        if self._following is not None:
            self._following.forget()
        forget_upgrade(self._home, self._job)


def _runs(home: Home, job: str, request: JobRequest) -> bool:
    """Return whether the last start of a job was of the version of a request."""
    last, wanted = home.find(job).read_request().options, request.options
    return (last.plugin, last.plugin_env) == (wanted.plugin, wanted.plugin_env)


def _failure_of(error: BicycleError | OSError) -> BicycleError:
    if isinstance(error, BicycleError):
        return error
    return BicycleError(detail=f"{type(error).__name__}: {error}")


def _plan(
    home: Home, job: str, wanted: JobRequest, *, token: str, strategy: Strategy
) -> UpgradeNote:  # fmt: skip
    status = job_status(home, job)
    plan = plan_upgrade(
        home, wanted, checkpoint=status.checkpoint, job=job, is_followed=strategy == "blue-green"
    )  # fmt: skip
    known = set(plan["operators"])
    parallelisms = {
        uid: parallelism for uid, parallelism in wanted.parallelisms.items() if uid in known
    }
    return UpgradeNote(
        token=token,
        step=UpgradeStep.SAVE,
        former=home.find(job).read_request().to_json(),
        wanted=dataclasses.replace(wanted, parallelisms=parallelisms).to_json(),
        plan=_plain(plan),
        strategy=strategy,
        epoch=status.epoch,
    )


def _plain(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan[name] for name in ("changes", "plugin_version")}


def plan_upgrade(
    home: Home, wanted: JobRequest, *, checkpoint: str, job: str, is_followed: bool = False
) -> Mapping[str, Any]:
    """Compare the new version with the last published epoch; nothing is changed.

    Args:
        home: Packed environments are kept in its cache.
        wanted: The job with that version.
        checkpoint: Path or URL of the job's checkpoints.
        job: The job's id, for errors.
        is_followed: Whether the version has to follow the job before it continues.

    Returns:
        ``changes`` as ``bicycle plan --from`` has them, ``operators`` (the uids of the version),
        and its ``plugin_version``.

    Raises:
        STATE_WOULD_BE_LOST: state is refused, or lost and that is not allowed.
        BLUE_GREEN_REFUSED: the version cannot follow the job.
        UPGRADE_NOT_PLANNED: the child process returned nothing.
        BicycleError: the version cannot be loaded or built, or it breaks a rule.
    """
    question = {
        "home": str(home.path),
        "request": wanted.to_json(),
        "checkpoint": checkpoint,
        "is_followed": is_followed,
    }
    try:
        answer = ask_child(_PLANNING, question=question, timeout_s=_PLANNING_TIMEOUT_S)
    except NoAnswerError as error:
        raise UPGRADE_NOT_PLANNED(job=job, reason=str(error)) from None
    if "error" in answer:
        raise error_from_json(answer["error"])
    found: Mapping[str, Any] = answer
    return found
