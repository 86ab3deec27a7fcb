"""Options of a run of the harness, declared once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing.rewiring import Tap


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessOptions:
    """The options of a test run.

    Args:
        parallelism: Of every operator; None keeps the job's.
        scripted: Sources (by uid) that are replaced by scripts.
        taps: Vertices whose output is collected too, by uid; a side output as ``(uid, tag)``.
        real_sinks: Sinks that really write; the others collect under their uid.
        extensions: Modules with connector hooks, beside installed ones.
        engine: Sizes of epochs.
        start_ms: First reading of the clock.
        new_executor: Makes the executor; None runs tasks in the calling thread.
        start_from: A savepoint, or the checkpoint directory of another job, to begin with.
        allows_dropped_state: Whether sealed state may be dropped.
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
