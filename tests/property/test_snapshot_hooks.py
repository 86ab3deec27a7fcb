"""State hooks of rich functions: each gets the newest snapshot once, whatever befalls the job."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import RichAsyncFunction
from tests.examples import examples
from tests.property.mishaps import ENGINES, FAULTS, LOSSES, RESCALES, befall

WORDS = ["a", "b", "a", "c", "d", "a", "b", "e", "a", "c", "f", "a"] * 4


class Counting(RichAsyncFunction[str, tuple[str, int]]):
    """Counts words; its attributes have other forms than its snapshots."""

    def __init__(self):
        self.counts: dict[str, int] = {}
        self.seen: list[str] = []
        self.hook_calls = 0

    def process(self, value, ctx):
        self.seen.append(value)
        self.counts[value] = self.counts.get(value, 0) + 1
        assert self.hook_calls <= 1
        return [(value, self.counts[value], self.seen.count(value))]


class Adding(Counting):
    def snapshot_state(self):
        return list(self.seen)

    def restore_state(self, state):
        self.hook_calls += 1
        self.seen += state
        for word in state:
            self.counts[word] = self.counts.get(word, 0) + 1


class Replacing(Counting):
    def snapshot_state(self) -> tuple[dict[str, int], list[str]]:
        return dict(self.counts), self.seen

    def restore_state(self, state):
        self.hook_calls += 1
        self.counts, self.seen = dict(state[0]), [*self.seen, *state[1]]


class Rebuilding(Replacing):
    """Puts a new dict in the place of the old one for each record."""

    def process(self, value, ctx):
        self.counts = dict(self.counts)
        return super().process(value, ctx)


class Waiting(Adding):
    async def snapshot_state(self):
        return list(self.seen)

    async def restore_state(self, state):
        Adding.restore_state(self, state)


class Multiplying(Counting):
    """Knows by itself how often it was called."""

    def snapshot_state(self):
        return self.seen

    def restore_state(self, state):
        self.hook_calls += 1
        self.seen = self.seen * 2 + state
        self.counts = dict(Counter(self.seen))


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from([Adding, Replacing, Rebuilding, Waiting, Multiplying]),
    rounds=st.lists(
        st.tuples(st.integers(1, 8), st.one_of(st.none(), LOSSES, RESCALES, FAULTS)),
        min_size=3,
        max_size=10,
    ),
    engine=ENGINES,
    parallelism=st.integers(1, 3),
)
def test_a_hook_gets_the_newest_snapshot_once(kind, rounds, engine, parallelism):
    def counted(env):
        words = env.add_source(script_source(str)).uid("words")
        words.key_by(str).process(kind()).uid("counts").collect("out")

    left = list(WORDS)
    with Harness(counted, engine=engine, parallelism=parallelism) as harness:
        for count, event in rounds:
            harness.push(left[:count])
            del left[:count]
            befall(harness, event)
            harness.run_epoch()
        harness.end()
        harness.run()

        assert Counter(harness.published) == Counter(
            (word, number, number)
            for word, count in Counter(WORDS[: len(WORDS) - len(left)]).items()
            for number in range(1, count + 1)
        )
