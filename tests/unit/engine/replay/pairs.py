"""A job and its shadow, epoch by epoch, in this process."""

from __future__ import annotations

from dataclasses import replace

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.planning.stages import with_parallelisms
from bicycle_runtime.engine.replay.rereading import rereaders
from bicycle_runtime.engine.replay.shadow_loop import ShadowLoop
from bicycle_runtime.layouts.paths import SHADOW
from bicycle_runtime.recovery.adoption import fork, hand_over
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.clock import ManualClock


class Pair:
    """A job epoch by epoch, its shadow, and what both have given to `collect` sinks."""

    def __init__(self, folder, build, other=None, *, parallelisms=None, **options):
        self.storage = LocalStorage(str(folder / "job"), is_synced=False)
        self.place = folder_of(self.storage, f"{SHADOW}/one")
        self.clock = ManualClock(1_000)
        self.build, self.other = build, other or build
        self.parallelisms = parallelisms or {}
        self.options = EngineOptions(max_records_per_epoch=7, **options)
        self.collected = {}
        self.followed = 0

    def setup(self, build, storage, parallelisms=None):
        env = StreamEnvironment()
        build(env)
        bundle = bundle_of(env)
        graph = with_parallelisms(bundle.graph, parallelisms or {})
        return prepare_job(replace(bundle, graph=graph), job_id="job", storage=storage)

    def loop(self, build=None, parallelisms=None, run_id="blue"):
        services = LoopServices(
            clock=self.clock, console=print, on_epoch=lambda _: None, collected=self.collected,
            followed=lambda: self.followed,
        )  # fmt: skip
        return EpochLoop(
            self.setup(build or self.build, self.storage, parallelisms), LocalExecutor(),
            options=self.options, run_id=run_id, services=services,
        )  # fmt: skip

    def shadow(self):
        fork(self.storage, self.place, job="job")
        self.executor = LocalExecutor()
        setup = self.setup(self.other, self.place, self.parallelisms)
        readers = rereaders(replace(setup, storage=self.storage))
        return ShadowLoop(
            setup, self.storage, readers, self.executor, options=self.options, run_id="green",
            clock=self.clock,
        )  # fmt: skip

    def run(self, count, loop):
        for _ in range(count):
            loop.step()
            self.clock.advance(700)
        loop.settle()

    def catch_up(self, shadow):
        while shadow.step():
            pass

    def take_over(self):
        return hand_over(self.place, self.storage, require_lease=lambda: None)

    def finish(self, build, parallelisms=None):
        with self.loop(build, parallelisms, run_id="after") as loop:
            while not loop.step().is_finished:
                self.clock.advance(700)
            loop.finish(is_finished=True)

    def upgraded(self):
        """Run some epochs, let the shadow follow some more, hand over, and run to the end."""
        with self.loop() as loop:
            self.run(3, loop)
            shadow = self.shadow()
            self.run(5, loop)
            self.catch_up(shadow)
            self.run(2, loop)
            loop.finish(is_finished=False)
        self.catch_up(shadow)
        self.executor.stop()
        at = self.take_over()
        assert at == EpochHistory(self.storage).epochs()[-1]
        self.finish(self.other, self.parallelisms)
        return at
