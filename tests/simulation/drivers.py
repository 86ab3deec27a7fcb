"""Several drivers of one job in one process: each can be frozen at any call to the storage.

What happens while a driver is frozen happens inside that call, in its thread: another driver takes
over, works, and then the first one wakes up and goes on as if nothing had been. No time passes but
the clock's, so a schedule of hundreds of such moments takes a second.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.process_identity import ProcessIdentity, this_process
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.recovery.lease import Lease
from bicycle_runtime.testing.bundling import bundle_of_graph
from bicycle_runtime.testing.inspection import SealedObjects
from bicycle_runtime.testing.registries import registry_for
from bicycle_runtime.testing.rewiring import used_payloads
from bicycle_runtime.testing.script import Script
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.environment import StreamEnvironment

NO_PROCESS = 2**30  # No process ever has this id, so it is gone for all that see the same ids.
ACTS = ("create", "write", "open_write", "delete", "delete_tree", "discard_unfinished")
WRITES = ("write", "open_write")
DELETIONS = ("delete", "delete_tree", "discard_unfinished")
LOOKS = ("read", "open_read", "exists", "size", "list")


def _nothing(method: str, path: str) -> None:
    """Let a call happen as it is."""


class Watched:
    """A storage that tells of each call before it is made."""

    def __init__(self, below: LocalStorage) -> None:
        self._below = below
        self.before: Callable[[str, str], None] = _nothing

    @property
    def url(self):
        return self._below.url

    def __getattr__(self, name):
        if name not in (*ACTS, *LOOKS):
            raise AttributeError(name)
        method = getattr(self._below, name)

        def call(*arguments):
            self.before(name, arguments[0])
            return method(*arguments)

        return call


@dataclass
class World:
    """What no driver owns: input, published output, the disk, the time."""

    job: Callable[[StreamEnvironment], object]
    folder: str
    engine: EngineOptions
    source: random.Random
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    script: Script = field(default_factory=Script)
    collected: dict[str, list] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    numbers: itertools.count = field(default_factory=itertools.count)

    def __post_init__(self):
        env = StreamEnvironment()
        self.job(env)
        graph = env.build_graph("test")
        self.bundle = bundle_of_graph(graph, used_payloads(graph, env.payloads))
        self.registry = registry_for(graph)
        self.storage = LocalStorage(self.folder, is_synced=False)

    def push(self, words):
        self.words += words
        self.script.push(words, None)


class Driver:
    """One driver: takes the lease, recovers, runs epochs.

    Args:
        world: Where it lives.
        is_foreign: Whether it is on a host of its own, so that nobody can know that it died.
        parallelism: Of every operator.
        pause: What happens while it watches the heartbeat of another.
    """

    def __init__(self, world, *, is_foreign, parallelism=2, pause=lambda: None):
        self.world = world
        self.number = next(world.numbers)
        self.storage = Watched(world.storage)
        us = this_process()
        process = ProcessIdentity(
            host=f"host{self.number}",
            pid=NO_PROCESS,
            started=1,
            space=f"space{self.number}" if is_foreign else us.space,
        )

        def wait(seconds):
            world.clock.advance(round(seconds * 1_000))
            pause()

        self.lease = Lease(
            self.storage, job="job", clock=world.clock, source=world.source, process=process,
            pause=wait,
        )  # fmt: skip
        self.parallelism = parallelism
        self.is_foreign = is_foreign
        self.crimes = []
        self.loop = None

    def open(self):
        """Recover from what is sealed; the lease is taken."""
        world = self.world
        self.setup = prepare_job(
            world.bundle, job_id="job", storage=self.storage, parallelism=self.parallelism,
            registry=world.registry,
        )  # fmt: skip
        for source in self.setup.sources.values():
            source.attach(world.script)
        self.loop = EpochLoop(
            self.setup,
            LocalExecutor(),
            options=world.engine,
            run_id=attempt_id(source=world.source),
            services=LoopServices(
                clock=world.clock,
                console=lambda line: None,
                on_epoch=lambda stats: None,
                collected=world.collected,
                fence=self.lease,
            ),
        )
        self.loop.__enter__()

    def step(self):
        step = self.loop.step()
        self.loop.settle()
        return step

    def run(self):
        """Run epochs until there is nothing to do; True when the input has ended."""
        while (step := self.step()).has_run:
            pass
        return step.is_finished

    def die(self):
        """End as by SIGKILL: nothing is released, nothing is told."""
        if self.loop is not None:
            with contextlib.suppress(Exception):
                self.loop.__exit__(None, None, None)

    def freeze_at(self, passage, act, methods=ACTS):
        """Let ``act`` happen inside the n-th of these calls to the storage from now on."""
        left = passage

        def before(method, path):
            nonlocal left
            if method in methods:
                left -= 1
                if left == 0:
                    self.storage.before = _nothing
                    act()
                    self.storage.before = self._only_what_a_replaced_driver_may(method)

        self.storage.before = before

    def _only_what_a_replaced_driver_may(self, frozen_in):
        """Note whatever it does, but for what its tasks write, under names of their own.

        A row of deletions follows one look at the lease, and may come to its end. The note about
        the epoch that was begun is for people.
        """
        has_looked = False

        def before(method, path):
            nonlocal has_looked
            has_looked = has_looked or (method == "exists" and path.startswith("lease/"))
            is_of_tasks = path.startswith(("state/", "staged/")) and method in WRITES
            is_of_a_row = not has_looked and frozen_in in DELETIONS and method in DELETIONS
            if method in ACTS and not (is_of_tasks or is_of_a_row) and path != "epochs/begun":
                self.crimes.append((method, path))

        return before

    def thaw(self):
        """Let nothing happen inside calls any more."""
        self.storage.before = _nothing

    def state(self, uid):
        spec = next(spec for spec in self.setup.plan.operators() if spec.uid == uid)
        place = (self.setup, self.loop.manifest, spec)
        return SealedObjects(*place, now_ms=self.world.clock.now_ms()).entries()
