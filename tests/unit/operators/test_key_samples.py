"""The sample of keys: cheap, fair, and harmless."""

from itertools import cycle, islice

import pytest

from bicycle_runtime.operators.metrics import KeySampler
from bicycle_runtime.testing import Harness, script_source


@pytest.mark.parametrize("period", [2, 3, 8, 10, 64, 100])
def test_input_that_comes_in_rounds_shows_all_its_keys(period):
    sampler = KeySampler(lambda value: value)
    records = list(islice(cycle(range(period)), 61 * 400))
    for start in range(0, len(records), 777):
        sampler.see(records[start : start + 777])

    sample = sampler.take()
    assert sample.record_count == 400
    assert len(sample.keys) == min(period, 16)
    assert max(sample.keys.values()) <= 400 // period + 1
    assert sampler.take() is None


def test_small_batches_are_looked_at_as_one_stream():
    sampler = KeySampler(str.lower)
    for _ in range(610):
        sampler.see(["Ada"])

    assert sampler.take().keys == {"'ada'": 10}


def test_a_key_that_cannot_be_told_is_left_to_its_operator():
    sampler = KeySampler(lambda value: value.key)
    sampler.see([1, 2])

    assert sampler.take() is None


def keyed(stream):
    return stream.key_by(lambda pair: pair[0])


def test_an_epoch_tells_the_frequent_keys_of_operators_behind_key_by():
    def job(env):
        pairs = env.add_source(script_source()).uid("pairs").map(lambda pair: pair)
        keyed(pairs).reduce(lambda a, b: b).uid("last").collect("out")
        timed = pairs.assign_timestamps(lambda pair: pair[1])
        keyed(timed).tumbling_window(10).count().uid("folded-before").collect("counts")

    with Harness(job, parallelism=2) as harness:
        harness.push([("ada", n) if n % 2 else (f"user {n}", n) for n in range(6_100)])
        harness.run()
        stats = harness.epochs[0]

    assert set(stats.keys) == {"last"}  # What is folded before it travels burdens nobody.
    shares = {
        key: n / stats.keys["last"].record_count for key, n in stats.keys["last"].keys.items()
    }
    assert max(shares, key=shares.get) == "'ada'"
    assert shares["'ada'"] == pytest.approx(0.5, abs=0.05)
    counts = stats.subtask_counts["last"]
    assert sum(counts.values()) == 6_100
    assert max(counts.values()) > 1.4 * 6_100 / 2
