"""The epochs of a run, from recovery to the end of input or a stop.

Between two epochs the job rests as long as the target latency allows, and carries out requests: a
savepoint, a rescale, a drain, dead letters once more. While a long epoch runs, the progress of its
tasks is read now and then.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import Storage, StorageError
from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.engine.errors import EpochFailedError, SparkLostError, SparkStartError
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.rescaling import rescale
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.jobs.checkpoints.job_file import note_run
from bicycle_runtime.jobs.control.letter_replay import replay_asked
from bicycle_runtime.jobs.control.requests import Answer, DriverRequest, Handler
from bicycle_runtime.jobs.control.rescaling import request_rescaled, rescale_request
from bicycle_runtime.jobs.epoch_ages import SHOWN_MIN_MS, epoch_age_ms, publication_age_ms
from bicycle_runtime.jobs.running.job_run import JobRun
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.shadow_note import followed_epoch
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.layouts.paths import READING
from bicycle_runtime.operators.heartbeats import read_so_far
from bicycle_sdk.clock import Clock
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

_WAIT_MS_MAX = 1_000  # Requests are met between two waits.
# How a start, or an epoch, fails whose Java process was ended.
_CUT_SHORT = (SparkStartError, SparkLostError, EpochFailedError, PublishInterruptedError)


class Epochs:
    """Runs the epochs of one run of a job, once after each of its starts."""

    def __init__(self, run: JobRun) -> None:
        self._run = run
        self._is_draining = False
        # The handlers of requests between two epochs, by kind.
        self._handlers: dict[str, Handler] = {
            DriverRequest.SAVEPOINT: run.savepoints.ask,
            DriverRequest.DRAIN: self._begin_draining,
            DriverRequest.RESCALE: self._rescale,
            DriverRequest.REPLAY_LETTERS: self._replay_letters,
        }

    def run(self, setup: JobSetup) -> JobState:
        """Run epochs until the input ends or a stop is requested, then publish everything.

        Returns:
            How the job ended.

        Raises:
            BicycleError: a function, Spark, a connector or the storage failed.
        """
        run, stop = self._run, self._run.services.stop
        if stop.is_set:  # It was requested before anything could be interrupted.
            return JobState.STOPPED
        reading = ReadingWatch(
            run.location.storage, run.progress, clock=run.services.clock, on_wait=run.watchdog.allow
        )
        try:
            with self._recover(setup) as loop, reading:
                return self._run_loop(loop, setup)
        except _CUT_SHORT:
            if self._is_stopped_at_its_start():
                return JobState.STOPPED
            if not stop.was_aborted:
                raise
            run.log("epoch_aborted", epoch=run.progress.status.epoch + 1)
            return JobState.STOPPED
        finally:
            with run.phases.copying():
                run.savepoints.wait()

    def _is_stopped_at_its_start(self) -> bool:
        return self._run.services.stop.is_set and self._run.loop is None

    @contextlib.contextmanager
    def _recover(self, setup: JobSetup) -> Iterator[EpochLoop]:
        """Yield the recovered epoch loop; entering, leaving and pauses are watched."""
        self._run.loop = None
        with contextlib.ExitStack() as running:
            running.enter_context(self._run.phases.work("working between epochs"))
            with self._run.phases.beginning():
                loop = running.enter_context(self._loop(setup))
            yield loop

    def _loop(self, setup: JobSetup) -> EpochLoop:
        run, services = self._run, self._run.services
        return EpochLoop(
            setup,
            run.executor.for_loop(run.request, has_work=partial(_may_have_work, setup)),
            options=run.request.engine_options(setup.graph),
            run_id=attempt_id(source=services.source),
            services=LoopServices(
                clock=services.clock,
                console=services.console,
                on_epoch=run.progress.take_epoch,
                fence=run.lease,
                followed=partial(followed_epoch, run.location.folder),
                on_publishing=lambda epoch, sink: run.phases.take_publishing(
                    epoch, sink, is_running=run.loop is not None
                ),
                wake=services.stop.wake,
                on_loaded=lambda done, total: run.phases.take_loaded(
                    done, total, is_running=run.loop is not None
                ),
            ),
        )

    def _run_loop(self, loop: EpochLoop, setup: JobSetup) -> JobState:
        run, progress = self._run, self._run.progress
        run.loop = loop
        run.is_bounded = all(source.poll().is_bounded for source in setup.sources.values())
        note_run(setup, now_ms=run.services.clock.now_ms())
        progress.resume_from(loop.manifest)
        progress.take_waiting(loop.waiting())
        progress.take_parallelisms(loop.topology.parallelisms)
        progress.enter(JobState.RUNNING)
        for line in socket_lines(setup.graph):
            run.services.announce(line)
        run.log("job_started", epoch=loop.epoch, operators=len(setup.graph.vertices))
        is_finished = not run.services.only_settles and self._step_until_done(loop)
        with self._epoch(loop.epoch + 1):
            loop.finish(is_finished=is_finished and not self._is_draining)
        progress.status.dropped_count = loop.dropped_count()
        return JobState.FINISHED if is_finished else JobState.STOPPED

    def _step_until_done(self, loop: EpochLoop) -> bool:
        """Return whether all input is finished; False when a stop was requested."""
        run, clock = self._run, self._run.services.clock
        rests_until = clock.monotonic()
        target_ms = run.request.options.latency_target_ms
        while not run.services.stop.is_set:
            if run.lease.is_lost:
                run.lease.require()
            with self._epoch(loop.epoch + 1):  # Some requests run one.
                run.inbox.serve(self._handlers)
            begun_at = clock.monotonic()
            if begun_at < rests_until and not self._is_asked():
                run.progress.take_idle(None)
                self._wait(round((rests_until - begun_at) * 1_000))
                continue
            with self._epoch(loop.epoch + 1):
                run.savepoints.meet(loop)
                step = loop.drain() if self._is_draining else loop.step(reads_on=not target_ms)
            if step.is_finished:
                return True
            if not step.has_run:
                run.progress.take_idle(step.unread)
                self._wait(step.wait_ms)
            elif step.is_caught_up:
                now = clock.monotonic()
                rests_until = now + pause_ms(target_ms, (now - begun_at) * 1_000) / 1_000
        return False

    @contextlib.contextmanager
    def _epoch(self, number: int) -> Iterator[None]:
        """Watch and show an epoch, or a look for one, while inside the block."""
        run = self._run
        with run.phases.epoch(number), run.progress.epoch(), run.executor.counting_ends():
            yield

    def _is_asked(self) -> bool:
        """Return whether a request needs an epoch."""
        return self._is_draining or self._run.savepoints.is_asked

    def _wait(self, wait_ms: int) -> None:
        with self._run.phases.waiting():
            self._run.services.stop.pause(min(wait_ms, _WAIT_MS_MAX))

    def _rescale(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        run = self._run
        assert run.loop is not None
        done = rescale(run.loop, rescale_request(facts), run.services.clock)
        run.request = request_rescaled(run.request, done, run.location.folder)
        run.progress.take_parallelisms(done.new)
        run.log("job_rescaled", epoch=done.epoch, pause_ms=done.pause_ms, parallelism=done.new)
        return asdict(done)

    def _replay_letters(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return replay_asked(self._run.loop, self._run.location, self._run.request, facts)

    def _begin_draining(self, _: Mapping[str, Any]) -> Future[Answer]:
        self._is_draining = True
        self._run.log("drain_requested")
        return Future()  # The end of the job is the answer: until then another driver finds it.


def _may_have_work(setup: JobSetup) -> bool:
    statuses = [source.poll() for source in setup.sources.values()]
    return any(status.has_input or not status.is_bounded for status in statuses)


def pause_ms(target_ms: int, duration_ms: float) -> int:
    """Return the pause after an epoch, in ms, for results within the target time.

    A record that comes when an epoch has just begun is read by the next one, and seen when that one
    is over: it takes the rest and two epochs. If epochs are so slow that one takes a third of the
    target time, as on a busy machine, the rest is as long as the epoch: there would be more epochs,
    and each would cost the same, just when there is least to spend.

    Example:
        >>> pause_ms(500, 30.0), pause_ms(500, 200.0), pause_ms(0, 200.0)
        (440, 200, 0)
    """
    if not target_ms:
        return 0
    return round(max(target_ms - 2 * duration_ms, min(duration_ms, target_ms)))


_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


def socket_lines(graph: JobGraph) -> list[str]:
    """Return the command that connects to each listening socket, sources first.

    A socket on any free port (0) has no line here: its port is in the log.
    """
    return [
        f"{word}: nc {_host(vertex)} {_properties(vertex)['port']}"
        for kind, word in ((OperatorKind.SOURCE, "Input"), (OperatorKind.SINK, "Output"))
        for vertex in graph.vertices
        if vertex.kind is kind and _is_listening_socket(vertex) and _properties(vertex).get("port")
    ]


def _is_listening_socket(vertex: Vertex) -> bool:
    properties = _properties(vertex)
    is_client = properties.get("stream") and not properties.get("listen")
    return vertex.details["connector"]["connector_type"] == "socket" and not is_client


def _properties(vertex: Vertex) -> dict[str, object]:
    return dict(vertex.details["connector"].get("properties", {}))


def _host(vertex: Vertex) -> str:
    host = str(_properties(vertex).get("host", ""))
    return "localhost" if host in _ANY_ADDRESS else host


_INTERVAL_S = 2.0


class ReadingWatch:
    """Shows records of the epoch that runs, from entering to leaving.

    Args:
        storage: The job's checkpoint.
        progress: Knows which epoch runs, and shows it.
        clock: Measures for how long.
        on_wait: Gets the ms that an epoch waits on purpose, in pieces.
    """

    def __init__(
        self, storage: Storage, progress: JobProgress, *, clock: Clock,
        on_wait: Callable[[int], object],
    ) -> None:  # fmt: skip
        self._on_wait = on_wait
        self._waited = (0, 0)  # epoch and ms
        self._storage = storage
        self._progress = progress
        self._clock = clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="reading-watch", daemon=True)

    def __enter__(self) -> ReadingWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        with contextlib.suppress(StorageError):
            self._storage.delete_tree(READING)

    def look(self) -> None:
        """Show the progress of tasks when the epoch has run for a while."""
        status, now_ms = self._progress.status, self._clock.now_ms()
        if (publication_age_ms(status, now_ms) or 0) >= SHOWN_MIN_MS:
            self._progress.look()
        if (epoch_age_ms(status, now_ms) or 0) >= SHOWN_MIN_MS:
            with contextlib.suppress(StorageError):
                epoch = status.epoch + 1
                count, waited_ms = read_so_far(self._storage, epoch)
                self._progress.take_reading(count)
                self._take_waits(epoch, waited_ms)

    def _take_waits(self, epoch: int, waited_ms: int) -> None:
        before_ms = self._waited[1] if self._waited[0] == epoch else 0
        self._waited = (epoch, waited_ms)  # Less than before when a task begins once more.
        if waited_ms > before_ms:
            self._on_wait(waited_ms - before_ms)

    def _follow(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            self.look()
