"""Dead letters that are replayed, on the harness (memory and RocksDB) and on Spark."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bicycle_runtime.engine.errors import DEAD_LETTER_NOT_REPLAYABLE, LETTERS_NOT_REPLAYED
from bicycle_runtime.operators.errors import DEAD_LETTER_UNREADABLE
from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedCoProcessFunction, KeyedProcessFunction, RichAsyncFunction
from bicycle_sdk.failures import dead_letter
from bicycle_sdk.windows import Count
from tests.raising import raises

WORDS = [f"w{number % 7}" for number in range(21)]
BAD = ("w1", "w4")
POINTS = ("operator", "delta_written", "before_seal", "after_seal", "before_publish",
          "half_published", "after_publish")  # fmt: skip


@dataclass
class Strict:
    """Refuses some words while a file is there: without it, this is a later version."""

    marker: str

    def __call__(self, word):
        if word in BAD and Path(self.marker).exists():
            raise ValueError(f"{word} is refused")
        return word


@dataclass
class StrictCount(RichAsyncFunction[str, tuple[str, int]]):
    """Counts by key, in state."""

    strict: Strict
    counts: dict[str, int] = field(default_factory=dict)

    def process(self, value, ctx):
        self.strict(value)
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


class Pairs(KeyedCoProcessFunction[str, str, str, tuple]):
    """Tells words of one input by what the other one said of their key."""

    def __init__(self, strict):
        self.strict = strict

    def process_element1(self, value, ctx):
        return [(self.strict(value), "left")]

    def process_element2(self, value, ctx):
        return [(self.strict(value), "right")]


class Ringing(KeyedProcessFunction[str, str, str]):
    """Fails in a timer."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(ctx.timestamp)
        return []

    def on_timer(self, timestamp_ms, ctx):
        raise ValueError("late")


@pytest.fixture
def strict(tmp_path):
    marker = tmp_path / "strict"
    marker.touch()
    return Strict(str(marker))


def let_go(strict):
    Path(strict.marker).unlink()


def counted(strict):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        checked = words.map(strict).uid("checked").on_error(dead_letter())
        checked.key_by(str).process(StrictCount(strict)).uid("counts").collect("counts")

    return job


def keyed(strict):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        counts = words.key_by(str).process(StrictCount(strict)).uid("counts")
        counts.on_error(dead_letter()).collect("counts")

    return job


def every_count(words):
    return Counter((word, words[: at + 1].count(word)) for at, word in enumerate(words))


@pytest.mark.core
@pytest.mark.parametrize("job", [counted, keyed])
def test_replayed_letters_count_as_if_they_had_never_failed(runner, strict, job):
    with runner.harness(job(strict), parallelism=3) as harness:
        harness.push(WORDS)
        harness.run()
        assert {each["operator"] for each in harness.dead_letters} <= {"checked", "counts"}
        let_go(strict)
        harness.replay_letters(harness.dead_letters)
        harness.push(WORDS)
        harness.end()
        harness.run()

        assert Counter(harness.results("counts")) == every_count(WORDS * 2)
        assert len(harness.dead_letters) == len(harness.replayed_letters) == 6


@pytest.mark.extended
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_neither_loses_nor_repeats_a_letter(runner, strict, point):
    with runner.harness(keyed(strict), parallelism=2) as harness:
        harness.push(WORDS)
        harness.run()
        let_go(strict)
        harness.fail_at(point)
        epoch = harness.replay_letters(harness.dead_letters)
        done = {each["letter"] for each in harness.replayed_letters}
        # Who asks again leaves out what is told to be replayed, as a driver does.
        left = [each for at, each in enumerate(harness.dead_letters) if str(at) not in done]
        harness.replay_letters(left)
        harness.end()
        harness.run()

        assert (epoch is None) == bool(harness.crash_count)
        assert len(done) in (0, 6)
        assert Counter(harness.results("counts")) == every_count(WORDS)


def test_a_letter_that_is_refused_again_leaves_one_that_names_it(runner, strict):
    with runner.harness(keyed(strict)) as harness:
        harness.push(["w1", "w2"])
        harness.run()
        harness.replay_letters(harness.dead_letters)

        first, second = harness.dead_letters
        assert (first["replay_of"], second["replay_of"]) == (None, "0")
        assert second["value"] == first["value"]
        assert [each["letter"] for each in harness.replayed_letters] == ["0"]


def test_records_of_windows_and_of_two_inputs_go_where_they_came_in(runner, strict):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        others = env.add_source(script_source(str)).uid("others")
        pairs = words.connect(others).key_by(str, str).process(Pairs(strict)).uid("pairs")
        pairs.on_error(dead_letter()).collect("pairs")
        windows = words.key_by(strict).on_error(dead_letter()).tumbling_window(1_000)
        windows.aggregate(Count()).uid("windows").collect("windows")
        batches = words.map_batches(lambda batch: [*map(strict, batch)]).uid("batches")
        batches.on_error(dead_letter()).collect("batches")

    with runner.harness(job, parallelism=2) as harness:
        harness.push(["w1", "w2"], source="words", timestamp=100)
        harness.push(["w4"], source="others", timestamp=100)
        harness.run()
        let_go(strict)
        letters = harness.dead_letters
        assert [each["input"] for each in letters if each["operator"] == "pairs"] == [0, 1]
        harness.replay_letters(letters)
        harness.end()
        harness.run()

        assert sorted(harness.results("pairs")) == [
            ("w1", "left"), ("w2", "left"), ("w4", "right"),
        ]  # fmt: skip
        assert [each.value for each in harness.results("windows")] == [1, 1]
        assert sorted(harness.results("batches")) == ["w1", "w2"]


def test_an_epoch_that_fails_is_an_answer_and_the_job_goes_on(runner, strict):
    def changed(letter):
        return {**letter, "value": "bm8gcGlja2xl"}

    with runner.harness(keyed(strict)) as harness:
        harness.push(["w1", "w2"])
        harness.run()
        let_go(strict)
        epoch = harness.epoch
        with raises(LETTERS_NOT_REPLAYED, match=DEAD_LETTER_UNREADABLE.code):
            harness.replay_letters(map(changed, harness.dead_letters))
        assert harness.epoch == epoch
        harness.replay_letters(harness.dead_letters)
        harness.push(["w2"])
        harness.end()
        harness.run()

        assert harness.results("counts") == [("w2", 1), ("w1", 1), ("w2", 2)]


def test_what_is_no_record_is_refused(runner):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        ringing = words.key_by(str).process_fn(Ringing()).uid("ringing")
        ringing.on_error(dead_letter()).collect("out")

    with runner.harness(job) as harness:
        harness.push(["a"], timestamp=5)
        harness.end()
        harness.run()
        (letter,) = harness.dead_letters
        for wrong in (
            letter, {**letter, "input": 0, "encoding": "raw"}, {**letter, "input": 3},
            {**letter, "operator": "gone", "input": 0},
        ):  # fmt: skip
            with raises(DEAD_LETTER_NOT_REPLAYABLE):
                harness.replay_letters([wrong])
