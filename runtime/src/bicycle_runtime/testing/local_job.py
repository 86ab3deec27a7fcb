"""The job of a harness: planned, started, crashed and restarted in this process.

A start makes connectors, executor and epoch loop again, as a driver does. The outside world stays:
storage, clock, scripts, and collected records. ``harness`` has the methods for tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.faults import InjectedFault
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.engine.resuming.operator_ids import last_operator_ids, with_operator_ids
from bicycle_runtime.operators.functions.rate_limit import RateLimitOperator
from bicycle_runtime.operators.spec import DEAD_LETTERS, REPLAYED_LETTERS
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.recovery.adoption import adopt, find_origin
from bicycle_runtime.testing.bundling import bundle_of_graph
from bicycle_runtime.testing.errors import HarnessError
from bicycle_runtime.testing.registries import registry_for
from bicycle_runtime.testing.rewiring import (
    add_taps,
    capture_sinks,
    script_sources,
    scripted_sources,
    used_payloads,
)
from bicycle_runtime.testing.script import Script, ScriptSource
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.graph import RuntimeMode
from bicycle_sdk.random_source import system_random

if TYPE_CHECKING:
    from bicycle_runtime.testing.options import HarnessOptions

_RESTARTS_MAX = 100


class LocalJob:
    """One job and its lives.

    Args:
        draft: Its streams.
        options: The changes to it.
    """

    storage: LocalStorage
    setup: JobSetup
    loop: EpochLoop
    executor: Executor

    def __init__(self, draft: GraphDraft, options: HarnessOptions) -> None:
        self._options = options
        graph = draft.build_graph(getattr(draft, "job_name", None) or "test")
        graph = capture_sinks(script_sources(graph, options.scripted), options.real_sinks)
        self.graph = add_taps(graph, options.taps)
        self._bundle = bundle_of_graph(self.graph, used_payloads(self.graph, draft.payloads))
        self._registry = registry_for(self.graph, options.extensions)
        self.parallelism = options.parallelism
        self.parallelisms: Mapping[str, int] = {}
        self.watermark_ms = WATERMARK_MIN
        self.scripts = {uid: Script() for uid in scripted_sources(self.graph)}
        self.collected: dict[str, list[Any]] = {}
        self.clock = ManualClock(options.start_ms)
        self.console: list[str] = []
        self.epochs: list[EpochStats] = []
        self.crash_count = 0

    def begin(self, storage: LocalStorage) -> None:
        """Start for the first time, from the configured origin, on empty storage."""
        self.storage = storage
        if (url := self._options.start_from) is not None:
            adopt(find_origin(open_storage(url)), storage, job="harness")
        self.start()

    def start(self) -> None:
        """Start from the last sealed epoch; where a fault breaks the start, start again."""
        for _ in range(_RESTARTS_MAX):
            self.setup = self._prepare()
            self.executor = self._options.new_executor()
            if isinstance(self.executor, LocalExecutor):
                self.executor.adapt = self._follow_clock
            self.loop = EpochLoop(
                self.setup,
                self.executor,
                options=self._engine_options(),
                run_id=attempt_id(source=system_random()),
                services=LoopServices(
                    clock=self.clock,
                    console=lambda text: self.console.extend(text.split("\n")),
                    on_epoch=self.epochs.append,
                    collected=self.collected,
                ),
            )
            try:
                self.loop.__enter__()
                self.loop.advance_watermark(self.watermark_ms)
                return
            except InjectedFault:
                self.crash_count += 1
                self._close_lost()
            except BaseException:
                self._close_lost()
                raise
        raise self.error("it fails at every start", "disarm the fault")

    def _follow_clock(self, program: Program) -> None:
        """Advance the manual clock instead of waiting in rate limits."""
        for operator in program.operators():
            if isinstance(operator, RateLimitOperator):
                operator.bucket.follow(self.clock.monotonic, self._wait)

    def _wait(self, duration_s: float) -> None:
        self.clock.advance(math.ceil(duration_s * 1_000))

    def stop(self) -> None:
        """End cleanly."""
        self.loop.__exit__(None, None, None)

    def crash(self) -> None:
        """Forget all that the process holds, and start again."""
        self.crash_count += 1
        self._close_lost()
        self.start()

    def lose_workers(self) -> None:
        """Kill all worker processes."""
        if isinstance(self.executor, LocalExecutor):
            self.executor.lose_workers()

    def guarded(self, action: Callable[[], Any]) -> Any:
        """Return an action's result, or None after a fault, which is a crash."""
        try:
            return action()
        except InjectedFault:
            self.crash()
            return None

    def error(self, problem: str, hint: str) -> HarnessError:
        """Return an error that names the job."""
        return HarnessError(job=self.graph.name, problem=problem, hint=hint)

    def _engine_options(self) -> EngineOptions:
        options = self._options.engine
        is_batch = self.graph.config.mode is RuntimeMode.BATCH
        return replace(options, mode="batch") if is_batch else options

    def _prepare(self) -> JobSetup:
        bundle = with_operator_ids(self._bundle, last_operator_ids(self.storage))
        vertices = zip(self.graph.vertices, bundle.graph.vertices, strict=True)
        ids = {numbered.id: vertex.id for numbered, vertex in vertices}
        setup = prepare_job(
            bundle, job_id="harness", storage=self.storage, parallelism=self.parallelism,
            registry=self._registry, parallelisms=self.parallelisms,
        )  # fmt: skip
        setup = replace(setup, allows_dropped_state=self._options.allows_dropped_state)
        for uid, script in self.scripts.items():
            source = setup.sources[ids[uid]]
            assert isinstance(source, ScriptSource)
            source.attach(script)
        letters = {
            uid: self._registry.create_sink(
                ConnectorSpec(vertex_id=uid, connector_type="collect", properties={"name": uid})
            )
            for uid in (DEAD_LETTERS, REPLAYED_LETTERS)
            if uid in setup.sinks
        }
        return replace(setup, sinks={**setup.sinks, **letters})

    def _close_lost(self) -> None:
        self.lose_workers()
        with suppress(InjectedFault):
            self.loop.__exit__(None, None, None)
