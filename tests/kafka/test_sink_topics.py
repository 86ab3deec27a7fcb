"""Topics of sinks that are missing when a job starts, or go away while it runs."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_DELIVERY_FAILED,
    KAFKA_PUBLISH_REFUSED,
    KAFKA_TOPIC_MISSING,
    KAFKA_TOPIC_UNSUITABLE,
)
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk import DeliveryGuarantee, KafkaSinkBuilder
from tests.kafka.sink_runs import SinkRun, values_in
from tests.kafka_broker import create_topic
from tests.raising import raises

_names = itertools.count()
# The time after which a delivery is given up, so that a loaded machine can answer in time.
SOON_S = 60


@pytest.fixture
def run_of(kafka_broker, tmp_path):
    """Make runs of sinks with names of their own, and stop them at the end."""
    runs = []

    def make(topic, **properties):
        job = f"kept-{next(_names)}"
        run = SinkRun(
            folder=tmp_path / job, brokers=kafka_broker.bootstrap, topic=topic, job=job,
            properties=properties, record_type=str,
        )  # fmt: skip
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.sink.stop()


@pytest.fixture
def delete(kafka_admin):
    """Delete a topic, and wait until it is gone."""

    def remove(name):
        kafka_admin.delete_topics([name])[name].result(30)
        eventually(lambda: name not in kafka_admin.list_topics(timeout=5).topics)

    return remove


def refusal(publish):
    """Return the error of a publication, and how long it took."""
    started = time.monotonic()
    with raises(KAFKA_PUBLISH_REFUSED) as caught:
        publish()
    return caught.value.facts, time.monotonic() - started


# --- while the job runs --------------------------------------------------------------------------


def test_a_topic_that_is_deleted_is_told_soon_and_what_is_sealed_is_published_when_it_is_back(
    run_of, topic, delete, kafka_broker, kafka_admin
):
    out, other, markers = topic(), topic(), topic(cleanup_policy="compact")
    runs = [
        run_of(out, guarantee="exactly-once").start(),
        run_of(other, guarantee="exactly-once", marker_topic=markers).start(),
    ]
    for run in runs:
        run.run(["before"])
        run.seal(["sealed"])
    for name in (out, markers):
        delete(name)

    with ThreadPoolExecutor(len(runs)) as pool:
        [(first, first_s), (second, second_s)] = pool.map(refusal, [run.publish for run in runs])
    with raises(KAFKA_TOPIC_MISSING):
        runs[0].restart()
    create_topic(kafka_admin, out)
    for run in runs:
        run.restart().sink.stop()

    assert (first["topic"], second["topic"]) == (out, markers)
    assert (first["epoch"], second["epoch"]) == (2, 2)
    assert max(first_s, second_s) < SOON_S
    assert values_in(kafka_broker.bootstrap, out) == ["sealed"]
    assert values_in(kafka_broker.bootstrap, other) == ["before", "sealed"]


def test_a_task_that_writes_at_once_to_a_topic_that_was_deleted_fails_soon(run_of, topic, delete):
    out = topic()
    run = run_of(out).start()
    run.stage(1, [["a"]])
    delete(out)

    started = time.monotonic()
    with raises(KAFKA_DELIVERY_FAILED) as caught:
        run.stage(2, [["b"]])

    assert time.monotonic() - started < SOON_S
    assert (caught.value.facts["topic"], caught.value.facts["epoch"]) == (out, 2)


# --- at the start --------------------------------------------------------------------------------


def job_of(broker, made, *others):
    """Return a job with a sink that makes its topic, in front of other sinks."""

    def job(env):
        stream = env.from_collection(["a"])
        for name, plan in ((made, {}), *others):
            sink = KafkaSinkBuilder[str](broker.bootstrap, name)
            sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            stream.sink_to(sink if plan is None else sink.create_topic(**plan)).uid(name)

    return job


def test_a_topic_that_is_missing_for_one_sink_leaves_no_topic_of_another(kafka_broker, kafka_admin):
    made, missing = f"made-{next(_names)}", f"missing-{next(_names)}"
    there = topics_of(kafka_admin)

    job = job_of(kafka_broker, made, (missing, None))
    with raises(KAFKA_TOPIC_MISSING) as caught, Harness(job, real_sinks=[made, missing]):
        pass

    assert caught.value.facts["vertex"] == missing
    assert topics_of(kafka_admin) == there


def test_a_topic_that_cannot_be_made_leaves_no_topic_of_another(kafka_broker, kafka_admin):
    made, greedy = f"made-{next(_names)}", f"greedy-{next(_names)}"
    there = topics_of(kafka_admin)

    job = job_of(kafka_broker, made, (greedy, {"replication_factor": 3}))
    with (
        raises(KAFKA_TOPIC_UNSUITABLE) as caught,
        Harness(job, real_sinks=[made, greedy]),
    ):
        pass

    assert caught.value.facts["topic"] == greedy
    assert topics_of(kafka_admin) == there


def topics_of(admin):
    return set(admin.list_topics(timeout=10).topics)
