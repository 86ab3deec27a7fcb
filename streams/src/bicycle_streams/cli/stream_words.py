"""Parameters that commands of streams share: addresses, and options of backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bicycle_streams.addresses import StreamUrl
from bicycle_streams.cli.parameters import pairs

F = TypeVar("F", bound=Callable[..., Any])


def read_address(_context: click.Context, _parameter: click.Parameter, text: str) -> StreamUrl:
    """Return an address; the toolkit's errors describe invalid ones."""
    return StreamUrl.parse(text)


def address_argument() -> Callable[[F], F]:
    """Add the argument URL; the function gets ``url``."""
    return click.argument("url", callback=read_address)


def backend_words(flag: str, name: str, what: str) -> Callable[[F], F]:
    """Add a flag for options of a backend; the function gets a dict of texts."""
    return click.option(
        flag,
        name,
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _context, _option, values: pairs(values, flag),
        help=f"An option of the backend {what}. Repeatable.",
    )
