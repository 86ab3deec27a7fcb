"""``bicycle stream top``: the traffic of streams, as a terminal page or once."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import Any

import click

from bicycle_sdk.quantities import duration_text, parse_duration_ms
from bicycle_streams.addresses import StreamUrl
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.errors import NO_TERMINAL, TOP_LIBRARY_MISSING
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table, show_text
from bicycle_streams.cli.stream_columns import COLUMNS, HEADINGS, SPARE_HEADINGS, sort_streams
from bicycle_streams.cli.stream_words import backend_words, read_address
from bicycle_streams.messages import Timestamp
from bicycle_streams.texts import message_json
from bicycle_streams.tools.rates import HOUR_S, Figures, Marks, Throughput, total
from bicycle_streams.tools.watching import Watch

_HISTORY_MS_MAX = HOUR_S * 1_000


@command(
    "top",
    "bicycle stream top kafka://localhost:9092/ redis://localhost:6379/",
    "bicycle stream top file://./events.ss/orders --once --json",
)
@click.argument(
    "urls",
    nargs=-1,
    required=True,
    metavar="URL...",
    callback=lambda context, option, texts: [read_address(context, option, t) for t in texts],
)
@click.option("--once", is_flag=True, help="Print the current values and exit.")
@click.option(
    "--sort", type=click.Choice(HEADINGS), default="stream", show_default=True,
    help="Column to sort by.",
)  # fmt: skip
@click.option(
    "--filter",
    "containing",
    default="",
    metavar="TEXT",
    help="Show only streams whose names contain this text.",
)
@click.option(
    "--history", "history_ms", default="1h", show_default=True, metavar="DURATION",
    callback=lambda _context, _option, text: _duration_ms(text, _HISTORY_MS_MAX),
    help=(
        "Age of the oldest messages that are read at the start, at most 1h; 0s counts only new "
        "messages."
    ),
)  # fmt: skip
@click.option(
    "--stale-after", "stale_ms", default="1m", show_default=True, metavar="DURATION",
    callback=lambda _context, _option, text: _duration_ms(text, None),
    help="Time without a message after which a stream is stale.",
)  # fmt: skip
@backend_words("--set", "words", "of all URLs")
@answers
def top_command(
    *,
    urls: list[StreamUrl],
    once: bool,
    sort: str,
    containing: str,
    history_ms: int,
    stale_ms: int,
    words: dict[str, str],
    as_json: bool,
) -> None:
    """Show the throughput of streams: messages and bytes per second, minute and hour.

    The command reads all messages and counts them by their timestamps. A URL without a stream
    selects all streams of the server or file. A stream is bursting if its rate in the last second
    is at least three times its average rate in the last minute. It is stale if it had no message
    for the time of --stale-after.
    """
    if as_json and not once:
        raise click.UsageError(
            "the live view has no end, but --json prints one document: add --once"
        )
    watches = [Watch(url, words, history_ms=history_ms) for url in urls]
    marks = Marks(stale_ms=stale_ms)
    if not once:
        _show_page(watches, marks, sort=sort, containing=containing)
        return

    async def look() -> None:
        for watch in watches:
            await watch.once()

    asyncio.run(look())
    found = sort_streams([f for watch in watches for f in watch.figures(marks)], sort, containing)
    if as_json:
        answer_json(_plain(found))
        return
    show_table(HEADINGS, [[c.text(each) for c in COLUMNS] for each in found], spare=SPARE_HEADINGS)
    for each in found:
        if each.error is not None:
            show_text(f"{each.name}: {each.error.code} {each.error.summary}")


def _show_page(watches: list[Watch], marks: Marks, *, sort: str, containing: str) -> None:
    for name, stream in (("standard input", sys.stdin), ("standard output", sys.stdout)):
        if stream is None or not stream.isatty():
            raise NO_TERMINAL(name=name)
    try:
        # Slow to import, and needed for the page alone.
        from bicycle_streams.cli.stream_page import StreamPage
    except ModuleNotFoundError as error:
        raise TOP_LIBRARY_MISSING(library=error.name) from None
    StreamPage(watches, marks, sort=sort, containing=containing).run()


def _duration_ms(text: str, highest: int | None) -> int:
    try:
        found = parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if highest is not None and found > highest:
        raise click.BadParameter(f"{text!r} is more than {duration_text(highest)}")
    return found


def _plain(found: list[Figures]) -> dict[str, Any]:
    streams = [
        {
            "stream": each.name,
            "messages": asdict(each.messages),
            "bytes": asdict(each.sizes),
            "latest": None if each.latest is None else message_json(each.latest),
            "latest_time": None if each.latest_ms is None else str(Timestamp(each.latest_ms)),
            "age_ms": each.age_ms,
            "marks": list(each.marks),
            "producers": each.producer_count,
            "consumers": each.consumer_count,
            "lag": each.lag,
            "shards": [] if each.info is None else [asdict(shard) for shard in each.info.shards],
            "groups": [] if each.info is None else [asdict(group) for group in each.info.groups],
            "error": None if each.error is None else each.error.to_json(),
        }
        for each in found
    ]
    sums: dict[str, Throughput] = {
        "messages": total(found, lambda each: each.messages),
        "bytes": total(found, lambda each: each.sizes),
    }
    return {"streams": streams, "total": {name: asdict(each) for name, each in sums.items()}}
