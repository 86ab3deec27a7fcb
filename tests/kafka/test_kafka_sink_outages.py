"""The Kafka sink while its broker is away: killed and started again, or paused, in each call."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.base.faults import arm_fault, disarm_faults
from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_DELIVERY_FAILED,
    KAFKA_OTHER_PUBLISHER,
    KAFKA_PUBLISH_TIMED_OUT,
)
from tests.kafka.sink_runs import SinkRun, values_in
from tests.kafka_broker import broker_in, create_topic, end
from tests.raising import raises
from tests.waiting import PATIENCE_S

OPEN_POINTS = ("transaction_begun", "transaction_produced", "transaction_marked")
EPOCHS = [[f"{epoch}-{number:04}" for number in range(500)] for epoch in range(5)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that these tests may break; each leaves it running."""
    broker = broker_in(tmp_path_factory.mktemp("breakable"))
    broker.start()
    yield broker
    end(broker)


@pytest.fixture
def run(broker, tmp_path):
    name = tmp_path.name
    create_topic(AdminClient(broker.client_settings()), name, partitions=2)
    properties = {
        "guarantee": "exactly-once",
        "transaction_timeout_ms": 2_000,
        "recovery_budget_ms": 1_000,
    }
    run = SinkRun(
        folder=tmp_path, brokers=broker.bootstrap, topic=name, job=name, record_type=str,
        properties=properties, payloads={"key": lambda value: value[:3]},
    )  # fmt: skip
    yield run.start()
    disarm_faults()
    run.sink.stop()


class Publishing(threading.Thread):
    """A publication, or something else that waits, in a thread, with what it raised."""

    def __init__(self, run: SinkRun, act: Callable[[], object] | None = None) -> None:
        super().__init__(daemon=True)
        self.act = act or run.publish
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread.
            self.error = error

    def outlive(self, seconds: float) -> None:
        """See that it waits for the broker at least so long."""
        self.join(seconds)
        assert self.is_alive()
        assert self.error is None

    def finish(self) -> None:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def expected(count):
    return sorted(value for epoch in EPOCHS[:count] for value in epoch)


@pytest.mark.parametrize("point", OPEN_POINTS)
def test_a_broker_that_is_killed_within_a_transaction_delays_the_epoch_only(run, broker, point):
    run.run(EPOCHS[0])
    run.seal(EPOCHS[1])
    arm_fault(point, act=broker.kill)

    publishing = Publishing(run)
    publishing.start()
    publishing.outlive(1)
    broker.start()
    publishing.finish()
    run.run(EPOCHS[2])

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(3)


@pytest.mark.parametrize("point", OPEN_POINTS)
def test_a_broker_that_stands_still_for_longer_than_a_transaction_delays_the_epoch_only(
    run, broker, point
):
    run.run(EPOCHS[0])
    run.seal(EPOCHS[1])
    arm_fault(point, act=broker.pause)

    publishing = Publishing(run)
    publishing.start()
    try:
        publishing.outlive(6)
    finally:
        broker.resume()
    publishing.finish()
    run.run(EPOCHS[2])

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(3)


def test_a_broker_that_is_killed_right_after_the_commit_delays_the_next_epoch_only(run, broker):
    run.run(EPOCHS[0])
    run.seal(EPOCHS[1])
    arm_fault("transaction_committed", act=broker.kill)

    run.publish()
    run.seal(EPOCHS[2])
    publishing = Publishing(run)
    publishing.start()
    publishing.outlive(1)
    broker.start()
    publishing.finish()

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(3)


def test_a_broker_that_is_away_when_the_first_transaction_begins_delays_it_only(run, broker):
    run.seal(EPOCHS[0], EPOCHS[1])
    broker.kill()

    publishing = Publishing(run)
    publishing.start()
    publishing.outlive(1)
    broker.start()
    publishing.finish()

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(2)


def test_patience_ends_with_the_option_and_the_output_is_kept(run, broker):
    impatient = {**run.properties, "publish_timeout_ms": 1_500}
    again = run.restart(properties=impatient)
    again.seal(EPOCHS[0])
    broker.pause()
    try:
        with raises(KAFKA_PUBLISH_TIMED_OUT) as caught:
            again.publish()
    finally:
        broker.resume()
    again = again.restart(properties=run.properties)
    again.sink.stop()

    assert caught.value.facts["waited_ms"] >= 1_500
    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(1)


def test_a_publication_that_waits_gives_up_soon_when_the_job_must_end(run, broker):
    run.seal(EPOCHS[0])
    broker.pause()
    publishing = Publishing(run)
    publishing.start()
    try:
        publishing.outlive(1)
        run.sink.interrupt()
        publishing.join(5)
        assert isinstance(publishing.error, PublishInterruptedError)
    finally:
        broker.resume()
    run.restart().sink.stop()

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(1)


def test_a_task_that_writes_at_once_waits_for_a_broker_that_was_killed(run, broker):
    run = run.restart(properties={})
    run.stage(1, [EPOCHS[0]])
    broker.kill()

    writing = Publishing(run, lambda: run.stage(2, [EPOCHS[1]]))
    writing.start()
    writing.outlive(1)
    broker.start()
    writing.finish()
    run.sink.stop()

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(2)


def test_a_task_that_writes_at_once_fails_when_its_patience_ends_and_can_be_run_again(run, broker):
    run = run.restart(properties={"publish_timeout_ms": 2_000})
    broker.pause()
    try:
        with raises(KAFKA_DELIVERY_FAILED) as caught:
            run.stage(1, [EPOCHS[0]])
    finally:
        broker.resume()
    run.stage(1, [EPOCHS[0]], attempt="b")
    run.sink.stop()

    assert caught.value.facts["failed_count"] >= 1
    assert set(values_in(broker.bootstrap, run.topic)) == set(expected(1))


def test_two_runs_that_fence_each_other_end_with_one_of_them_told(run, broker):
    run.run(EPOCHS[0])
    other = run.restart()
    other.job = run.job
    zombie = other.zombie()

    other.run(EPOCHS[1])
    zombie.seal(EPOCHS[1])
    zombie.publish()  # The same epoch as the other's: it is there.
    other.run(EPOCHS[2])
    other.run(EPOCHS[3])
    zombie.seal(["never seen"])
    with raises(KAFKA_OTHER_PUBLISHER):
        zombie.publish()
    zombie.sink.stop()
    other.sink.stop()

    assert sorted(values_in(broker.bootstrap, run.topic)) == expected(4)
