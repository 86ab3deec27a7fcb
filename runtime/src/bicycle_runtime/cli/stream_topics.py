"""``bicycle stream topics``: streams of a Kafka cluster or Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from bicycle_runtime.cli.commands import CommandGroup, examples
from bicycle_runtime.cli.parameters import answers, pairs
from bicycle_runtime.cli.rendering import answer_json, count_text, show_overview, show_table
from bicycle_runtime.cli.stream_words import address_argument, backend_words
from bicycle_runtime.streams.addresses import StreamUrl
from bicycle_runtime.streams.admin import StreamAdmin, StreamInfo
from bicycle_runtime.streams.connecting import connect
from bicycle_runtime.streams.messages import Timestamp

__all__ = ["topics_command"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_url = address_argument()
_set = backend_words("--set", "words", "of URL")


def _config(what: str) -> Callable[[F], F]:
    return click.option(
        "--config",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _context, _option, values: pairs(values, "--config"),
        help=f"{what}. May be given several times.",
    )


@click.group("topics", cls=CommandGroup, invoke_without_command=True)
@answers
@click.pass_context
def topics_command(context: click.Context, *, as_json: bool) -> None:
    """List, create, delete, describe and alter streams of Kafka and Redis.

    URL is a place, as in kafka://host:9092/, and one or more streams behind the last slash where a
    command is about some. A stream is a topic of Kafka with its partitions, or the keys of Redis
    KEY, KEY:1, KEY:2 and so on.
    """
    show_overview(context, as_json=as_json)


@topics_command.command(
    "list",
    epilog=examples(
        "bicycle stream topics list kafka://localhost:9092/",
        "bicycle stream topics list redis://localhost:6379/ --set db=1",
    ),
)
@_url
@_set
@answers
def list_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """List the streams of a place.

    Topics in which Kafka keeps what it needs itself are left out, and so are streams of Redis
    whose names no stream of ours can have.
    """
    found = _with_admin(url, words, lambda admin: admin.list_streams())
    if as_json:
        answer_json({"streams": found})
    for key in () if as_json else found:
        click.echo(key)


@topics_command.command(
    "create",
    epilog=examples(
        "bicycle stream topics create kafka://localhost:9092/orders --shards 4",
        "bicycle stream topics create kafka://localhost:9092/orders --config retention.ms=3600000",
    ),
)
@_url
@click.option(
    "--shards", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many."
)
@_config("A setting of a topic of Kafka")
@_set
@answers
def create_command(
    *,
    url: StreamUrl,
    shards: int,
    settings: dict[str, str],
    words: dict[str, str],
    as_json: bool,
) -> None:
    """Make streams without messages.

    How many brokers of Kafka keep a topic is said by --set replication=3.
    """

    async def create(admin: StreamAdmin) -> list[StreamInfo]:
        for key in _keys(url):
            await admin.create(key, shard_count=shards, settings=settings)
        return [await admin.describe(key) for key in url.stream_keys]

    _tell(_with_admin(url, words, create), as_json=as_json)


@topics_command.command(
    "delete", epilog=examples("bicycle stream topics delete redis://localhost:6379/orders")
)
@_url
@_set
@answers
def delete_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """Remove streams with all their messages, their shards and their groups."""

    async def delete(admin: StreamAdmin) -> None:
        for key in _keys(url):
            await admin.delete(key)

    _with_admin(url, words, delete)
    if as_json:
        answer_json({"deleted": list(url.stream_keys)})
    for key in () if as_json else url.stream_keys:
        click.echo(f"deleted {key}")


@topics_command.command(
    "describe",
    epilog=examples("bicycle stream topics describe kafka://localhost:9092/orders --json"),
)
@_url
@_set
@answers
def describe_command(*, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """Show shards, sequences, groups with their lag, and settings of streams."""

    async def describe(admin: StreamAdmin) -> list[StreamInfo]:
        return [await admin.describe(key) for key in _keys(url)]

    _tell(_with_admin(url, words, describe), as_json=as_json)


@topics_command.command(
    "alter",
    epilog=examples(
        "bicycle stream topics alter kafka://localhost:9092/orders --shards 8",
        "bicycle stream topics alter redis://localhost:6379/orders --config maxlen=100000",
    ),
)
@_url
@click.option("--shards", type=click.IntRange(1, 10_000), help="How many from now on; not fewer.")
@_config("A setting: any of a topic of Kafka; for Redis maxlen or minid, which trim at once")
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
    """Give streams more shards, or other settings.

    With more partitions Kafka puts keys into others than before.
    """
    if shards is None and not settings:
        raise click.UsageError("nothing to alter: give --shards or --config")

    async def alter(admin: StreamAdmin) -> list[StreamInfo]:
        for key in _keys(url):
            await admin.alter(key, shard_count=shards, settings=settings)
        return [await admin.describe(key) for key in url.stream_keys]

    _tell(_with_admin(url, words, alter), as_json=as_json)


def _keys(url: StreamUrl) -> Any:
    if not url.stream_keys:
        raise click.UsageError(f"{url} names no stream: write one behind the last slash")
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
