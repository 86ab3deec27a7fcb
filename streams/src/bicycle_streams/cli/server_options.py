"""Options of servers: the home directory, tokens, TLS and client certificates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from bicycle_sdk.secrets import Secret
from bicycle_streams.cli.parameters import pairs


def home_folder(text: str | None = None) -> Path:
    """Return the home directory: the given one, BICYCLE_HOME, or ~/.bicycle."""
    return Path(text or os.environ.get("BICYCLE_HOME") or "~/.bicycle").expanduser().absolute()


def home_option(command: Any) -> Any:
    """Add ``--home``."""
    return click.option(
        "--home",
        metavar="DIR",
        callback=lambda _context, _option, text: home_folder(text),
        help="Directory of the jobs. Default: BICYCLE_HOME, or ~/.bicycle.",
    )(command)


def _reference(context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    if context.params.get("database") is None:
        raise click.UsageError("--database-password needs --database")
    try:
        Secret.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; use env:NAME or file:PATH") from None
    return text


def database_options(command: Any) -> Any:
    """Add the options of a database server."""
    for decorate in (
        click.option(
            "--database-password",
            metavar="REFERENCE",
            envvar="BICYCLE_DATABASE_PASSWORD",
            show_envvar=True,
            callback=_reference,
            help="Reference to the password of --database: env:NAME or file:PATH.",
        ),
        click.option(
            "--database",
            metavar="URL",
            envvar="BICYCLE_DATABASE",
            show_envvar=True,
            is_eager=True,
            help=(
                "PostgreSQL database for history, tokens and operations, such as "
                "postgresql://bicycle@db.example/bicycle. Default: SQLite files in the home."
            ),
        ),
    ):
        command = decorate(command)
    return command


_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


def _client_roles(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    # Needed by servers alone, and slow to import.
    from bicycle_streams.access.tokens import checked_owners

    roles = pairs(texts, "--client-role", form="NAME=ROLE")
    for text in roles.values():
        role, colon, owners = text.partition(":")
        if role not in ("viewer", "operator", "admin"):
            raise click.BadParameter(f"unknown role {role!r}; use viewer, operator or admin")
        if colon:
            checked_owners(owners.split(","))
    return dict(roles)


def door_options(command: Any) -> Any:
    """Add the server's options: tokens, TLS, client certificates, names, database."""
    for decorate in (
        database_options,
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="NAME[:PORT]",
            help=(
                "Host name under which clients reach the server, with the port of a proxy if it "
                "differs from --port. Repeatable."
            ),
        ),
        click.option(
            "--client-role",
            "client_roles",
            multiple=True,
            metavar="NAME=ROLE[:OWNER,OWNER]",
            callback=_client_roles,
            help=(
                "Role of clients whose certificate has the common name NAME, for all owners or "
                "the listed owners. Repeatable."
            ),
        ),
        click.option(
            "--tls-client-ca",
            type=_FILE,
            help="PEM file with CA certificates that verify clients; such a client needs no token.",
        ),
        click.option(
            "--tls-key", type=_FILE, help="PEM file with the private key of the certificate."
        ),
        click.option(
            "--tls-cert",
            type=_FILE,
            help="PEM file with the certificate of the server and its chain.",
        ),
        click.option(
            "--require-auth",
            "needs_login",
            is_flag=True,
            help=(
                "Require a token from all clients, also on loopback addresses: see `bicycle token`."
            ),
        ),
    ):
        command = decorate(command)
    return command
