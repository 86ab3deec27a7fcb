"""The harness: one job with scripted input, a manual clock, and injected faults.

It drives the real epoch loop on the real operators, on storage in a temporary directory. A *crash*
forgets everything in the process and starts again from the sealed state; pushed and published
records belong to the outside world and stay.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bicycle_runtime.base.faults import arm_fault, disarm_faults
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.collect import CollectedRecords
from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.letters import letter_order, replay_letters
from bicycle_runtime.engine.loop.rescaling import Rescaled, RescaleRequest, rescale
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.operators.spec import DEAD_LETTERS, REPLAYED_LETTERS, OperatorSpec
from bicycle_runtime.testing.inspection import SealedObjects
from bicycle_runtime.testing.local_job import LocalJob
from bicycle_runtime.testing.options import HarnessOptions
from bicycle_runtime.testing.rewiring import sink_names
from bicycle_runtime.testing.script import Script
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.state import Timer

_ALL = object()  # No key: the state of all.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job after an epoch: its checkpoint directory, and its published records."""

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
        draft = job if isinstance(job, GraphDraft) else _build(job)
        self._job = LocalJob(draft, HarnessOptions(**settings))
        self._is_finished = False
        self.clock = self._job.clock
        self.console = self._job.console
        self.epochs = self._job.epochs

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="bicycle-harness-"))
        try:
            self._job.begin(LocalStorage(str(self._folder), is_synced=False))
        except BaseException:
            self._remove_folder()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        disarm_faults()
        try:
            self._job.stop()
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
        """Push records to a scripted source, by name if there are several.

        Args:
            values: The records.
            source: The source's uid.
            timestamp: Their event time in ms, as from the source: one for all of them, or one for
                each, or None.
        """
        if self._is_finished:
            raise self._job.error("the job has finished", "push before the input is ended")
        self._script(source).push(values, timestamp)

    def end(self, *, source: str | None = None) -> None:
        """End the input of a scripted source, or of all without a name."""
        for script in self._job.scripts.values() if source is None else [self._script(source)]:
            script.is_ended = True

    def run_epoch(self) -> EpochStats | None:
        """Run one epoch over the pushed records, and publish it.

        Returns:
            Its statistics; None when there was no work, or when a fault of ``fail_at`` broke it.
        """
        count = len(self.epochs)
        self._job.guarded(self._step)
        return self.epochs[-1] if len(self.epochs) > count else None

    def run(self) -> None:
        """Run epochs until there is no work; when all input has ended, finish the job."""
        while True:
            step = self._job.guarded(self._step)
            if step is None or step.has_run:
                continue
            if not step.is_finished:
                return
            if self._job.guarded(self._finish) is not None:
                return

    def advance_time(self, duration_ms: int) -> None:
        """Advance the clock, and run due work."""
        self.clock.advance(duration_ms)
        self.run()

    def advance_watermark(self, watermark_ms: int) -> None:
        """Run pushed records, and advance event time to ``watermark_ms`` at all operators.

        It acts as if no source had any input at or before it. A watermark that is further already
        stays; after a crash the job gets it again.
        """
        self._job.watermark_ms = max(self._job.watermark_ms, watermark_ms)
        self._job.loop.advance_watermark(self._job.watermark_ms)
        self.run()

    def watermark(self, uid: str) -> int | None:
        """Return the sealed watermark of an operator in ms, or None."""
        watermark = self._job.loop.manifest.time.watermarks.get(uid, WATERMARK_MIN)
        return None if watermark == WATERMARK_MIN else watermark

    # --- hurting the job ---------------------------------------------------------------------

    def fail_at(self, point: str, *, passage: int = 1) -> None:
        """Make the process die at the n-th passage of a fault point, and restart.

        Args:
            point: One of ``base.faults.FAULT_POINTS``.
            passage: Which passage from now on.
        """
        arm_fault(point, passage)

    def crash(self) -> None:
        """Forget all that the process holds, and start again from the last sealed epoch."""
        self._job.crash()

    def lose_workers(self) -> None:
        """Kill all worker processes between two epochs; the driver continues."""
        self._job.lose_workers()

    def rescale(self, parallelism: int) -> None:
        """Stop, and start again with every operator at another parallelism."""
        self._job.stop()
        self._job.parallelism, self._job.parallelisms = parallelism, {}
        self._job.start()

    def rescale_live(self, parallelism: int | None = None, **operators: int) -> Rescaled | None:
        """Change parallelism while the job runs; return None if a fault occurred."""
        request = RescaleRequest(parallelism=parallelism, operators=operators)
        done: Rescaled | None = self._job.guarded(
            lambda: rescale(self._job.loop, request, self.clock)
        )
        if done is not None:
            self._job.setup, self._job.parallelisms = self._job.loop.topology.setup, done.new
            self._job.guarded(self._job.loop.settle)
        return done

    def replay_letters(self, letters: Iterable[Mapping[str, Any]]) -> int | None:
        """Replay dead letters in a separate epoch.

        Returns:
            The epoch; None when a fault broke it. Whether a letter was replayed before is not
            looked at: a running job does that.
        """
        plan = self._job.setup.plan
        orders = [letter_order(plan, str(at), each) for at, each in enumerate(letters)]
        epoch: int | None = self._job.guarded(lambda: replay_letters(self._job.loop, orders))
        return epoch

    def snapshot(self) -> Snapshot:
        """Return a copy of all that is sealed and published."""
        files = {path: self._job.storage.read(path) for path in self._job.storage.list("")}
        collected = {
            name: (list(values), dict(_epochs_of(values)))
            for name, values in self._job.collected.items()
        }
        return Snapshot(self._job.loop.epoch, files, collected)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot. What was pushed since is read again."""
        self._job.stop()
        self._job.storage.delete_tree("")
        for path, data in snapshot.files.items():
            self._job.storage.write(path, data)
        for name, (values, published) in snapshot.collected.items():
            records = CollectedRecords(values)
            records.published_epochs = dict(published)
            self._job.collected[name] = records
        self._is_finished = False
        self._job.start()

    # --- the output ----------------------------------------------------------------------------

    @property
    def published(self) -> list[Any]:
        """The records of the only sink, in the order of publication."""
        names = sink_names(self._job.graph)
        if len(names) != 1:
            raise self._job.error(f"it has the sinks {names}", "pass a name: results(name)")
        return self.results(names[0])

    def results(self, name: str) -> list[Any]:
        """Return the records of a collect sink, a captured sink or a tap, by name."""
        if name not in self._job.collected:
            raise self._job.error(
                f"no sink collects as {name!r}", f"use one of {self.sink_names()}"
            )
        return list(self._job.collected[name])

    def sink_names(self) -> list[str]:
        """Return all names that ``results`` takes."""
        return sorted(self._job.collected)

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters that were published, as plain data."""
        return list(self._job.collected.get(DEAD_LETTERS, ()))

    def state(self, uid: str, key: Any = _ALL) -> Any:
        """Return an operator's sealed state of one key, or of all keys.

        Of a reduce it is the accumulator; of a function a mapping with named values and attributes.
        Without keys, the subtask index is the key.
        """
        found = self._sealed_objects(uid).entries()
        if key is _ALL:
            return found
        if key not in found:
            raise self._job.error(f"operator {uid!r} has no state of {key!r}", "push such a record")
        return found[key]

    def value(self, uid: str, *, key: Any, name: str) -> Any:
        """Return a key's content in a sealed state: a value, a list or a dict, or None."""
        return self._sealed_objects(uid).value(key, name)

    def timers(self, uid: str, key: Any) -> list[Timer]:
        """Return the sealed pending timers of a key: event time, then processing time."""
        return self._sealed_objects(uid).timers(key)

    @property
    def replayed_letters(self) -> list[dict[str, Any]]:
        """The sealed results of replayed dead letters, as plain data."""
        return list(self._job.collected.get(REPLAYED_LETTERS, ()))

    def read_count(self, source: str | None = None) -> int:
        """Return how many records of a script were handed to tasks, each attempt counted."""
        return self._script(source).read_count

    def read_counts(self) -> dict[str, int]:
        """Return ``read_count`` of every scripted source."""
        return {uid: script.read_count for uid, script in self._job.scripts.items()}

    @property
    def epoch(self) -> int:
        """The last sealed epoch."""
        return self._job.loop.epoch

    @property
    def storage(self) -> LocalStorage:
        """The checkpoint directory, for tests that damage it; each start uses it."""
        return self._job.storage

    @storage.setter
    def storage(self, storage: LocalStorage) -> None:
        """Take another directory from the next start on."""
        self._job.storage = storage

    @property
    def crash_count(self) -> int:
        """The number of crashes so far."""
        return self._job.crash_count

    @property
    def loop(self) -> EpochLoop:
        """The current epoch loop, for driver operations between two epochs."""
        return self._job.loop

    @property
    def setup(self) -> JobSetup:
        """The planned job: its graph and its stage plan."""
        return self._job.setup

    def _step(self) -> Any:
        step = self._job.loop.step()
        self._job.loop.settle()
        return step

    def _finish(self) -> bool:
        self._job.loop.finish(is_finished=True)
        self._is_finished = True
        return True

    def _sealed_objects(self, uid: str) -> SealedObjects:
        job = self._job
        return SealedObjects(
            job.setup, job.loop.manifest, self._operator(uid), now_ms=self.clock.now_ms()
        )

    def _operator(self, uid: str) -> OperatorSpec:
        spec = next((o for o in self._job.setup.plan.operators() if o.uid == uid), None)
        if spec is None:
            known = [o.uid for o in self._job.setup.plan.operators()]
            raise self._job.error(f"it has no operator {uid!r}", f"use one of {known}")
        return spec

    def _script(self, source: str | None) -> Script:
        if source is None and len(self._job.scripts) == 1:
            return next(iter(self._job.scripts.values()))
        if source not in self._job.scripts:
            known = list(self._job.scripts)
            problem = f"there is no scripted source {source!r}"
            raise self._job.error(problem, f"use one of {known} (or list it in scripted=…)")
        return self._job.scripts[source]

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _build(job: Callable[[StreamEnvironment], object]) -> StreamEnvironment:
    env = StreamEnvironment()
    job(env)
    return env


def _epochs_of(values: list[Any]) -> dict[str, int]:
    return values.published_epochs if isinstance(values, CollectedRecords) else {}
