"""A job that is down for longer than its transactions, and than its broker remembers them.

It is killed between the seal of an epoch and its publication, or in the middle of one. Meanwhile
the broker aborts what was open, and forgets the transactional id and its producer.
"""

from __future__ import annotations

import signal
import threading
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.testing import bundle_of
from bicycle_sdk import (
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    StreamEnvironment,
)
from tests.kafka.kafka_feeding import feed
from tests.kafka.light_driver import LightSite
from tests.kafka.sink_runs import values_in
from tests.kafka_broker import create_topic
from tests.waiting import until

TIMEOUT_S, FORGETS_S, LOOKS_S = 2, 5, 1
SETTINGS = {
    "transaction.max.timeout.ms": f"{TIMEOUT_S}000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": f"{LOOKS_S}000",
    "transactional.id.expiration.ms": f"{FORGETS_S}000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": f"{LOOKS_S}000",
    "producer.id.expiration.ms": f"{FORGETS_S}000",
    "producer.id.expiration.check.interval.ms": f"{LOOKS_S}000",
}
FAULTS = ("after_seal", "transaction_begun", "transaction_marked", "transaction_committed")


@pytest.fixture
def broker(new_kafka_broker):
    broker = new_kafka_broker(extra=SETTINGS)
    for topic in ("in", "out"):
        create_topic(AdminClient(broker.client_settings()), topic)
    return broker


@pytest.fixture
def site(broker, tmp_path):
    env = StreamEnvironment()
    source = KafkaSourceBuilder[str](broker.bootstrap, "in")
    sink = KafkaSinkBuilder[str](broker.bootstrap, "out")
    sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    sink.transaction_timeout(timedelta(seconds=TIMEOUT_S)).recovery_budget(timedelta(seconds=1))
    env.add_source(source).uid("source").sink_to(sink).uid("sink")
    site = LightSite(tmp_path / "site", {}, plugin="pass", bundle=bundle_of(env).to_bytes())
    yield site
    site.kill_everything()


@pytest.mark.crash
def test_downtime_of_any_length_loses_and_doubles_nothing(broker, site):
    expected = []
    for number, fault in enumerate(FAULTS):
        life = site.start(faults=f"{fault}@2=kill", parallelism=1, records_max=5)
        values = [f"{number}-{each:02}" for each in range(20)]
        feed(broker, "in", values)
        expected += values
        assert life.wait() == -signal.SIGKILL, life.stderr
        # Time is what is tested: nothing tells that a broker has forgotten a transactional id.
        threading.Event().wait(max(2 * TIMEOUT_S, FORGETS_S) + 2 * LOOKS_S)

    life = site.start(parallelism=1)
    until(lambda: len(values_in(broker.bootstrap, "out")) >= len(expected), lambda: life.stderr)
    site.stop(life)

    assert values_in(broker.bootstrap, "out") == expected
