"""Seeded schedules of drivers that freeze, wake up, die and are replaced, with damage between.

Whatever happens, what was published equals what one undisturbed driver would publish. A failure
prints its schedule; ``-k "frozen and 17"`` replays it.
"""

import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.recovery.errors import LEASE_LOST, EpochTakenError, LeaseHeldError
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.testing import script_source
from bicycle_sdk.errors import BicycleError
from tests.raising import raises
from tests.simulation.drivers import ACTS, LOOKS, Driver, World
from tests.simulation.seeds import core_first

SHARED_MEMORY = Path("/dev/shm")
WORDS = [f"w{number}" for number in range(12)]
STEP_COUNT = 15
TRIES = 4
# In which calls to the storage a driver freezes, and in which of them at most: a seal is rare.
MOMENTS = ((ACTS, 40), (ACTS, 40), (LOOKS, 40), (("create",), 3))


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        count = metafunc.config.getoption("--driver-schedules")
        metafunc.parametrize("seed", core_first(range(count)))


@pytest.fixture
def folder():
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        yield name


def job(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(lambda word: word).count().uid("count").collect("count")
    loop = words.map(len).iterate()
    shorter = loop.map(lambda n: n - 1)
    loop.feedback(shorter.filter(lambda n: n > 0))
    shorter.collect("loop")


class Schedule:
    """Random moments, drawn from one seed, with a record of what was done."""

    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        engine = EngineOptions(
            max_records_per_epoch=16,
            checkpoint_interval_ms=60_000,
            retained_epochs=self.random.randrange(2, 5),
        )
        self.world = World(job, folder, engine, self.random)
        self.done = [f"seed {seed}"]
        self.driver = self.new_driver()

    def note(self, text):
        self.done.append(text)

    def new_driver(self, **settings):
        """Start a driver that takes over; a zombie may have sealed in its last moment."""
        is_foreign = self.random.random() < 0.8
        parallelism = self.random.randrange(1, 4)
        driver = Driver(self.world, is_foreign=is_foreign, parallelism=parallelism, **settings)
        driver.lease.acquire()
        for _ in range(TRIES):
            try:
                driver.open()
                break
            except EpochTakenError:
                self.note(f"driver {driver.number} starts again")
                driver.die()
        else:
            raise AssertionError(self.done)
        return driver

    def push(self):
        words = self.random.choices(WORDS, k=self.random.randrange(1, 20))
        self.note(f"push {len(words)}")
        self.world.push(words)

    def step(self):
        match self.random.randrange(10):
            case 0 | 1:
                self.push()
            case 2 | 3:
                self.note(f"driver {self.driver.number} runs")
                self.driver.run()
            case 4 | 5 | 6:
                self.freeze(*self.random.choice(MOMENTS))
            case 7:
                self.freeze_at_start()
            case 8:
                self.note(f"driver {self.driver.number} dies")
                self.driver.die()
                self.driver = self.new_driver()
            case 9:
                self.rival()

    def freeze(self, methods, passage_max):
        """Freeze the driver somewhere in its next epoch; another one works; then it wakes up."""
        frozen = self.driver
        if not frozen.is_foreign:  # On one machine a frozen process is seen to be there.
            self.push()
            return
        passage = self.random.randrange(1, passage_max)
        self.note(f"driver {frozen.number} freezes at {passage} of {methods[0]}…")
        frozen.freeze_at(passage, self.take_over, methods)
        self.push()
        try:
            frozen.run()
        except BicycleError as error:
            self.note(f"driver {frozen.number}: {error.code}")
            self.require_replaced(frozen)
        if self.driver is not frozen:
            self.wake(frozen)
        frozen.thaw()

    def freeze_at_start(self):
        """Freeze a driver while it recovers, its sweep of files included."""
        self.driver.die()
        self.driver = None
        starting = Driver(self.world, is_foreign=True)
        passage = self.random.randrange(1, 30)
        self.note(f"driver {starting.number} freezes at {passage} of its start")
        starting.lease.acquire()
        starting.freeze_at(passage, self.take_over)
        try:
            starting.open()
        except BicycleError as error:
            self.note(f"driver {starting.number}: {error.code}")
            self.require_replaced(starting)
            starting.die()
            return
        if self.driver is None:
            self.driver = starting
        else:
            self.wake(starting)
        starting.thaw()

    def take_over(self):
        """Let another driver replace the frozen one, and work."""
        self.driver = self.new_driver()
        self.note(f"driver {self.driver.number} takes over")
        for _ in range(self.random.randrange(3)):
            self.push()
            self.driver.run()
        self.published_count = self.count_published()

    def count_published(self):
        return sum(map(len, self.world.collected.values()))

    def wake(self, zombie):
        """Let a replaced driver try to go on: it must end, sooner or later."""
        self.push()
        with pytest.raises(BicycleError):
            zombie.run()
        self.require_replaced(zombie)
        zombie.die()

    def require_replaced(self, zombie):
        assert self.driver not in (None, zombie), self.done
        assert zombie.crimes == [], self.done
        assert self.count_published() == self.published_count, self.done
        assert not zombie.lease.beat(), self.done
        with raises(LEASE_LOST):
            zombie.lease.require()

    def rival(self):
        """Let another driver try while ours lives: it goes, and nothing has changed."""
        self.note("a rival")
        rival = Driver(self.world, is_foreign=True, pause=self.driver.lease.beat)
        with pytest.raises(LeaseHeldError):
            rival.lease.acquire()

    def end(self):
        self.note("end")
        self.world.script.is_ended = True
        assert self.driver.run(), self.done
        self.driver.loop.finish(is_finished=True)


def test_frozen_drivers_that_wake_up_change_nothing(seed, folder):
    schedule = Schedule(seed, folder)
    for _ in range(STEP_COUNT):
        schedule.step()
    schedule.end()

    words, world = schedule.world.words, schedule.world
    running = Counter(
        (word, number + 1) for word, count in Counter(words).items() for number in range(count)
    )
    assert Counter(world.collected["count"]) == running, schedule.done
    expected = Counter(n for word in words for n in range(len(word)))
    assert Counter(world.collected["loop"]) == expected, schedule.done
    assert schedule.driver.state("count") == dict(Counter(words)), schedule.done
    schedule.driver.die()


def test_damage_between_lives_is_fallen_back_from_and_state_stays_right(seed, folder):
    schedule = Schedule(seed, folder)
    for _ in range(STEP_COUNT):
        if schedule.random.random() < 0.3:
            damage(schedule)
        else:
            schedule.step()
    schedule.end()

    assert schedule.driver.state("count") == dict(Counter(schedule.world.words)), schedule.done
    schedule.driver.die()


def damage(schedule):
    """Cut or flip a file that only the newest epoch needs, while no driver lives."""
    schedule.driver.die()
    storage, chance = schedule.world.storage, schedule.random
    whole = [one for one in EpochHistory(storage).retained() if one.manifest and not one.damage]
    if len(whole) > 1:
        *older, newest = [one.manifest for one in whole]
        needed = [one.state_paths() | one.feedback_paths() for one in (*older, newest)]
        own = sorted(needed.pop() - set().union(*needed))
        path = chance.choice([f"epochs/{newest.epoch:012}.manifest", *own])
        data = storage.read(path)
        position = chance.randrange(len(data)) if data else 0
        is_cut = chance.random() < 0.5
        rest = b"" if is_cut else bytes([data[position] ^ 1]) + data[position + 1 :]
        storage.delete(path)
        storage.write(path, data[:position] + rest)
        schedule.note(f"{'cut' if is_cut else 'flip'} {path} at {position}")
    schedule.driver = schedule.new_driver()
