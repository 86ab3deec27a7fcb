"""``bicycle stream``: produce, show and copy streams of any backend.

``stream_files`` has the commands for stream files, ``stream_topics`` the commands for topics,
``stream_top`` the live view, and ``stream_serve`` the server for WebSocket clients.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from bicycle_sdk.quantities import amount
from bicycle_streams.addresses import StreamUrl
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json
from bicycle_streams.cli.stream_files import decode_command, repair_command, verify_command
from bicycle_streams.cli.stream_serve import serve_command
from bicycle_streams.cli.stream_top import top_command
from bicycle_streams.cli.stream_topics import topics_command
from bicycle_streams.cli.stream_words import address_argument, backend_words, read_address
from bicycle_streams.connecting import backend_of
from bicycle_streams.messages import Message
from bicycle_streams.standard_input import standard_input, standard_output
from bicycle_streams.texts import LineFormat, message_json, message_line
from bicycle_streams.tools.copying import relay
from bicycle_streams.tools.opening import Tally, position
from bicycle_streams.tools.pipes import flux, tap
from bicycle_streams.tools.sending import clock, interval_seconds, produce
from bicycle_streams.tools.showing import show

F = TypeVar("F", bound=Callable[..., Any])
_STARTS = {"start": "earliest", "end": "latest"}
_LAST_COUNT = 10


stream_command = command_group(
    "stream",
    "Produce, read, copy and check streams without a job.\n\n"
    "URL is an address such as file://./events.ss/orders or stdio:///clicks: a protocol, a "
    "server or file, and after the last slash the names of streams, separated by commas.",
    "bicycle stream cat file://./events.ss/orders",
    "bicycle stream top kafka://localhost:9092/",
)


stream_command.add_command(decode_command)
stream_command.add_command(verify_command)
stream_command.add_command(repair_command)
stream_command.add_command(topics_command)
stream_command.add_command(top_command)
stream_command.add_command(serve_command)


def _address(flag: str, word: str, text: str) -> Callable[[F], F]:
    """Return the option for the address of a stream."""
    return click.option(flag, word, callback=read_address, required=True, metavar="URL", help=text)


_url = address_argument()
_set = backend_words("--set", "words", "of the stream")
_format = click.option(
    "--format", "form", type=click.Choice(get_args(LineFormat)), default="log", show_default=True,
    help="Output format: [time | stream | sequence | shard] payload, one JSON object per message, "
    "or only the payloads.",
)  # fmt: skip
_offset = click.option(
    "--offset", type=click.Choice(list(_STARTS)), default="end", show_default=True,
    help="Start position in streams that keep messages.",
)  # fmt: skip


@command(
    "clock",
    "bicycle stream clock --stream stdio:///ticks --interval 1s",
    "bicycle stream clock --stream file://./events.ss/ticks --interval 10ms --count 100",
    group=stream_command,
)
@_address("--stream", "url", "Address of the stream.")
@click.option(
    "--interval", "interval_s", default="1s", show_default=True, metavar="DURATION",
    callback=lambda _context, _option, text: _seconds(text),
    help="Interval between messages, in ns, us, ms, s or m.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="Number of messages before the command ends.")
@_set
@answers
def clock_command(
    *, url: StreamUrl, interval_s: float, count: int | None, words: dict[str, str], as_json: bool
) -> None:
    """Send {"tick":N} at an interval, until Ctrl-C or SIGTERM.

    N starts at 0.
    """
    tally = Tally()
    _run(clock(url, words, tally, interval_s=interval_s, count=count))
    _tell_sent(tally, url, as_json=as_json)


@command(
    "produce",
    "bicycle stream produce file://./events.ss/numbers < numbers.txt",
    "bicycle stream produce file://./events.ss/ --format ndjson < records.ndjson",
    group=stream_command,
)
@_url
@click.option(
    "--format", "form", type=click.Choice(["lines", "ndjson"]), default="lines", show_default=True,
    help=(
        'Format of the input. lines: each line is a payload; ndjson: each line is a record such as '
        '{"key": "orders", "payload": {"id": 7}}.'
    ),
)  # fmt: skip
@_set
@answers
def produce_command(*, url: StreamUrl, form: str, words: dict[str, str], as_json: bool) -> None:
    """Send each line of standard input as a message.

    A missing file is created. With --format ndjson, the input can be the output of
    `bicycle stream cat --format ndjson`; records without a stream are sent to the stream of URL.
    """
    tally = Tally()
    is_whole = _run(produce(url, words, tally, standard_input(), is_ndjson=form == "ndjson"))
    _tell_sent(tally, url, as_json=as_json)
    _refuse_half(is_whole)


@command(
    "cat",
    "bicycle stream cat file://./events.ss/orders",
    "bicycle stream cat file://./events.ss/orders,refunds --format ndjson",
    group=stream_command,
)
@_url
@_format
@_set
@answers
def cat_command(*, url: StreamUrl, form: LineFormat, words: dict[str, str], as_json: bool) -> None:
    """Print all existing messages of streams."""
    _show(url, words, form=form, as_json=as_json, last=None, begin=None, follow=False)


@command(
    "tail",
    "bicycle stream tail -f file://./events.ss/orders",
    "bicycle stream tail file://./events.ss/orders --from 2026-03-01T12:00:00",
    group=stream_command,
)
@_url
@click.option("-f", "--follow", is_flag=True, help="Wait for new messages.")
@click.option(
    "-n", "--lines", "last", type=click.IntRange(min=0), default=_LAST_COUNT, show_default=True,
    help="Number of messages from the end; not with --from.",
)  # fmt: skip
@click.option(
    "--from", "begin", metavar="TIME|SEQ",
    callback=lambda _context, _option, text: None if text is None else position(text),
    help=(
        "Start with the first message at or after this time (2026-03-01T12:00, in UTC or with a "
        "zone), or with this sequence number."
    ),
)  # fmt: skip
@_format
@_set
@answers
def tail_command(
    *,
    url: StreamUrl,
    follow: bool,
    last: int,
    begin: Any,
    form: LineFormat,
    words: dict[str, str],
    as_json: bool,
) -> None:
    """Print the last messages of streams, or messages from a start position.

    For a backend that keeps no messages, the command prints new messages.
    """
    if follow and as_json:
        raise click.UsageError(
            "use either --follow, which has no end, or --json, which prints one document"
        )
    _show(
        url,
        words,
        form=form,
        as_json=as_json,
        last=last if begin is None else None,
        begin=begin,
        follow=follow,
    )


@command(
    "relay",
    "bicycle stream relay --input stdio:///clicks --output file://./events.ss/clicks",
    "bicycle stream relay --input file://./a.ss/orders --output file://./b.ss/ --offset start",
    group=stream_command,
)
@_address("--input", "source", "Address of the input.")
@_address(
    "--output",
    "target",
    "Address of the output: one stream, or no stream to keep the names of streams.",
)
@_offset
@backend_words("--input-set", "source_words", "of the input")
@backend_words("--output-set", "target_words", "of the output")
@answers
def relay_command(*, offset: str, as_json: bool, target: StreamUrl, **asked: Any) -> None:
    """Copy messages between backends continuously, until Ctrl-C or SIGTERM.

    Times are kept, and shards if the output supports them.
    """
    tally = Tally()
    _run(relay(asked.pop("source"), target, tally, start=_start(offset), is_live=True, **asked))
    _tell_sent(tally, target, as_json=as_json)


@command(
    "dump",
    "bicycle stream dump file://./events.ss/orders file://./orders.ss/",
    group=stream_command,
)
@click.argument("source", metavar="FROM", callback=read_address)
@click.argument("target", metavar="TO", callback=read_address)
@backend_words("--input-set", "source_words", "of FROM")
@backend_words("--output-set", "target_words", "of TO")
@answers
def dump_command(*, as_json: bool, target: StreamUrl, **asked: Any) -> None:
    """Copy all existing messages of streams to another backend or file.

    Times are kept, and shards if the output supports them. The output assigns new sequence
    numbers.
    """
    tally = Tally()
    source = asked.pop("source")
    is_whole = _run(relay(source, target, tally, start="earliest", is_live=False, **asked))
    _tell_sent(tally, target, as_json=as_json)
    _refuse_half(is_whole)


@command(
    "flux",
    "bicycle stream flux clicks.pipe --stream file://./events.ss/clicks",
    group=stream_command,
)
@click.argument("path", type=click.Path(path_type=Path))
@_address("--stream", "url", "Address of the output.")
@_set
@answers
def flux_command(*, path: Path, url: StreamUrl, words: dict[str, str], as_json: bool) -> None:
    """Create a named pipe whose lines are sent as messages.

    The pipe is removed when the command ends, by Ctrl-C or SIGTERM.
    """
    _run(flux(path, url, words))
    _tell_end(path, as_json=as_json)


@command(
    "tap", "bicycle stream tap clicks.pipe --stream file://./events.ss/clicks", group=stream_command
)
@click.argument("path", type=click.Path(path_type=Path))
@_address("--stream", "url", "Address of the input.")
@_offset
@_format
@_set
@answers
def tap_command(
    *,
    path: Path,
    url: StreamUrl,
    offset: str,
    form: LineFormat,
    words: dict[str, str],
    as_json: bool,
) -> None:
    """Create a named pipe that delivers messages as lines to its reader.

    The pipe is removed when the command ends, by Ctrl-C or SIGTERM.
    """
    _run(tap(path, url, words, start=_start(offset), line=partial(message_line, form=form)))
    _tell_end(path, as_json=as_json)


def _seconds(text: str) -> float:
    try:
        return interval_seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _start(offset: str) -> Any:
    return _STARTS[offset]


def _run(tool: Coroutine[Any, Any, None]) -> bool:
    """Run a tool until it ends, or a signal ends it after a flush.

    Returns:
        Whether it ended by itself.
    """

    async def run_until_signal() -> bool:
        loop = asyncio.get_running_loop()
        task = loop.create_task(tool)

        def stop() -> None:
            for number in signals:
                loop.remove_signal_handler(number)  # A second signal ends the process at once.
            task.cancel()

        for number in signals:
            loop.add_signal_handler(number, stop)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return not task.cancelled()

    signals = (signal.SIGINT, signal.SIGTERM)
    return asyncio.run(run_until_signal())


def _refuse_half(is_whole: bool) -> None:
    """Abort with an exit code for an interrupted tool that should have completed."""
    if not is_whole:
        raise click.Abort


def _show(
    url: StreamUrl, words: dict[str, str], *, form: LineFormat, as_json: bool, **what: Any
) -> None:
    found: list[dict[str, Any]] = []
    output = standard_output()

    def write(message: Message) -> None:
        output.write(message_line(message, form))
        if what["follow"]:
            output.flush()

    def collect(message: Message) -> None:
        found.append(message_json(message))

    is_whole = _run(show(url, words, collect if as_json else write, **what))
    output.flush()
    if not what["follow"] and backend_of(url.streamer).capabilities.is_replayable:
        _refuse_half(is_whole)
    if as_json:
        answer_json({"messages": found})


def _tell_sent(tally: Tally, url: StreamUrl, *, as_json: bool) -> None:
    if as_json:
        answer_json({"sent": tally.sent, "to": str(url)})
    else:
        click.echo(f"{amount(tally.sent, 'message')} to {url}", err=True)


def _tell_end(path: Path, *, as_json: bool) -> None:
    if as_json:
        answer_json({"path": str(path), "state": "removed"})
    else:
        click.echo(f"{path} was removed", err=True)
