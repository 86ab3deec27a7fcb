"""Flags and values that all commands of ``bicycle`` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bicycle_sdk.quantities import parse_duration_ms

F = TypeVar("F", bound=Callable[..., Any])


def answers(command: F) -> F:
    """Add the flags common to all commands.

    The function gets ``as_json``.
    """
    command = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
    )(command)
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        help="Also show the traceback of Bicycle for errors.",
    )(command)


def duration_ms(_context: click.Context, _option: click.Parameter, text: str) -> int:
    """Return the ms that the text of an option means; the callback of a DURATION."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(
            f"expected a duration, such as 30s or 10m, got {text!r}"
        ) from error


def pairs(
    values: Sequence[str], flag: str, *, prefix: str = "", form: str = "NAME=VALUE"
) -> dict[str, str]:
    """Return ``name=value`` texts as a dict; ``form`` is their notation in the help.

    Raises:
        click.BadParameter: an argument has another form, lacks the prefix, or repeats a name.
    """
    found: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not name.startswith(prefix):
            wanted = f"{prefix}{form}"
            raise click.BadParameter(f"{text!r} must have the form {wanted}", param_hint=flag)
        if name in found:
            raise click.BadParameter(f"duplicate {name!r}", param_hint=flag)
        found[name] = value
    return found
