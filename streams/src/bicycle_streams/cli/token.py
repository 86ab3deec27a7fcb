"""``bicycle token``: access to the service, with expiry and role."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.database import server_of
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import TokenEntry, tokens_of
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers, duration_ms
from bicycle_streams.cli.rendering import answer_json, show_table
from bicycle_streams.cli.server_options import database_options, home_option

_BY = "command line"
_ROLES = [role.name.lower() for role in Role if role is not Role.NOBODY]


token_command = command_group(
    "token",
    "Create, list and revoke access tokens of the service.\n\n"
    "The role viewer can read, operator can also start and change jobs, and admin can also "
    "read the audit log. --owner limits a token to the jobs of these owners. Operators can "
    "run code as the user of the service. A running service applies changes immediately.",
    "bicycle token create ada --role operator",
    "bicycle token list",
)


@command(
    "create",
    "bicycle token create bob --role operator --owner bob --owner team",
    "bicycle token create prometheus --role viewer --expires 365d",
    "bicycle token create admin --role admin --from-file /run/secrets/bicycle-admin",
    group=token_command,
)
@click.argument("name")
@click.option(
    "--role", type=click.Choice(_ROLES), default="viewer", show_default=True,
    help="Role of the token.",
)  # fmt: skip
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="OWNER",
    help="Owner whose jobs the token may access. Repeatable. Default: all owners.",
)
@click.option(
    "--expires",
    "lifetime_ms",
    metavar="DURATION",
    default="90d",
    show_default=True,
    callback=duration_ms,
    help="Lifetime of the token, from a minute to ten years.",
)
@click.option(
    "--from-file",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=(
        "Register the token in this file instead of a new one, for example a token from a secret "
        "store. Repeating the command sets its role, owners and lifetime again."
    ),
)
@home_option
@database_options
@answers
def create_command(
    *, name: str, role: str, owners: tuple[str, ...], lifetime_ms: int, source: Path | None,
    home: Path, as_json: bool, **database: str | None,
) -> None:  # fmt: skip
    """Create a token for NAME and print it.

    The token is shown only once, because only its hash is stored. Jobs started with it belong
    to NAME if NAME is one of the owners, otherwise to the first owner.
    """
    given = None if source is None else source.read_text("utf-8", errors="replace").strip()
    with tokens_of(home, SystemClock(), server_of(**database)) as tokens:
        entry, text = tokens.create(
            name, role=Role[role.upper()], lifetime_ms=lifetime_ms, by=_BY, owners=owners or None,
            given=given,
        )  # fmt: skip
    if as_json:
        answer_json({**_plain(entry), **({"token": text} if source is None else {})})
        return
    hint = "registered"
    if source is None:
        click.echo(text)
        hint = "store it now, it is not shown again"
    elif entry.revoked_ms is not None:
        hint = "it stays revoked"
    whose = "" if entry.owners is None else f" of the jobs of {', '.join(entry.owners)}"
    until = _day(entry.expires_ms)
    click.echo(f"{entry.role} {entry.name!r}{whose} until {until}: {hint}", err=True)


@command("list", "bicycle token list", group=token_command)
@home_option
@database_options
@answers
def list_command(*, home: Path, as_json: bool, **database: str | None) -> None:
    """List the tokens, newest first, without their secrets."""
    now_ms = SystemClock().now_ms()
    with tokens_of(home, SystemClock(), server_of(**database)) as tokens:
        found = tokens.list()
    if as_json:
        answer_json([_plain(entry) for entry in found])
    elif not found:
        click.echo("no tokens")
    else:
        rows = [
            (
                each.id, each.name, each.role, ", ".join(each.owners or ("all",)),
                _state(each, now_ms), _day(each.expires_ms),
            )
            for each in found
        ]  # fmt: skip
        show_table(("id", "name", "role", "owners", "state", "expires"), rows)


@command("revoke", "bicycle token revoke 3f9ac27b10de", group=token_command)
@click.argument("token", metavar="ID")
@home_option
@database_options
@answers
def revoke_command(*, token: str, home: Path, as_json: bool, **database: str | None) -> None:
    """Revoke a token and end its logins.

    ID is an id from `bicycle token list`.
    """
    with tokens_of(home, SystemClock(), server_of(**database)) as tokens:
        entry = tokens.revoke(token, by=_BY)
    if as_json:
        answer_json(_plain(entry))
    else:
        click.echo(f"token {entry.id} of {entry.name!r} is revoked")


def _plain(entry: TokenEntry) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain


def _state(entry: TokenEntry, now_ms: int) -> str:
    if entry.revoked_ms is not None:
        return "revoked"
    return "taken" if entry.is_good(now_ms) else "expired"


def _day(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1_000, tz=UTC):%Y-%m-%d %H:%M}Z"
