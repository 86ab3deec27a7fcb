"""The harness: one job, scripted input, a clock moved by hand, and every way a job can be hurt.

It drives the real epoch loop on the real operators, on storage in a temporary directory. A *crash*
forgets all that a process holds and starts again from what is sealed; what was pushed and what was
published belong to the outside world and stay.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bicycle_runtime.base.clock import ManualClock
from bicycle_runtime.base.faults import InjectedFault, arm_fault, disarm_faults
from bicycle_runtime.base.ids import attempt_id, system_random
from bicycle_runtime.base.storage import LocalStorage, open_storage
from bicycle_runtime.connectors.collect import CollectedRecords
from bicycle_runtime.connectors.contract import ConnectorSpec
from bicycle_runtime.engine.epochs import EpochLoop, LoopServices
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.pinning import last_pins, pinned
from bicycle_runtime.engine.rescaling import Rescaled, WidthWish, rescale
from bicycle_runtime.engine.setup import JobSetup, prepare_job
from bicycle_runtime.engine.stats import EpochStats
from bicycle_runtime.operators.spec import DEAD_LETTERS, OperatorSpec
from bicycle_runtime.recovery.adoption import adopt, find_origin
from bicycle_runtime.testing.bundling import bundle_of_graph
from bicycle_runtime.testing.errors import HarnessError
from bicycle_runtime.testing.inspection import MISSING, entries_of, value_of
from bicycle_runtime.testing.keyed_inspection import timers_of
from bicycle_runtime.testing.registries import registry_for
from bicycle_runtime.testing.rewiring import (
    Tap,
    captured,
    scripted,
    scripted_sources,
    sink_names,
    tapped,
    used_payloads,
)
from bicycle_runtime.testing.script import Script, ScriptSource
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.graph import RuntimeMode
from bicycle_sdk.state import Timer

__all__ = ["Harness", "HarnessOptions", "Snapshot"]

_RESTARTS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessOptions:
    """What a test may change about a run.

    Args:
        parallelism: Of every operator; None keeps the job's.
        scripted: Sources (by uid) that are replaced by scripts.
        taps: Vertices whose output is collected too, by uid; a side output as ``(uid, tag)``.
        real_sinks: Sinks that really write; the others collect under their uid.
        extensions: Modules with connector hooks, beside those that are installed.
        engine: Sizes of epochs.
        start_ms: First reading of the clock.
        new_executor: Makes what runs the tasks; None runs them in the calling thread.
        start_from: A savepoint, or the checkpoint directory of another job, to begin with.
        allows_dropped_state: Whether what is sealed may be given up.
    """

    parallelism: int | None = None
    scripted: Collection[str] = ()
    taps: Sequence[Tap] = ()
    real_sinks: Collection[str] = ()
    extensions: Sequence[object] = ()
    engine: EngineOptions = field(default_factory=EngineOptions)
    start_ms: int = 1_000_000
    new_executor: Callable[[], Executor] = LocalExecutor
    start_from: str | None = None
    allows_dropped_state: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job as it was after an epoch: its checkpoint directory and what had been published."""

    epoch: int
    files: dict[str, bytes]
    collected: dict[str, tuple[list[Any], dict[str, int]]]


class Harness:
    """Runs one job. Use it as a context manager; the first line inside may already push.

    Args:
        job: An environment with streams on it, or a function that builds them on one.
        settings: Fields of ``HarnessOptions``.

    Example:
        >>> from bicycle_runtime.testing import script_source
        >>> def lengths(env):
        ...     env.add_source(script_source(str)).map(len).collect("out")
        >>> with Harness(lengths) as harness:
        ...     harness.push(["ada", "grace"])
        ...     _ = harness.run_epoch()
        ...     harness.published
        [3, 5]
    """

    def __init__(
        self, job: GraphDraft | Callable[[StreamEnvironment], object], **settings: Any
    ) -> None:
        self._options = HarnessOptions(**settings)
        env = job if isinstance(job, GraphDraft) else _built(job)
        graph = env.build_graph(getattr(env, "job_name", None) or "test")
        graph = captured(scripted(graph, self._options.scripted), self._options.real_sinks)
        self._graph = tapped(graph, self._options.taps)
        self._bundle = bundle_of_graph(self._graph, used_payloads(self._graph, env.payloads))
        self._parallelism = self._options.parallelism
        self._widths: Mapping[str, int] = {}
        self._scripts = {uid: Script() for uid in scripted_sources(self._graph)}
        self._collected: dict[str, list[Any]] = {}
        self._is_finished = False
        self._watermark_ms = WATERMARK_MIN
        self._registry = registry_for(self._graph, self._options.extensions)
        self.clock = ManualClock(self._options.start_ms)
        self.console: list[str] = []
        self.epochs: list[EpochStats] = []
        self.crash_count = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="bicycle-harness-"))
        self._storage = LocalStorage(str(self._folder), is_synced=False)
        try:
            if (url := self._options.start_from) is not None:
                adopt(find_origin(open_storage(url)), self._storage, job="harness")
            self._open()
        except BaseException:
            self._remove_folder()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        disarm_faults()
        try:
            self._loop.__exit__(None, None, None)
        finally:
            self._remove_folder()

    # --- input and time ----------------------------------------------------------------------

    def push(
        self,
        values: Iterable[Any],
        *,
        source: str | None = None,
        timestamp: int | Iterable[int] | None = None,
    ) -> None:
        """Give records to a scripted source; it needs a name when there are several.

        Args:
            values: The records.
            source: The source's uid.
            timestamp: Their event time in ms as the source gives it: one for all of them, or one
                for each; None for none.
        """
        if self._is_finished:
            raise self._error("the job has finished", "push before the input is ended")
        self._script(source).push(values, timestamp)

    def end(self, *, source: str | None = None) -> None:
        """Say that a scripted source gets no more records; without a name: none of them does."""
        for script in self._scripts.values() if source is None else [self._script(source)]:
            script.is_ended = True

    def run_epoch(self) -> EpochStats | None:
        """Run one epoch over what was pushed and publish it.

        Returns:
            Its statistics; None when there was no work, or when a fault of ``fail_at`` broke it.
        """
        count = len(self.epochs)
        self._guarded(self._step)
        return self.epochs[-1] if len(self.epochs) > count else None

    def run(self) -> None:
        """Run epochs until there is no work; when all input has ended, finish the job."""
        while True:
            step = self._guarded(self._step)
            if step is None or step.has_run:
                continue
            if not step.is_finished:
                return
            if self._guarded(self._finish) is not None:
                return

    def advance_time(self, duration_ms: int) -> None:
        """Move the clock on and run what became due."""
        self.clock.advance(duration_ms)
        self.run()

    def advance_watermark(self, watermark_ms: int) -> None:
        """Run what was pushed, and let event time come to ``watermark_ms`` at every operator.

        It is as if every source had said that nothing older will come. A watermark that is further
        already stays; after a crash the job is told again.
        """
        self._watermark_ms = max(self._watermark_ms, watermark_ms)
        self._loop.advance_watermark(self._watermark_ms)
        self.run()

    def watermark(self, uid: str) -> int | None:
        """Return the sealed watermark of an operator in ms; None while it has none."""
        watermark = self._loop.manifest.time.watermarks.get(uid, WATERMARK_MIN)
        return None if watermark == WATERMARK_MIN else watermark

    # --- hurting the job ---------------------------------------------------------------------

    def fail_at(self, point: str, *, passage: int = 1) -> None:
        """Let the process die at the n-th passage of a fault point, and start again by itself.

        Args:
            point: One of ``base.faults.FAULT_POINTS``.
            passage: Which passage from now on.
        """
        arm_fault(point, passage)

    def crash(self) -> None:
        """Forget all that the process holds, and start again from the last sealed epoch."""
        self.crash_count += 1
        self._close_lost()
        self._open()

    def lose_workers(self) -> None:
        """Let every worker process die between two epochs; the driver goes on."""
        if isinstance(self._executor, LocalExecutor):
            self._executor.lose_workers()

    def rescale(self, parallelism: int) -> None:
        """Stop, and start again with every operator at another parallelism."""
        self._loop.__exit__(None, None, None)
        self._parallelism, self._widths = parallelism, {}
        self._open()

    def rescale_live(self, parallelism: int | None = None, **operators: int) -> Rescaled | None:
        """Change widths while the job goes on; None is returned when a fault broke it."""
        wish = WidthWish(parallelism=parallelism, operators=operators)
        done: Rescaled | None = self._guarded(lambda: rescale(self._loop, wish, self.clock))
        if done is not None:
            self._setup, self._widths = self._loop.division.setup, done.new
            self._guarded(self._loop.settle)
        return done

    def snapshot(self) -> Snapshot:
        """Return a copy of all that is sealed and published."""
        files = {path: self._storage.read(path) for path in self._storage.list("")}
        collected = {
            name: (list(values), dict(_epochs_of(values)))
            for name, values in self._collected.items()
        }
        return Snapshot(self._loop.epoch, files, collected)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot. What was pushed since is read again."""
        self._loop.__exit__(None, None, None)
        self._storage.delete_tree("")
        for path, data in snapshot.files.items():
            self._storage.write(path, data)
        for name, (values, published) in snapshot.collected.items():
            records = CollectedRecords(values)
            records.published_epochs = dict(published)
            self._collected[name] = records
        self._is_finished = False
        self._open()

    # --- what came out -----------------------------------------------------------------------

    @property
    def published(self) -> list[Any]:
        """The records of the only sink, in the order of publication."""
        names = sink_names(self._graph)
        if len(names) != 1:
            raise self._error(f"it has the sinks {names}", "name one: results(name)")
        return self.results(names[0])

    def results(self, name: str) -> list[Any]:
        """Return what was published to a collect sink, a captured sink or a tap, by name."""
        if name not in self._collected:
            raise self._error(f"nothing collects as {name!r}", f"use one of {self.sink_names()}")
        return list(self._collected[name])

    def sink_names(self) -> list[str]:
        """Return all names that ``results`` takes."""
        return sorted(self._collected)

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters that were published, as plain data."""
        return list(self._collected.get(DEAD_LETTERS, ()))

    def state(self, uid: str, key: Any = MISSING) -> Any:
        """Return sealed state of an operator: of one key, or without a key all of it by key.

        Of a reduce it is the accumulator; of a function a mapping with named values and attributes.
        Where there are no keys, the subtask index stands for the key.
        """
        spec = self._operator(uid)
        place = (self._setup, self._loop.manifest, spec)
        if key is MISSING:
            return entries_of(*place, now_ms=self.clock.now_ms())
        found = value_of(*place, key, now_ms=self.clock.now_ms())
        if found is MISSING:
            raise self._error(f"operator {uid!r} has no state of {key!r}", "push such a record")
        return found

    def value(self, uid: str, *, key: Any, name: str) -> Any:
        """Return what a key has in a sealed state: a value, a list or a dict; None for nothing."""
        spec = self._operator(uid)
        found = value_of(self._setup, self._loop.manifest, spec, key, now_ms=self.clock.now_ms())
        return None if found is MISSING else found.get(name)

    def timers(self, uid: str, key: Any) -> list[Timer]:
        """Return the sealed timers of a key that wait: of event time, then of processing time."""
        return timers_of(self._setup, self._loop.manifest, self._operator(uid), key)

    def read_count(self, source: str | None = None) -> int:
        """Return how many records of a script were handed to tasks, each attempt counted."""
        return self._script(source).read_count

    def read_counts(self) -> dict[str, int]:
        """Return ``read_count`` of every scripted source."""
        return {uid: script.read_count for uid, script in self._scripts.items()}

    @property
    def epoch(self) -> int:
        """The last sealed epoch."""
        return self._loop.epoch

    @property
    def storage(self) -> LocalStorage:
        """The checkpoint directory of the job, for tests that damage it."""
        return self._storage

    @property
    def loop(self) -> EpochLoop:
        """The epoch loop as it runs now, for what a driver asks of it between two epochs."""
        return self._loop

    @property
    def setup(self) -> JobSetup:
        """The planned job: its graph and its stage plan."""
        return self._setup

    # --- the loop ----------------------------------------------------------------------------

    def _engine_options(self) -> EngineOptions:
        options = self._options.engine
        is_batch = self._graph.config.mode is RuntimeMode.BATCH
        return replace(options, mode="batch") if is_batch else options

    def _open(self) -> None:
        for _ in range(_RESTARTS_MAX):
            self._setup = self._prepare()
            self._executor = self._options.new_executor()
            self._loop: EpochLoop = EpochLoop(
                self._setup,
                self._executor,
                options=self._engine_options(),
                run_id=attempt_id(source=system_random()),
                services=LoopServices(
                    clock=self.clock,
                    console=self.console.append,
                    on_epoch=self.epochs.append,
                    collected=self._collected,
                ),
            )
            try:
                self._loop.__enter__()
                self._loop.advance_watermark(self._watermark_ms)
                return
            except InjectedFault:
                self.crash_count += 1
                self._close_lost()
            except BaseException:
                self._close_lost()
                raise
        raise self._error("it dies at every start", "disarm the fault")

    def _prepare(self) -> JobSetup:
        bundle = pinned(self._bundle, last_pins(self._storage))
        vertices = zip(self._graph.vertices, bundle.graph.vertices, strict=True)
        ids = {numbered.id: vertex.id for numbered, vertex in vertices}
        setup = prepare_job(
            bundle, job_id="harness", storage=self._storage, parallelism=self._parallelism,
            registry=self._registry, widths=self._widths,
        )  # fmt: skip
        setup = replace(setup, allows_dropped_state=self._options.allows_dropped_state)
        for uid, script in self._scripts.items():
            source = setup.sources[ids[uid]]
            assert isinstance(source, ScriptSource)
            source.attach(script)
        if DEAD_LETTERS not in setup.sinks:
            return setup
        letters = self._registry.create_sink(
            ConnectorSpec(
                vertex_id=DEAD_LETTERS, connector_type="collect", properties={"name": DEAD_LETTERS}
            )
        )
        return replace(setup, sinks={**setup.sinks, DEAD_LETTERS: letters})

    def _step(self) -> Any:
        step = self._loop.step()
        self._loop.settle()
        return step

    def _finish(self) -> bool:
        self._loop.finish(is_finished=True)
        self._is_finished = True
        return True

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except InjectedFault:
            self.crash()
            return None

    def _close_lost(self) -> None:
        self.lose_workers()
        with suppress(InjectedFault):
            self._loop.__exit__(None, None, None)

    def _operator(self, uid: str) -> OperatorSpec:
        spec = next((o for o in self._setup.plan.operators() if o.uid == uid), None)
        if spec is None:
            known = [o.uid for o in self._setup.plan.operators()]
            raise self._error(f"it has no operator {uid!r}", f"use one of {known}")
        return spec

    def _script(self, source: str | None) -> Script:
        if source is None and len(self._scripts) == 1:
            return next(iter(self._scripts.values()))
        if source not in self._scripts:
            known = list(self._scripts)
            problem = f"there is no scripted source {source!r}"
            raise self._error(problem, f"name one of {known} (or name it in scripted=…)")
        return self._scripts[source]

    def _error(self, problem: str, hint: str) -> HarnessError:
        return HarnessError(job=self._graph.name, problem=problem, hint=hint)

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _built(job: Callable[[StreamEnvironment], object]) -> StreamEnvironment:
    env = StreamEnvironment()
    job(env)
    return env


def _epochs_of(values: list[Any]) -> dict[str, int]:
    return values.published_epochs if isinstance(values, CollectedRecords) else {}
