"""A savepoint of a job that writes to Kafka, begun with under another name and elsewhere."""

import itertools
from dataclasses import replace

import pytest

from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_HISTORY_AHEAD,
    KAFKA_OTHER_PUBLISHER,
)
from bicycle_runtime.connectors.registry import create_sink
from tests.kafka.sink_runs import SinkRun, values_in
from tests.raising import raises

_names = itertools.count()


@pytest.fixture
def run(kafka_broker, topic, tmp_path):
    """A job that has published two epochs."""
    job = f"saved-{next(_names)}"
    run = SinkRun(
        folder=tmp_path / job, brokers=kafka_broker.bootstrap, topic=topic(), job=job,
        properties={"guarantee": "exactly-once"}, record_type=str,
    ).start()  # fmt: skip
    run.run(["1"])
    run.run(["2"])
    yield run
    run.sink.stop()


def begun_with(run, epoch, state, tmp_path, **changes):
    """Return another job that begins with a savepoint of a run; it is not started yet."""
    other = replace(
        run, folder=tmp_path / "other", job="other", epoch=epoch, state=state, **changes
    )
    other.sink = create_sink(other.spec())
    return other


def test_a_job_of_another_name_goes_on_exactly_once_and_the_old_one_cannot(
    run, kafka_broker, tmp_path
):
    run.sink.stop()
    other = begun_with(run, run.epoch, run.state, tmp_path).start()
    other.run(["3"])
    other = other.restart()
    other.run(["4"])
    other.sink.stop()

    with raises(KAFKA_HISTORY_AHEAD) as caught:
        run.restart()

    assert (caught.value.facts["epoch"], caught.value.facts["found_epoch"]) == (2, 4)
    assert values_in(kafka_broker.bootstrap, run.topic) == ["1", "2", "3", "4"]


def test_a_job_that_begins_behind_what_the_old_one_published_is_refused(run, tmp_path):
    epoch, state = run.epoch, run.state
    run.run(["3"])
    other = begun_with(run, epoch, state, tmp_path)

    with raises(KAFKA_HISTORY_AHEAD) as caught:
        other.start()
    other.sink.stop()

    assert caught.value.facts["found_epoch"] == 3


def test_a_job_is_told_so_before_anything_of_the_savepoint_is_copied(run, topic, tmp_path):
    epoch, state = run.epoch, run.state
    run.run(["3"])
    other = begun_with(run, epoch, state, tmp_path)

    with raises(KAFKA_HISTORY_AHEAD) as caught:
        other.sink.check(other.services, state)

    assert caught.value.facts["found_epoch"] == 3
    again = {**run.properties, "on_rewind": "publish_again"}
    for changes, last in (
        ({}, run.state),
        ({"topic": topic()}, state),
        ({"properties": again}, state),
    ):
        may_begin = begun_with(run, epoch, state, tmp_path, **changes)
        may_begin.sink.check(may_begin.services, last)


def test_of_two_jobs_that_go_on_from_one_savepoint_the_other_is_shut_out(
    run, kafka_broker, tmp_path
):
    other = begun_with(run, run.epoch, run.state, tmp_path).start()
    other.run(["3"])

    run.seal(["3, too"])
    with raises(KAFKA_OTHER_PUBLISHER):
        run.publish()
    other.run(["4"])
    other.sink.stop()

    assert values_in(kafka_broker.bootstrap, run.topic) == ["1", "2", "3", "4"]


def test_a_job_that_writes_to_another_topic_is_a_job_of_its_own(run, topic, kafka_broker, tmp_path):
    elsewhere = topic()
    epoch, state = run.epoch, run.state
    run.run(["3"])
    other = begun_with(run, epoch, state, tmp_path, topic=elsewhere).start()
    other.run(["3, too"])
    run.run(["4"])
    other.sink.stop()

    assert values_in(kafka_broker.bootstrap, run.topic) == ["1", "2", "3", "4"]
    assert values_in(kafka_broker.bootstrap, elsewhere) == ["3, too"]
