"""Kafka's clients: their settings, which show no secret, and messages that cannot be delivered."""

import asyncio
import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import OptionError
from bicycle_sdk.options import from_mapping
from bicycle_sdk.secrets import Secret
from bicycle_streams import StreamConnectError, StreamError, StreamKey, connect
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.consuming import Subscription
from bicycle_streams.kafka import clients
from bicycle_streams.kafka.clients import ClientSettings
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.consuming import KafkaConsumer
from bicycle_streams.kafka.failures import LastError
from bicycle_streams.kafka.options import KafkaOptions, ProgramProperties
from bicycle_streams.kafka.producing import PURGED, DeliveryFailures, SendingClient
from bicycle_streams.kafka.sending import KafkaSender
from bicycle_streams.messages import OutgoingMessage

NOBODY = "kafka://127.0.0.1:1"
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "username": "ada"}


def opened(**options):
    async def scenario():
        async with connect(NOBODY, {"connect_timeout_ms": 300, **options}):
            raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError) as caught:
        asyncio.run(scenario())
    return caught.value


@pytest.mark.parametrize(
    "given",
    [
        {"password": "hunter22"},
        {
            "properties": ProgramProperties(
                {"sasl.oauthbearer.client.secret": "hunter22", "sasl.password": "x"}
            )
        },
    ],
)
def test_the_text_of_an_error_shows_no_secret(given):
    cluster = Cluster(StreamerUri.parse(NOBODY), KafkaOptions(**LOGIN, **given))

    found = cluster.redacted(KafkaError(KafkaError._AUTHENTICATION, "login with hunter22 failed"))

    assert found == "login with *** failed"


def test_a_transaction_can_begin_after_one_that_was_canceled_while_it_began():
    mock = ProgramProperties({"test.mock.num.brokers": "1"})  # Each client has such a broker.

    async def begin(producer):
        async with producer.transaction():
            return True

    async def scenario():
        words = {"transactional_id": "t", "properties": mock}
        async with connect(NOBODY, words) as streamer:
            producer = await streamer.create_producer("a")
            beginning = asyncio.create_task(begin(producer))
            await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.wait([beginning])
            return beginning.cancelled(), await begin(producer)

    assert asyncio.run(scenario()) == (True, True)


def test_the_last_error_of_a_connection_is_kept_unless_brokers_are_down_and_a_refusal_for_good():
    codes = (KafkaError._AUTHENTICATION, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    refused, closed, down = map(KafkaError, codes)
    last = LastError()

    found = []
    for error in (down, closed, down, refused, closed):
        last.note(error)
        found.append((last.error, last.refusal))

    assert found == [
        (None, None), (closed, None), (closed, None), (refused, refused), (refused, refused),
    ]  # fmt: skip


def test_a_part_of_a_secret_with_a_comma_is_not_shown():
    with pytest.raises(OptionError, match="item 2 has no '='") as caught:
        connect(NOBODY, {**LOGIN, "properties": "sasl.password=hunter,22secret"})

    assert "22secret" not in f"{caught.value.to_json()}"


def test_properties_of_a_client_have_one_notation_in_programs_and_jobs(monkeypatch):
    monkeypatch.setenv("PASSWORD_OF_ADA", "hunter22")
    given = {"linger.ms": 7, "sasl.password": Secret.env("PASSWORD_OF_ADA"), "check.crcs": False}
    text = "linger.ms=7, check.crcs=false, sasl.password=env:PASSWORD_OF_ADA"

    for words in ({"properties": given}, {"properties": text}, {"client_settings": text}):
        cluster = Cluster(StreamerUri.parse(NOBODY), from_mapping(KafkaOptions, {**LOGIN, **words}))
        names = ("linger.ms", "check.crcs", "sasl.password")
        found = {name: cluster.config_value(name, {}) for name in names}
        assert found == {"linger.ms": "7", "check.crcs": "false", "sasl.password": "hunter22"}
        assert cluster.redacted("login with hunter22 failed") == "login with *** failed"


def test_files_for_tls_are_properties_of_the_client():
    files = {"ca_file": "a.pem", "cert_file": "b.pem", "key_file": "c.pem"}
    cluster = Cluster(StreamerUri.parse(NOBODY), KafkaOptions(security_protocol="SSL", **files))
    names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")

    assert [cluster.config_value(name, {}) for name in names] == ["a.pem", "b.pem", "c.pem"]


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file", "password"])
def test_an_option_that_the_protocol_ignores_is_refused(name):
    error = opened(**{name: "hunter22"})

    assert error.code == "BIC-2683"
    assert "has no effect while security.protocol is PLAINTEXT" in error.summary
    assert "hunter22" not in f"{error.to_json()}"


def test_two_names_of_one_setting_are_refused():
    error = opened(properties={"linger.ms": "1", "queue.buffering.max.ms": "2"})

    assert error.code == "BIC-2683"
    assert "alias of queue.buffering.max.ms" in error.summary


def test_a_setting_that_only_a_consumer_refuses_is_reported_with_its_name():
    class Refusing:
        def __init__(self, settings):
            raise ValueError('bad value for "session.timeout.ms"')

    cluster = Cluster(StreamerUri.parse(NOBODY), KafkaOptions())

    with pytest.raises(StreamConnectError, match=r"session\.timeout\.ms") as caught:
        cluster.open_client(Refusing, {"session.timeout.ms": 1})
    assert caught.value.code == "BIC-2683"


@pytest.mark.parametrize("given", [{}, {"check.crcs": "false"}])
def test_every_consumer_checks_batches_unless_the_user_turns_it_off(monkeypatch, given):
    monkeypatch.setattr(clients, "Consumer", dict)

    found = ClientSettings(plain=given).open(dict, {"group.id": "g"})

    assert found["check.crcs"] == given.get("check.crcs", "true")


def test_a_setting_is_found_under_its_other_name():
    settings = ClientSettings(plain={"message.timeout.ms": "7"})

    assert settings.value("delivery.timeout.ms") == "7"
    assert settings.value("linger.ms") is None


def test_messages_fail_after_their_timeout_although_clients_are_replaced(monkeypatch):
    monkeypatch.setattr("bicycle_streams.kafka.producing._SILENCE_S", 0.1)
    made = []

    def make():
        made.append(Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}))
        return made[-1]

    sending = SendingClient(make, again=PURGED, timeout_s=1.5, clock=SystemClock())
    failures = DeliveryFailures(sending)
    headers = [("name", b"text")]
    sending.client.produce("t", b"x", on_delivery=failures.taking(headers), headers=headers)
    deadline = time.monotonic() + 30

    while sending.flush(0.05, 0):
        assert time.monotonic() < deadline, "the message waits for ever"

    assert len(made) > 2
    assert failures.count == 1
    assert failures.first.code() == KafkaError._MSG_TIMED_OUT


def test_a_topic_that_no_broker_describes_lets_no_message_wait(monkeypatch):
    def fail(_cluster, _topic):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker"))

    monkeypatch.setattr(Cluster, "partition_count", fail)

    async def scenario():
        sender = KafkaSender(Cluster(StreamerUri.parse(NOBODY), KafkaOptions()), "at-least-once", 1)
        receipt = sender.send(OutgoingMessage(StreamKey("a"), b""))
        async with asyncio.timeout(60):
            for waiting in (receipt, sender.close()):
                with pytest.raises(StreamError, match="no broker"):
                    await waiting

    asyncio.run(scenario())


class PositionedClient:
    """A consumer of two partitions, of which the group has a position in the first."""

    def __init__(self):
        self.moved = {}

    def assignment(self):
        return [TopicPartition("a", number) for number in range(2)]

    def committed(self, partitions, _timeout_s):
        offsets = {0: 5, 1: OFFSET_INVALID}
        return [TopicPartition(p.topic, p.partition, offsets[p.partition]) for p in partitions]

    def seek(self, partition):
        self.moved[partition.partition] = partition.offset

    def assign(self, partitions):
        self.moved |= {each.partition: each.offset for each in partitions}


@pytest.mark.parametrize(
    ("mode", "begins", "begin"),
    [
        ("load-balanced", {}, OFFSET_BEGINNING),
        ("resumable", {("a", 0): 3, ("a", 1): 7}, 7),
    ],
)
def test_partitions_without_a_position_go_back_to_their_begin(monkeypatch, mode, begins, begin):
    monkeypatch.setattr(KafkaConsumer, "_make_client", lambda _: PositionedClient())
    cluster = Cluster(StreamerUri.parse(NOBODY), KafkaOptions())
    consumer = KafkaConsumer(cluster, Subscription(keys=(StreamKey("a"),), mode=mode, group="g"))
    consumer._begins = begins

    asyncio.run(consumer.go_back())

    assert consumer._client.moved == {0: 5, 1: begin}
