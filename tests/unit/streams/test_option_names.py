"""Programs and jobs name an option alike; former names are accepted."""

from inspect import currentframe

import pytest
from click.testing import CliRunner

from bicycle_sdk.former_names import FormerNameWarning
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
from bicycle_streams import connect
from bicycle_streams.cli.root import streams_root
from bicycle_streams.file.options import FileOptions
from bicycle_streams.kafka.options import KafkaOptions
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.sockets import SocketOptions
from bicycle_streams.subscriber_server.webhooks import WebhookOptions, read_webhooks
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


def test_a_former_name_causes_a_warning_with_the_line_of_the_program():
    with pytest.warns(FormerNameWarning) as found:
        line = currentframe().f_lineno + 1
        connect("redis://h", {"make_stream": "false", "batch_messages": 7})

    assert [(each.filename, each.lineno) for each in found] == [(__file__, line)]
    assert str(found[0].message) == ("option 'make_stream' is now named 'create_stream'; rename it")


def test_a_former_name_in_a_file_of_webhooks_causes_a_warning_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "whsec_MDEyMzQ1Njc4OWFiY2RlZg==")
    file = tmp_path / "webhooks.toml"
    fields = "".join(f'{name} = "{value}"\n' for name, value in WEBHOOK.items())
    file.write_text(f"[[webhook]]\n{fields}pause_ms = 7\n")

    with pytest.warns(FormerNameWarning, match=f"'retry_delay_ms'; rename it .{file}"):
        [found] = read_webhooks(file)

    assert found.retry_delay_ms == 7


def test_a_command_shows_a_former_name_without_a_location():
    words = ["stream", "produce", "redis://127.0.0.1:1/a", "--set", "shard_scan_interval_ms=70"]

    found = CliRunner().invoke(streams_root(), words)

    assert found.stderr.splitlines()[0] == (
        "warning: option 'shard_scan_interval_ms' is now named 'discovery_interval_ms'; rename it"
    )
