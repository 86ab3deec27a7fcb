"""Programs and jobs name an option alike; former names are accepted."""

import pytest

from bicycle_sdk.kafka.options import KafkaSinkOptions, KafkaSourceOptions
from bicycle_sdk.options import describe, from_mapping
from bicycle_sdk.sinks.sockets import SocketSinkOptions
from bicycle_sdk.sources.databases import PostgresSourceOptions
from bicycle_sdk.stream_options import (
    FileStreamSourceOptions,
    PulsarSinkOptions,
    PulsarSourceOptions,
    RedisSinkOptions,
    RedisSourceOptions,
    WebSocketSinkOptions,
    WebSocketSourceOptions,
)
from bicycle_streams.file.options import FileOptions
from bicycle_streams.kafka.options import KafkaOptions
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.sockets import SocketOptions
from bicycle_streams.subscriber_server.webhooks import WebhookOptions
from bicycle_streams.websocket import WebSocketOptions

POSTGRES = {"url": "postgresql://ada@h/db", "table": "t", "column": "id"}
WEBHOOK = {
    "name": "a", "url": "https://h/a", "stream": "redis://h/a", "secret": "env:KEY",
    "dead_letters": "redis://h/b",
}  # fmt: skip
TOPIC = {"brokers": "h", "topics": "t"}
ALIASES = [
    (KafkaOptions, "properties", "client_settings", "linger.ms=7", {}),
    (KafkaOptions, "replication_factor", "replication", 3, {}),
    (RedisOptions, "create_stream", "make_stream", False, {}),
    (RedisOptions, "discovery_interval_ms", "shard_scan_interval_ms", 70, {}),
    (KafkaSourceOptions, "discovery_interval_ms", "discovery_ms", 700, TOPIC),
    (PostgresSourceOptions, "poll_interval_ms", "poll_ms", 70, POSTGRES),
    (SocketSinkOptions, "send_timeout_ms", "client_timeout_ms", 700, {}),
    (SocketOptions, "retry_delay_ms", "pause_ms", 7, {}),
    (WebSocketOptions, "retry_delay_max_ms", "pause_max_ms", 7, {}),
    (WebhookOptions, "retry_delay_ms", "pause_ms", 7, WEBHOOK),
    (WebhookOptions, "retry_delay_max_ms", "pause_max_ms", 7, WEBHOOK),
]  # fmt: skip
# Options classes of a program and of jobs for one system.
PAIRS = [
    (KafkaOptions, KafkaSourceOptions),
    (KafkaOptions, KafkaSinkOptions),
    (RedisOptions, RedisSourceOptions),
    (RedisOptions, RedisSinkOptions),
    (PulsarOptions, PulsarSourceOptions),
    (PulsarOptions, PulsarSinkOptions),
    (FileOptions, FileStreamSourceOptions),
    (WebSocketOptions, WebSocketSourceOptions),
    (WebSocketOptions, WebSocketSinkOptions),
    (SocketOptions, SocketSinkOptions),
]
# Options that jobs declare otherwise: secrets are references, and first answers are awaited longer.
DIFFERENT = {"connect_timeout_ms", "password", "token"}


@pytest.mark.parametrize(
    ("options", "name", "alias", "value", "others"),
    ALIASES,
    ids=[f"{options.__name__}-{alias}" for options, _, alias, *_ in ALIASES],
)
def test_a_former_name_is_accepted(options, name, alias, value, others):
    found = from_mapping(options, {**others, alias: value})

    assert getattr(found, name) == getattr(from_mapping(options, {**others, name: value}), name)
    assert getattr(found, name) != getattr(from_mapping(options, others), name)


@pytest.mark.parametrize(
    ("program", "job"), PAIRS, ids=[f"{p.__name__}-{j.__name__}" for p, j in PAIRS]
)
def test_an_option_of_programs_and_jobs_has_one_type_and_one_default(program, job):
    of_jobs = {info.name: info for info in describe(job)}
    shared = [info for info in describe(program) if info.name in of_jobs.keys() - DIFFERENT]

    assert [(each.name, each.type_name, each.default) for each in shared] == [
        (each.name, each.type_name, each.default)
        for each in (of_jobs[each.name] for each in shared)
    ]
