"""What a user who lacks one right is told: the resource, the operation, and how to allow it.

The broker has rights for what a test names only; everything else is free for all.
"""

import itertools
import logging

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bicycle_runtime.connectors.kafka.errors import KafkaAccessError
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk import Secret
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from tests.kafka.kafka_feeding import ONE, feed_secure, source_run, values
from tests.kafka.sink_runs import SinkRun, messages_in
from tests.kafka_broker import create_topic

EXACTLY_ONCE = {"guarantee": "exactly-once"}
CLUSTER = "kafka-cluster"  # Its type is called that of brokers by the client.
_names = itertools.count()


class Rights:
    """Topics of a broker, and what its user eve may do with them; the other users may do all."""

    def __init__(self, broker, password_file):
        self.broker = broker
        self.admin = AdminClient(broker.client_settings("broker"))
        self.password_file = password_file
        password_file.write_text(self.settings["sasl.password"])
        self.given = []

    @property
    def settings(self):
        return self.broker.client_settings("eve")

    @property
    def properties(self):
        """What a source or sink needs to log in as eve."""
        secret = {"secret": {"file": str(self.password_file)}}
        given = {**self.settings, "sasl.password": secret}
        return {name: value for name, value in given.items() if name != "bootstrap.servers"}

    def topic(self, *operations, **config):
        """Make a topic with which eve may do this and nothing else."""
        name = f"guarded-{next(_names)}"
        create_topic(self.admin, name, **config)
        self.allow(ResourceType.TOPIC, name, *operations)
        return name

    def allow(self, kind, name, *operations, who="eve"):
        rights = [self._acl(kind, name, operation, who) for operation in operations]
        if not rights:  # A right of somebody else is what takes eve's.
            rights = [self._acl(kind, name, AclOperation.READ, "broker")]
        self.given += rights
        for future in self.admin.create_acls(rights).values():
            future.result(30)
        eventually(lambda: all(map(self._is_given, rights)))

    def take(self, kind, name, operation):
        right = self._filter(self._acl(kind, name, operation, "eve"))
        [future] = self.admin.delete_acls([right]).values()
        assert len(future.result(30)) == 1
        eventually(lambda: not self.admin.describe_acls(right).result(30))

    def close(self):
        filters = [self._filter(right) for right in set(self.given)]
        for future in self.admin.delete_acls(filters).values() if filters else ():
            future.result(30)
        del self.admin  # It would cry on stderr when the broker ends.

    def _is_given(self, right):
        return self.admin.describe_acls(self._filter(right)).result(30)

    def _acl(self, kind, name, operation, who):
        pattern, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return AclBinding(kind, name, pattern, f"User:{who}", "*", operation, allowed)

    def _filter(self, right):
        return AclBindingFilter(
            right.restype, right.name, right.resource_pattern_type, right.principal, right.host,
            right.operation, right.permission_type,
        )  # fmt: skip


@pytest.fixture
def rights(secure_kafka_broker, tmp_path):
    rights = Rights(secure_kafka_broker, tmp_path / "password")
    yield rights
    rights.close()


@pytest.fixture
def reading(rights, tmp_path):
    """Make and start sources of eve; they are stopped after the test."""
    runs = []

    def start(topic, **options):
        properties = {"topics": [topic], "properties": rights.properties, **options}
        runs.append(source_run(rights.broker, tmp_path, **properties))
        return runs[-1].start()

    yield start
    for run in runs:
        run.source.stop()


@pytest.fixture
def writing(rights, tmp_path):
    """Make sinks of eve; they are stopped after the test."""
    runs = []

    def make(topic, **options):
        run = SinkRun(
            folder=tmp_path / "checkpoints", brokers=rights.broker.bootstrap, topic=topic,
            record_type=str, job=f"job-{topic}",
            properties={"properties": rights.properties, **options},
        )  # fmt: skip
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.sink.stop()


def lack(caught):
    """Return what an error says must be allowed, once it says how."""
    facts = caught.value.facts
    kind, _, name = facts["resource"].rpartition(" ")
    place = f"--{kind} {name}"
    if kind == "transactional id":  # For all writers at once.
        place = f"--transactional-id {name[:-1]} --resource-pattern-type prefixed"
    assert f"User:eve --operation {facts['operation']} {place}" in facts["hint"]
    return facts["resource"], facts["operation"]


def texts_in(rights, topic):
    found = messages_in(rights.broker.client_settings("broker"), topic)
    return [message.value.decode() for message in found]


# --- a source ------------------------------------------------------------------------------------


def test_a_topic_that_may_not_be_seen_ends_the_start(rights, reading):
    name = rights.topic()

    with pytest.raises(KafkaAccessError) as caught:
        reading(name)

    assert lack(caught) == (f"topic {name}", "Describe")


def test_a_topic_that_may_not_be_read_ends_the_task(rights, reading):
    name = rights.topic(AclOperation.DESCRIBE)
    feed_secure(rights.broker.client_settings("broker"), name, ["a"])
    run = reading(name)
    run.poll_for_input()

    with pytest.raises(KafkaAccessError) as caught:
        run.read(ONE)

    assert lack(caught) == (f"topic {name}", "Read")


def test_a_group_that_may_not_be_used_costs_the_report_only(rights, reading, caplog):
    name = rights.topic(AclOperation.READ)
    feed_secure(rights.broker.client_settings("broker"), name, ["a", "b"])
    rights.allow(ResourceType.GROUP, f"group-of-{name}")

    run = reading(name, group_id=f"group-of-{name}")
    with caplog.at_level(logging.WARNING):
        assert values(run.drain(count=2)) == ["a", "b"]
        run.restart()

    [told] = [r for r in caplog.records if r.message == "kafka_offsets_not_reported"]
    assert told.bicycle_fields["fix"].endswith(f"--operation Read --group group-of-{name}")


def test_the_group_of_those_who_read_markers_needs_no_right(rights, writing):
    rights.allow(ResourceType.GROUP, "bicycle-markers")
    name = rights.topic(AclOperation.WRITE)

    run = writing(name, **EXACTLY_ONCE).start()
    run.run(["a"])
    run = run.restart()
    run.run(["b"])
    run.sink.stop()

    assert texts_in(rights, name) == ["a", "b"]


# --- a sink at its start -------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_topic_that_may_not_be_written_ends_the_start(rights, writing, guarantee):
    name = rights.topic(AclOperation.READ)

    with pytest.raises(KafkaAccessError) as caught:
        writing(name, guarantee=guarantee).start()

    assert lack(caught) == (f"topic {name}", "Write")


@pytest.mark.parametrize(
    ("given", "missing"),
    [(AclOperation.WRITE, "Read"), (AclOperation.READ, "Write"), (AclOperation.ALTER, "Read")],
)
def test_markers_that_may_not_be_read_and_written_end_the_start(rights, writing, given, missing):
    name = rights.topic(AclOperation.WRITE)
    markers = rights.topic(given, cleanup_policy="compact")

    with pytest.raises(KafkaAccessError) as caught:
        writing(name, marker_topic=markers, **EXACTLY_ONCE).start()

    assert lack(caught) == (f"topic {markers}", missing)


def test_a_topic_that_may_not_be_made_ends_the_start_before_any_topic_is_made(rights, tmp_path):
    allowed, refused = f"allowed-{next(_names)}", f"refused-{next(_names)}"
    rights.allow(ResourceType.BROKER, CLUSTER, AclOperation.DESCRIBE)
    rights.allow(ResourceType.TOPIC, allowed, AclOperation.CREATE, AclOperation.WRITE)
    rights.allow(ResourceType.TOPIC, refused, AclOperation.WRITE)

    def job(env):
        stream = env.from_collection(["a"])
        for name in (allowed, refused):
            sink = KafkaSinkBuilder[str](rights.broker.bootstrap, name).create_topic()
            sink.tls(ca_location=rights.settings["ssl.ca.location"])
            sink.sasl("SCRAM-SHA-512", "eve", Secret.file(rights.password_file))
            sink.delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            stream.sink_to(sink).uid(name)

    with pytest.raises(KafkaAccessError) as caught, Harness(job, real_sinks=[allowed, refused]):
        pass

    assert lack(caught) == (f"topic {refused}", "Create")
    assert not {allowed, refused} & rights.admin.list_topics(timeout=30).topics.keys()


# --- a sink at work ------------------------------------------------------------------------------


def test_a_right_that_is_taken_ends_a_task_that_writes_at_once(rights, writing):
    name = rights.topic(AclOperation.WRITE, AclOperation.DESCRIBE)
    run = writing(name).start()
    rights.take(ResourceType.TOPIC, name, AclOperation.WRITE)

    with pytest.raises(KafkaAccessError) as caught:
        run.stage(1, [["a"]])

    assert lack(caught) == (f"topic {name}", "Write")
    assert caught.value.facts["kept_epoch"] is None


def test_a_right_that_is_taken_keeps_the_sealed_epoch_until_it_is_given_again(rights, writing):
    name = rights.topic(AclOperation.WRITE, AclOperation.DESCRIBE)
    run = writing(name, **EXACTLY_ONCE).start()
    run.run(["a"])
    run.seal(["b"])
    rights.take(ResourceType.TOPIC, name, AclOperation.WRITE)

    with pytest.raises(KafkaAccessError) as caught:
        run.publish()
    rights.allow(ResourceType.TOPIC, name, AclOperation.WRITE)
    run.restart().sink.stop()

    assert lack(caught) == (f"topic {name}", "Write")
    assert caught.value.facts["kept_epoch"] == 2
    assert texts_in(rights, name) == ["a", "b"]


def test_a_transactional_id_that_may_not_be_used_keeps_the_sealed_epoch(rights, writing):
    name = rights.topic(AclOperation.WRITE)
    run = writing(name, transactional_id_prefix=name, **EXACTLY_ONCE).start()
    rights.allow(ResourceType.TRANSACTIONAL_ID, f"{name}-0")
    run.seal(["a"])

    with pytest.raises(KafkaAccessError) as caught:
        run.publish()
    rights.allow(ResourceType.TRANSACTIONAL_ID, f"{name}-0", AclOperation.WRITE)
    run.restart().sink.stop()

    assert lack(caught) == (f"transactional id {name}-0", "Write")
    assert caught.value.facts["kept_epoch"] == 1
    assert texts_in(rights, name) == ["a"]


@pytest.mark.parametrize(
    ("kept", "taken"),
    [(AclOperation.READ, AclOperation.WRITE), (AclOperation.WRITE, AclOperation.READ)],
)
def test_markers_that_may_not_be_used_any_more_keep_the_sealed_epoch(rights, writing, kept, taken):
    name = rights.topic(AclOperation.WRITE)
    markers = rights.topic(kept, taken, cleanup_policy="compact")
    run = writing(name, marker_topic=markers, **EXACTLY_ONCE).start()
    run.seal(["a"])
    rights.take(ResourceType.TOPIC, markers, taken)

    with pytest.raises(KafkaAccessError) as caught:
        run.publish()
    rights.allow(ResourceType.TOPIC, markers, taken)
    run.restart().sink.stop()

    assert lack(caught) == (f"topic {markers}", taken.name.title())
    assert caught.value.facts["kept_epoch"] == 1
    assert texts_in(rights, name) == ["a"]
