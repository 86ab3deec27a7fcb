"""``bicycle stream serve``: streams for WebSocket clients, and webhooks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from bicycle_streams.addresses import StreamUrl
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers, pairs
from bicycle_streams.cli.rendering import answer_json
from bicycle_streams.cli.server_options import door_options, home_option


def _listen_address(
    _context: click.Context, _option: click.Parameter, text: str
) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise click.BadParameter(f"expected ADDRESS:PORT, such as 127.0.0.1:9800, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


@command(
    "serve",
    "bicycle stream serve file://./events.ss/orders,refunds",
    "bicycle stream serve redis://127.0.0.1:6379/prices --limit slow=skip",
    "bicycle stream serve --webhooks webhooks.toml",
)
@click.argument(
    "urls", nargs=-1, metavar="[URL]...",
    callback=lambda _context, _argument, texts: [StreamUrl.parse(text) for text in texts],
)  # fmt: skip
@click.option(
    "--listen", "listen_at", default="127.0.0.1:9800", show_default=True, metavar="ADDRESS:PORT",
    callback=_listen_address,
    help=(
        "Address for clients; port 0 selects a free port. An address that is reachable from other "
        "machines requires --tls-cert, --tls-key and a token."
    ),
)  # fmt: skip
@click.option(
    "--set", "words", multiple=True, metavar="NAME=VALUE",
    callback=lambda _context, _option, values: pairs(values, "--set"),
    help="An option of the backend for all URLs. Repeatable.",
)  # fmt: skip
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=VALUE",
    callback=lambda _context, _option, values: pairs(values, "--limit"),
    help="A limit of the server, such as slow=skip or clients_max=100. Repeatable.",
)  # fmt: skip
@click.option(
    "--webhooks", "webhooks_path", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with tables [[webhook]]: which streams are posted to which URLs.",
)  # fmt: skip
@click.option(
    "--origin", "origins", multiple=True, metavar="ORIGIN",
    help="Origin of pages that may connect, such as https://shop.example. Repeatable.",
)  # fmt: skip
@door_options
@home_option
@answers
def serve_command(
    *,
    urls: list[StreamUrl],
    listen_at: tuple[str, int],
    words: dict[str, str],
    limits: dict[str, str],
    webhooks_path: Path | None,
    origins: tuple[str, ...],
    home: Path,
    as_json: bool,
    **doors: Any,
) -> None:
    """Serve streams to WebSocket clients and webhooks, until Ctrl-C or SIGTERM.

    Clients subscribe to streams by key and receive each message as a JSON frame. The server
    prints its URL when it accepts connections, and serves metrics for Prometheus at /metrics.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_streams.subscriber_server.server import serve_subscribers, subscribing_of

    what = subscribing_of(
        urls, words, limits=limits, webhooks_path=webhooks_path, origins=origins, doors=doors
    )

    def tell(url: str) -> None:
        if as_json:
            answer_json({"url": url, "pid": os.getpid()})
        else:
            click.echo(url)
        sys.stdout.flush()

    serve_subscribers(home, *listen_at, what=what, on_ready=tell)
