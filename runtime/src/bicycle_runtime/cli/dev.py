"""``bicycle dev``: tools for developers, such as a local Kafka broker.

``dev kafka`` is a broker of this machine.

The module ``dev_cluster`` has ``dev cluster``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bicycle_runtime.cli.dev_cluster import cluster_command
from bicycle_runtime.cli.parameters import declared_options, folder_option, home
from bicycle_runtime.cli.rendering import tell_stop
from bicycle_runtime.dev.broker_options import BrokerOptions
from bicycle_sdk.options import describe, from_mapping
from bicycle_streams.cli.commands import CommandGroup, command, command_group, examples
from bicycle_streams.cli.parameters import answers, pairs
from bicycle_streams.cli.rendering import answer_json, show_table

if TYPE_CHECKING:
    from bicycle_runtime.dev.kafka_broker import KafkaBroker

F = TypeVar("F", bound=Callable[..., Any])
_STARTING = [info for info in describe(BrokerOptions) if info.name != "folder"]
_STOPPING = [info for info in _STARTING if info.name == "stop_timeout_ms"]
_PROPERTY = "--property"
_WATCH_MS = 500
_KILL_RESERVE_S = 60.0
_dir_option = folder_option(
    "Directory for the data and the log of the broker. Default: kafka in BICYCLE_HOME."
)

dev_command = command_group(
    "dev",
    "Start a Kafka broker or a Spark cluster for development.",
    "bicycle dev kafka start",
    "bicycle dev cluster start",
)
dev_command.add_command(cluster_command)
kafka_command = command_group(
    "kafka",
    "Start, stop and inspect a Kafka broker on this machine.\n\n"
    "The broker needs only Java. It is a single node that only this machine can reach, for "
    "development and tests, not for production.",
    "bicycle dev kafka start",
    "bicycle dev kafka status",
    "bicycle dev kafka stop",
)
dev_command.add_command(kafka_command)


@command(
    "start",
    "bicycle dev kafka start",
    "bicycle dev kafka start --port 9092 --foreground",
    group=kafka_command,
)
@_dir_option
@declared_options(_STARTING)
@click.option(
    _PROPERTY,
    "extra",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, values: pairs(values, _PROPERTY),
    help="A setting of Kafka's server.properties. Repeatable.",
)
@click.option(
    "--foreground",
    is_flag=True,
    help="Run in the foreground until Ctrl-C or SIGTERM, then stop the broker.",
)
@answers
def start_command(
    *,
    folder: Path | None,
    extra: dict[str, str],
    foreground: bool,
    as_json: bool,
    **declared: str | None,
) -> None:
    """Start a Kafka broker and print bootstrap=HOST:PORT.

    The command waits until the broker responds. Existing data in the directory is used again.
    If a broker already runs there, it is left unchanged, and the exit code is 0. The first
    start on a machine downloads the broker (45 MB).
    """
    broker = _broker(folder, declared, extra=extra)
    if foreground:
        _stay(broker, as_json=as_json)
    else:
        _tell_start(broker, is_new=broker.start(), as_json=as_json)


@command("stop", "bicycle dev kafka stop", group=kafka_command)
@_dir_option
@declared_options(_STOPPING)
@answers
def stop_command(*, folder: Path | None, as_json: bool, **declared: str | None) -> None:
    """Stop the Kafka broker and wait until it ends; its data is kept.

    The exit code is 1 if no broker runs in the directory.
    """
    broker = _broker(folder, declared)
    tell_stop(broker.folder, is_clean=broker.stop(), as_json=as_json)


@command("status", "bicycle dev kafka status", group=kafka_command)
@_dir_option
@answers
def status_command(*, folder: Path | None, as_json: bool) -> None:
    """Show whether the Kafka broker runs, and its address.

    The exit code is 1 if no broker runs in the directory.
    """
    broker = _broker(folder)
    facts = {
        "state": "answering" if broker.is_answering() else "not answering",
        "bootstrap": broker.bootstrap,
        "pid": broker.pid,
        "folder": str(broker.folder),
        "log": str(broker.log_path),
    }
    if as_json:
        answer_json(facts)
    else:
        click.echo("\n".join(f"{name}={value}" for name, value in facts.items()))


@kafka_command.group(
    "topics",
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples("bicycle dev kafka topics"),
)
@_dir_option
@answers
@click.pass_context
def topics_command(context: click.Context, *, folder: Path | None, as_json: bool) -> None:
    """List the topics of the Kafka broker with partitions and replication.

    Internal topics of Kafka are omitted. The exit code is 1 if no broker runs in the directory.
    """
    if context.invoked_subcommand is not None:
        context.obj = folder
        return
    # Slow to import: Kafka's client.
    from bicycle_runtime.dev.kafka_topics import list_topics, open_admin

    broker = _running(folder)
    found = list_topics(open_admin(broker.client_settings()))
    if as_json:
        answer_json({"topics": [asdict(topic) for topic in found]})
    elif not found:
        click.echo("no topics")
    else:
        rows = [(topic.name, str(topic.partitions), str(topic.replication)) for topic in found]
        show_table(("topic", "partitions", "replication"), rows)


@command("create", "bicycle dev kafka topics create orders --partitions 4", group=topics_command)
@click.argument("name")
@_dir_option
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Number of partitions.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, values: pairs(values, "--config"),
    help="A setting of the topic, such as retention.ms. Repeatable.",
)
@answers
@click.pass_context
def create_command(
    context: click.Context,
    *,
    name: str,
    folder: Path | None,
    partitions: int,
    config: dict[str, str],
    as_json: bool,
) -> None:
    """Create a Kafka topic and wait until it is usable.

    The exit code is 1 if the topic already exists, or no broker runs in the directory.
    """
    # Slow to import: Kafka's client.
    from bicycle_runtime.dev.kafka_topics import create_topic, open_admin

    broker = _running(folder or context.obj)
    admin = open_admin(broker.client_settings())
    made = create_topic(admin, name, partitions=partitions, config=config)
    if as_json:
        answer_json(asdict(made))
    else:
        click.echo(f"topic {made.name} with {made.partitions} partition(s)")


def _broker(
    folder: Path | None,
    declared: Mapping[str, str | None] = MappingProxyType({}),
    *,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> KafkaBroker:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.dev.kafka_broker import KafkaBroker

    store = home()
    given = {name: value for name, value in declared.items() if value is not None}
    options = from_mapping(BrokerOptions, {**given, "folder": folder or store.path / "kafka"})
    return KafkaBroker(
        options.with_extra(extra),
        cache_dir=store.cache_dir,
        report=lambda line: click.echo(line, err=True),
    )


def _running(folder: Path | None) -> KafkaBroker:
    """Return the broker that runs in a directory; raise an error without one."""
    broker = _broker(folder)
    _ = broker.pid
    return broker


def _tell_start(broker: KafkaBroker, *, is_new: bool, as_json: bool) -> None:
    if as_json:
        answer_json(
            {
                "bootstrap": broker.bootstrap,
                "started": is_new,
                "pid": broker.pid,
                "folder": str(broker.folder),
                "log": str(broker.log_path),
            }
        )
        return
    if not is_new:
        click.echo(f"a broker already runs in {broker.folder}", err=True)
    click.echo(f"bootstrap={broker.bootstrap}")


def _stay(broker: KafkaBroker, *, as_json: bool) -> None:
    """Keep a broker running until a stop is requested, or until it ends by itself."""
    # Needed in the foreground only.
    from bicycle_runtime.jobs.supervision.stopping import StopRequest

    def end(exit_code: int) -> None:
        if broker.is_running():
            broker.kill()
        os._exit(exit_code)

    request = StopRequest(end=end)
    request.arm(
        timeout_s=broker.options.stop_timeout_ms / 1_000 + _KILL_RESERVE_S,
        on_request=lambda: None,
        abort=lambda: None,
    )
    with request.on_signals():
        _tell_start(broker, is_new=broker.start(), as_json=as_json)
        while not request.wait(_WATCH_MS):
            if broker.has_ended():
                return
        if broker.is_running():
            broker.stop()
