"""Fixtures with a real Kafka broker, for every test of this repository and of its plugins.

The broker is that of `bicycle dev kafka`. Its jars are fetched once into the cache of the machine's
home. A broker that cannot be had is a failure: nothing is skipped.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.cli.parameters import home
from bicycle_runtime.dev import kafka_topics
from bicycle_runtime.dev.broker_options import BrokerOptions, BrokerSecurity, make_keystore
from bicycle_runtime.dev.errors import BROKER_MISSING
from bicycle_runtime.dev.kafka_broker import KafkaBroker
from tests.raising import raises
from tests.waiting import PATIENCE_S

# Waits for the end of the tests, however they end, and kills the brokers that they left behind.
_GUARD = """
import json, os, pathlib, signal, sys
folders = sys.stdin.read().splitlines()
from bicycle_runtime.base.processes import is_alive
for file in [pathlib.Path(folder, "broker.json") for folder in folders]:
    record = json.loads(file.read_text()) if file.is_file() else {"pid": 0, "started": 0}
    if is_alive(record["pid"], record["started"]):
        os.kill(record["pid"], signal.SIGKILL)
"""
USERS = {"broker": "broker-secret", "ada": "ada-secret", "eve": "eve-secret"}
# Who may do everything: the first user, and the controller's listener, which asks for no login.
# Others may do what they like with everything for which no rights are given to anybody.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:broker;User:ANONYMOUS",
}


def broker_in(folder: Path, **options) -> KafkaBroker:
    """Return a small broker that is not started."""
    patience = {"start_timeout_ms": int(PATIENCE_S * 1_000)}
    settings = BrokerOptions(**{"folder": folder, "heap_mb": 256, **patience, **options})
    return KafkaBroker(settings, cache_dir=home().cache_dir)


def end(broker: KafkaBroker) -> None:
    """Stop a broker whatever a test did to it; one that hangs is killed."""
    gc.collect()  # Errors that a test caught keep its clients, which would cry on stderr forever.
    if broker.is_running():
        broker.stop()
    with raises(BROKER_MISSING):
        _ = broker.pid


@pytest.fixture(scope="session")
def guard_broker() -> Iterator[Callable[[KafkaBroker], None]]:
    """Name a broker that must not outlive the tests, not even when they are killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", _GUARD]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:

        def guard(broker: KafkaBroker) -> None:
            process.stdin.write(f"{broker.folder}\n")
            process.stdin.flush()

        yield guard
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture(scope="session")
def kafka_broker(
    tmp_path_factory: pytest.TempPathFactory, guard_broker: Callable[[KafkaBroker], None]
) -> Iterator[KafkaBroker]:
    """One broker for all tests that leave it alone; `bootstrap` says where."""
    # Messages of tests carry times of years ago, and the broker looks every five minutes.
    broker = broker_in(tmp_path_factory.mktemp("kafka"), extra={"log.retention.ms": "-1"})
    guard_broker(broker)
    try:
        broker.start()
        yield broker
    finally:
        end(broker)


@pytest.fixture(scope="session")
def secure_kafka_broker(
    tmp_path_factory: pytest.TempPathFactory, guard_broker: Callable[[KafkaBroker], None]
) -> Iterator[KafkaBroker]:
    """One that lets in only who logs in by SCRAM over TLS, and knows rights.

    See its `client_settings(user)`.
    """
    folder = tmp_path_factory.mktemp("secure-kafka")
    security = BrokerSecurity(keystore=make_keystore(folder / "tls"), users=USERS)
    broker = broker_in(folder, security=security, extra=AUTHORIZER)
    guard_broker(broker)
    try:
        broker.start()
        yield broker
    finally:
        end(broker)


@pytest.fixture
def new_kafka_broker(
    tmp_path: Path, guard_broker: Callable[[KafkaBroker], None]
) -> Iterator[Callable[..., KafkaBroker]]:
    """Make and start brokers that a test may kill and pause; takes the fields of BrokerOptions."""
    brokers: list[KafkaBroker] = []

    def start(**options) -> KafkaBroker:
        broker = broker_in(**{"folder": tmp_path / f"kafka-{len(brokers)}", **options})
        brokers.append(broker)
        guard_broker(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        end(broker)


@pytest.fixture
def kafka_admin(kafka_broker: KafkaBroker) -> AdminClient:
    """The administration client of the common broker."""
    return kafka_topics.open_admin(kafka_broker.client_settings())


@pytest.fixture
def topic(
    kafka_admin: AdminClient, request: pytest.FixtureRequest, topic_numbers: Iterator[int]
) -> Callable[..., str]:
    """Create a topic of the common broker under a name of its own, and return the name."""
    test = re.sub(r"[^\w.-]+", "-", request.node.name)[:80]

    def create(*, partitions: int = 1, **config: str) -> str:
        name = f"{test}-{next(topic_numbers)}"
        create_topic(kafka_admin, name, partitions=partitions, **config)
        return name

    return create


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    """Numbers that make the names of topics unique."""
    return itertools.count()


def create_topic(admin: AdminClient, name: str, *, partitions: int = 1, **config: str) -> None:
    """Create a topic and wait until it can be used; settings have `_` in place of `.`."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    kafka_topics.create_topic(admin, name, partitions=partitions, config=settings)
