"""``bicycle stream topics``: streams of a Kafka cluster or Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from bicycle_sdk.quantities import count_text
from bicycle_streams.addresses import StreamUrl
from bicycle_streams.admin import StreamAdmin, StreamInfo
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers, pairs
from bicycle_streams.cli.rendering import answer_json, show_table
from bicycle_streams.cli.stream_words import address_argument, backend_words
from bicycle_streams.connecting import connect
from bicycle_streams.messages import Timestamp

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_url = address_argument()
_set = backend_words("--set", "words", "of the stream")


def _config(what: str) -> Callable[[F], F]:
    return click.option(
        "--config",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _context, _option, values: pairs(values, "--config"),
        help=f"{what}. Repeatable.",
    )


topics_command = command_group(
    "topics",
    "List, create, delete, describe and alter streams of Kafka and Redis.\n\n"
    "URL is a server, such as kafka://host:9092/, with one or more streams after the last "
    "slash where the command needs them. A stream is a topic of Kafka, or the keys KEY, "
    "KEY:1, KEY:2 and so on of Redis.",
    "bicycle stream topics list kafka://localhost:9092/",
    "bicycle stream topics create kafka://localhost:9092/orders --shards 4",
)


@command(
    "list",
    "bicycle stream topics list kafka://localhost:9092/",
    "bicycle stream topics list redis://localhost:6379/ --set db=1",
    group=topics_command,
)
@_url
@_set
@answers
def list_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """List the streams of a Kafka or Redis server.

    Internal topics of Kafka are omitted, and so are Redis streams with names that are not valid
    keys.
    """
    found = _with_admin(url, words, lambda admin: admin.list_streams())
    if as_json:
        answer_json({"streams": found})
    for key in () if as_json else found:
        click.echo(key)


@command(
    "create",
    "bicycle stream topics create kafka://localhost:9092/orders --shards 4",
    "bicycle stream topics create kafka://localhost:9092/orders --config retention.ms=3600000",
    group=topics_command,
)
@_url
@click.option(
    "--shards",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Number of shards.",
)
@_config("A setting of a topic of Kafka")
@_set
@answers
def create_command(
    *, url: StreamUrl, shards: int, settings: dict[str, str], words: dict[str, str], as_json: bool
) -> None:
    """Create empty streams.

    For Kafka, set the replication factor with --set replication_factor=3.
    """

    async def create(admin: StreamAdmin) -> list[StreamInfo]:
        for key in _keys(url):
            await admin.create(key, shard_count=shards, settings=settings)
        return [await admin.describe(key) for key in url.stream_keys]

    _tell(_with_admin(url, words, create), as_json=as_json)


@command(
    "delete", "bicycle stream topics delete redis://localhost:6379/orders", group=topics_command
)
@_url
@_set
@answers
def delete_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """Delete streams with all messages, shards and groups."""

    async def delete(admin: StreamAdmin) -> None:
        for key in _keys(url):
            await admin.delete(key)

    _with_admin(url, words, delete)
    if as_json:
        answer_json({"deleted": list(url.stream_keys)})
    for key in () if as_json else url.stream_keys:
        click.echo(f"deleted {key}")


@command(
    "describe",
    "bicycle stream topics describe kafka://localhost:9092/orders --json",
    group=topics_command,
)
@_url
@_set
@answers
def describe_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """Show the shards, sequence numbers, groups, lag and settings of streams."""

    async def describe(admin: StreamAdmin) -> list[StreamInfo]:
        return [await admin.describe(key) for key in _keys(url)]

    _tell(_with_admin(url, words, describe), as_json=as_json)


@command(
    "alter",
    "bicycle stream topics alter kafka://localhost:9092/orders --shards 8",
    "bicycle stream topics alter redis://localhost:6379/orders --config maxlen=100000",
    group=topics_command,
)
@_url
@click.option(
    "--shards", type=click.IntRange(1, 10_000), help="New number of shards; must not be lower."
)
@_config("A setting: any topic setting of Kafka; for Redis maxlen or minid, which trim immediately")
@_set
@answers
def alter_command(
    *,
    url: StreamUrl,
    shards: int | None,
    settings: dict[str, str],
    words: dict[str, str],
    as_json: bool,
) -> None:
    """Add shards to streams, or change their settings.

    After partitions were added, Kafka assigns many keys to other partitions than before.
    """
    if shards is None and not settings:
        raise click.UsageError("no change requested: pass --shards or --config")

    async def alter(admin: StreamAdmin) -> list[StreamInfo]:
        for key in _keys(url):
            await admin.alter(key, shard_count=shards, settings=settings)
        return [await admin.describe(key) for key in url.stream_keys]

    _tell(_with_admin(url, words, alter), as_json=as_json)


def _keys(url: StreamUrl) -> Any:
    if not url.stream_keys:
        raise click.UsageError(f"{url} has no stream: add its name after the last slash")
    return url.stream_keys


def _with_admin(
    url: StreamUrl, words: dict[str, str], act: Callable[[StreamAdmin], Awaitable[T]]
) -> T:
    async def whole() -> T:
        async with connect(url, words) as streamer:
            return await act(streamer.admin())

    return asyncio.run(whole())


def _tell(found: list[StreamInfo], *, as_json: bool) -> None:
    if as_json:
        answer_json({"streams": [_plain(info) for info in found]})
        return
    for number, info in enumerate(found):
        if number:
            click.echo()
        click.echo(f"{info.key}: {_messages(info.message_count)}, shards: {len(info.shards)}")
        for name, value in info.settings.items():
            click.echo(f"  {name} = {value}")
        rows = [
            (
                str(shard.shard_id),
                _count(shard.message_count),
                _number(shard.first_sequence),
                _number(shard.last_sequence),
                "" if shard.last_timestamp_ms is None else str(Timestamp(shard.last_timestamp_ms)),
            )
            for shard in info.shards
        ]
        show_table(("shard", "messages", "first", "last", "latest"), rows)
        if info.groups:
            groups = [
                (group.name, _count(group.consumer_count), _count(group.lag))
                for group in info.groups
            ]
            show_table(("group", "consumers", "lag"), groups)


def _plain(info: StreamInfo) -> dict[str, Any]:
    sums = {"message_count": info.message_count, "lag": info.lag}
    return asdict(info) | sums


def _messages(number: int | None) -> str:
    return f"{_count(number)} {'message' if number == 1 else 'messages'}"


def _count(number: int | None) -> str:
    return "?" if number is None else count_text(number)


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
