"""Seeded random schedules of input, crashes, restarts, rescales (live too), moves, lost workers.

Whatever happens, what was published equals what an undisturbed run would publish: nothing missing,
nothing twice. A failure prints its schedule, and the name of the test holds its seed:
``-k "twice and 17"`` replays it.
"""

import os
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from bicycle_runtime.base.faults import BASE_POINTS, FAULT_POINTS, InjectedFault
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.recovery.adoption import adopt, find_origin
from bicycle_runtime.recovery.savepoints import write_savepoint
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, KeyedProcessFunction, ProcessFunction, RichAsyncFunction
from bicycle_sdk.failures import dead_letter
from tests.simulation.seeds import core_first

SHARED_MEMORY = Path("/dev/shm")
SEEDS = range(120)
DISK_SEEDS = range(1_000, 1_006)
RANDOM_SEEDS = range(80)
WORDS = [f"w{number}" for number in range(12)]


@dataclass
class Count(RichAsyncFunction[str, tuple[str, int]]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


@dataclass
class Recent(RichAsyncFunction[str, tuple[str, int]]):
    """Values that are changed in place, and entries that are deleted again."""

    seen: dict[str, list[int]] = field(default_factory=dict)

    def process(self, value, ctx):
        numbers = self.seen.setdefault(value, [])
        numbers.append(len(numbers))
        if len(numbers) == 3:
            del self.seen[value]
        return [(value, len(numbers))]


class Named(KeyedProcessFunction[str, str, tuple[str, int]]):
    def process_element(self, value, ctx):
        count = ctx.get_state("count", 0) + 1
        ctx.save_state("count", count)
        if count == 4:
            ctx.delete_state("count")
        yield (value, count)


class Slow(AsyncFunction[str, str]):
    async def process(self, value, ctx):
        return [value]


class Sieve(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        if value == WORDS[0]:
            ctx.side_output("first", value)
        return [value]


def refuse(word):
    if word == WORDS[1]:
        raise ValueError(word)
    return word


def job(env):
    words = env.add_source(script_source(str)).uid("words")
    sieved = words.process_unordered(Slow(), timeout=timedelta(seconds=30), capacity=4).process_fn(
        Sieve()
    )
    sieved.side_output("first").collect("first")
    keyed = sieved.key_by(lambda w: w)
    keyed.process(Count()).uid("rich").collect("rich")
    keyed.process(Recent()).uid("recent").collect("recent")
    keyed.process_fn(Named()).uid("named").collect("named")
    keyed.count().uid("count").collect("count")
    words.map(refuse).on_error(dead_letter()).collect("sound")
    loop = words.map(len).iterate()
    shorter = loop.map(lambda n: n - 1)
    loop.feedback(shorter.filter(lambda n: n > 0))
    shorter.collect("loop")


def expected(words):
    def running(limit=None):
        return Counter(
            (word, (words[: i + 1].count(word) - 1) % (limit or len(words)) + 1)
            for i, word in enumerate(words)
        )

    return {
        "first": Counter(word for word in words if word == WORDS[0]),
        "rich": running(),
        "recent": running(3),
        "named": running(4),
        "count": running(),
        "sound": Counter(word for word in words if word != WORDS[1]),
        "loop": Counter(n for word in words for n in range(len(word))),
    }


@pytest.fixture(autouse=True)
def quick_folders(monkeypatch):
    """Keep checkpoints in memory where the machine can: files are what takes the time here."""
    if os.access(SHARED_MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", str(SHARED_MEMORY))


def move(harness):
    """Go on in an empty place with a savepoint, as on another machine; a fault may break it."""
    try:
        epoch = harness.loop.close_outputs()
    except InjectedFault:
        harness.crash()
        return
    with tempfile.TemporaryDirectory() as folder:
        savepoint, place = (LocalStorage(f"{folder}/{n}", is_synced=False) for n in "ab")
        write_savepoint(harness.storage, savepoint, epoch=epoch, name="a", now_ms=0)
        adopt(find_origin(savepoint), place, job="moved")
        files = {path: place.read(path) for path in place.list("")}
    harness.restore(replace(harness.snapshot(), files=files))


class Schedule:
    """Random hurt, drawn from one seed, with a record of what was done."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.done = [f"seed {seed}"]
        self.words = []

    def step(self, harness):
        match self.random.randrange(15):
            case 0 | 1 | 2 | 3:
                words = self.random.choices(WORDS, k=self.random.randrange(1, 20))
                self.note(f"push {len(words)}")
                self.words += words
                harness.push(words)
            case 4 | 5 | 6:
                self.note("epoch")
                harness.run_epoch()
            case 7 | 8:
                point = self.random.choice(FAULT_POINTS + BASE_POINTS)
                passage = self.random.randrange(1, 6)
                self.note(f"fail at {point}@{passage}")
                harness.fail_at(point, passage=passage)
            case 9:
                self.note("crash")
                harness.crash()
            case 10:
                size = self.random.randrange(1, 6)
                self.note(f"rescale {size}")
                harness.rescale(size)
            case 11 | 12:
                size = self.random.randrange(1, 6)
                uids = [vertex.id for vertex in harness.setup.graph.vertices]
                some = self.random.choice([[], [self.random.choice(uids)]])
                self.note(f"live rescale of {some or 'all'} to {size}")
                harness.rescale_live(None if some else size, **dict.fromkeys(some, size))
            case 13:
                self.note("lose workers, an hour passes")
                harness.lose_workers()
                harness.clock.advance(3_600_000)
            case 14:
                self.note("go on elsewhere")
                move(harness)

    def note(self, text):
        self.done.append(text)

    def play(self, harness, count):
        for _ in range(count):
            self.step(harness)
        harness.end()
        harness.run()


@pytest.mark.parametrize("seed", core_first(SEEDS))
def test_nothing_is_missing_and_nothing_twice(seed):
    engine = EngineOptions(max_records_per_epoch=16, checkpoint_interval_ms=60_000)
    play_and_compare(Schedule(seed), engine)


@pytest.mark.parametrize("seed", core_first(DISK_SEEDS, count=2))
@pytest.mark.parametrize("is_kept", [False, True], ids=["new folder", "kept folder"])
def test_nothing_is_missing_and_nothing_twice_with_state_on_disk(seed, is_kept, tmp_path):
    engine = EngineOptions(
        max_records_per_epoch=16,
        checkpoint_interval_ms=60_000,
        state_backend="rocksdb",
        state_dir=str(tmp_path) if is_kept else None,
        state_cache_entries=1_000,
    )
    play_and_compare(Schedule(seed), engine)


def play_and_compare(schedule, engine):
    parallelism = schedule.random.randrange(1, 5)
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        schedule.play(harness, 20)

        words = schedule.words
        for name, counter in expected(words).items():
            assert Counter(harness.results(name)) == counter, (name, schedule.done)
        refused = [index for index, word in enumerate(words) if word == WORDS[1]]
        letters = [set(span_of(letter)) for letter in harness.dead_letters]
        assert len(letters) == len(refused), schedule.done
        assert all(span & set(refused) for span in letters), schedule.done
        assert harness.state("count") == dict(Counter(words)), schedule.done


def span_of(letter):
    """Return where a refused word stood; behind an exchange only the span of its batch is known."""
    return range(letter["offset"], letter.get("end_offset") or letter["offset"] + 1)


class Dice(RichAsyncFunction[str, tuple[str, int, int]]):
    """Sees another world at each attempt: what is sealed must be what is published."""

    def __init__(self):
        self.rolls: dict[str, list[int]] = {}

    def process(self, value, ctx):
        roll = random.SystemRandom().randrange(1_000_000)
        self.rolls.setdefault(value, []).append(roll)
        return [(value, len(self.rolls[value]), roll)]


def dice(env):
    words = env.add_source(script_source(str)).uid("words").key_by(lambda w: w)
    rolled = words.process(Dice()).uid("dice")
    rolled.collect("one")
    rolled.rebalance().collect("two")


@pytest.mark.parametrize("seed", core_first(RANDOM_SEEDS))
def test_a_random_function_publishes_what_was_sealed(seed):
    schedule = Schedule(seed)
    engine = EngineOptions(max_records_per_epoch=16)
    with Harness(dice, parallelism=2, engine=engine) as harness:
        schedule.play(harness, 20)

        one, two = harness.results("one"), harness.results("two")
        state = {word: found["rolls"] for word, found in harness.state("dice").items()}
        counts = Counter(schedule.words)
        assert Counter(one) == Counter(two), schedule.done
        assert sorted((word, number) for word, number, _ in one) == sorted(
            (word, number + 1) for word, count in counts.items() for number in range(count)
        ), schedule.done
        assert all(state[word][number - 1] == roll for word, number, roll in one), schedule.done
