"""A version in the shadow of a job between topics: what is committed has each result once."""

import itertools
from functools import partial

import pytest

from bicycle_sdk import DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder
from tests.kafka.kafka_feeding import feed
from tests.kafka.sink_runs import values_in
from tests.unit.engine.replay.pairs import Pair

_names = itertools.count()


def counting(env, *, brokers, source, target, by):
    """Count texts by key; each count says which version made it."""
    texts = env.add_source(KafkaSourceBuilder[str](brokers, source).group_id(target).bounded()).uid(
        "in"
    )
    counts = texts.key_by(lambda text: text).count().uid("count")
    told = counts.map(lambda pair: f"{pair[0]} {pair[1]} by {by}").uid("told")
    sink = KafkaSinkBuilder[str](brokers, target)
    sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).transactional_id_prefix(target)
    told.sink_to(sink).uid("out")


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("crash", ["none", "after the seal", "before the turn"])
def test_each_count_is_committed_once(kafka_broker, topic, tmp_path, backend, crash):
    brokers, source, target = kafka_broker.bootstrap, topic(partitions=2), topic()
    words = [f"w{number % 5}" for number in range(200)]
    for partition in range(2):
        feed(kafka_broker, source, words[partition::2], partition=partition)
    build = partial(counting, brokers=brokers, source=source, target=target)
    pair = Pair(tmp_path, partial(build, by="1"), partial(build, by="2"), state_backend=backend)

    with pair.loop() as loop:
        pair.run(3, loop)
        shadow = pair.shadow()
        pair.run(4, loop)
        pair.catch_up(shadow)
        pair.run(2, loop)
        loop.finish(is_finished=False)
    pair.catch_up(shadow)
    pair.executor.stop()
    if crash == "after the seal":  # What is linked and not sealed is garbage; it is done again.
        pair.storage.delete(f"epochs/{pair.take_over():012}.manifest")
    if crash == "before the turn":  # The former version runs once more, and the shadow is too old.
        with pair.loop(run_id="again") as loop:
            pair.run(1, loop)
            loop.finish(is_finished=False)
    at = pair.take_over()
    pair.finish(pair.other)

    found = [text.rpartition(" by ") for text in values_in(brokers, target)]
    wanted = [f"w{number % 5} {number // 5 + 1}" for number in range(200)]
    assert sorted(text for text, _, _ in found) == sorted(wanted)
    assert {by for _, _, by in found} == {"1", "2"}
    assert (at is None) == (crash == "before the turn")
