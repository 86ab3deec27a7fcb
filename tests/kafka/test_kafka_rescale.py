"""Exactly once through changes of the parallelism: each writer's epochs, and none twice."""

from collections import Counter

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from tests.kafka.sink_runs import messages_in

STEPS = ((6, None), (1, "before_publish"), (5, "transaction_committed"), (2, None))
WORDS = [f"w{number}" for number in range(30)]


def counting(broker, target):
    def job(env):
        sink = KafkaSinkBuilder[str](broker.bootstrap, target)
        sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).transactional_id_prefix(target)
        words = env.add_source(script_source(str)).uid("words").key_by(str).count().uid("count")
        words.map(lambda found: f"{found[0]} {found[1]}").uid("text").sink_to(sink).uid("out")

    return job


@pytest.mark.core
def test_a_sink_with_more_and_fewer_writers_publishes_each_epoch_once(kafka_broker, topic):
    target = topic(partitions=2)
    round_count = 0
    with Harness(counting(kafka_broker, target), parallelism=2, real_sinks=["out"]) as harness:
        for width, fault in (
            (6, None),
            (1, "before_publish"),
            (5, "transaction_committed"),
            (2, None),
        ):
            harness.push(WORDS)
            harness.run_epoch()
            round_count += 1
            if fault is not None:
                harness.fail_at(fault)
            harness.rescale_live(width)
            harness.push(WORDS)
            harness.run()
            round_count += 1
        assert harness.crash_count == 2
        assert harness.read_count() >= round_count * len(WORDS)
        harness.end()
        harness.run()

    found = Counter(
        message.value.decode() for message in messages_in(kafka_broker.bootstrap, target)
    )
    assert found == Counter(f"{word} {n + 1}" for word in WORDS for n in range(round_count))
