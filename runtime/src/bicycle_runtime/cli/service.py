"""``bicycle service``: a systemd unit that starts a command at each boot."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bicycle_sdk.quantities import parse_duration_ms
from bicycle_streams.cli.commands import CommandGroup, examples
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_overview
from bicycle_streams.cli.server_options import home_folder

_FOREGROUND = ("up", "run", "serve", "stream serve")
_STOP = "30s"  # The default of --stop-timeout-ms.
_RESERVE_MS = 15_000  # After this time limit, until systemd kills the process.


@click.group(
    "service",
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples("bicycle service install"),
)
@answers
@click.pass_context
def service_command(context: click.Context, *, as_json: bool) -> None:
    """Install the service or a job as a systemd unit."""
    show_overview(context, as_json=as_json)


@service_command.command(
    "install",
    epilog=examples(
        "bicycle service install",
        "bicycle service install --unit orders -- run --plugin orders --params /etc/orders.toml",
    ),
)
@click.argument("words", metavar="[COMMAND [OPTIONS]]", nargs=-1, type=click.UNPROCESSED)
@click.option("--unit", default="bicycle", show_default=True, help="Name of the unit.")
@click.option(
    "--user", default="bicycle", show_default=True, help="Account under which a system unit runs."
)
@click.option(
    "--home",
    metavar="DIR",
    help="Directory of the jobs. Default: /var/lib/bicycle, or BICYCLE_HOME for a user unit.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the unit. Default: /etc/systemd/system, or ~/.config/systemd/user for a user "
    "unit.",
)
@answers
@click.pass_context
def install_command(
    context: click.Context,
    /,
    *,
    words: tuple[str, ...],
    folder: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Write a systemd unit that starts a bicycle command when the machine boots.

    COMMAND is `up` (the default), `run`, `serve` or `stream serve`; write `--` before it if it has
    options. If root runs this command, it writes a system unit, otherwise a user unit. The unit
    reads environment variables, such as secrets, from /etc/UNIT.env or ~/.config/UNIT.env. The
    command does not start the unit.
    """
    is_system = os.geteuid() == 0
    folder = (
        folder
        or Path("/etc/systemd/system" if is_system else "~/.config/systemd/user").expanduser()
    )
    path = folder / f"{given['unit']}.service"
    text = _unit(context, words or ("up",), is_system=is_system, **given)
    if path.exists() and path.read_text("utf-8").split("\n")[0] != text.split("\n")[0]:
        raise click.UsageError(f"{path} was written by another program; choose another --unit")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    control = "systemctl" if is_system else "systemctl --user"
    start = f"{control} daemon-reload && {control} enable --now {given['unit']}"
    if as_json:
        answer_json({"path": str(path), "start": start})
    else:
        click.echo(f"wrote {path}\nnext: {start}")


def _unit(
    context: click.Context,
    words: Sequence[str],
    *,
    is_system: bool,
    unit: str,
    user: str,
    home: str | None,
) -> str:
    """Return the text of a unit."""
    if not re.fullmatch(r"[\w:.@-]+", unit):
        raise click.UsageError(f"--unit must contain only letters, digits and :._@-, got {unit!r}")
    if is_system and user not in {each.pw_name for each in pwd.getpwall()}:
        raise click.UsageError(f"no account {user!r}; create it with `useradd --system {user}`")
    name, parameters = _read(context, words)
    variables = {"BICYCLE_HOME": str(home_folder(home)), "JAVA_HOME": os.environ.get("JAVA_HOME")}
    if is_system and home is None:
        variables["BICYCLE_HOME"] = "/var/lib/bicycle"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [shutil.which("bicycle", path=path) or "bicycle", *words]
    stop_ms = parse_duration_ms(parameters.get("stop_timeout_ms") or _STOP) + _RESERVE_MS
    text = Path(__file__).with_name("systemd.service").read_text("utf-8")
    return text.format(
        unit=unit,
        mode="" if is_system else " --user",
        title=f"bicycle {name}",
        owner=f"User={user}\nStateDirectory=bicycle\n" if is_system else "",
        variables=" ".join(_quote(f"{key}={value}") for key, value in variables.items() if value),
        folder=str(Path.cwd()).replace("%", "%%"),
        command=" ".join(_quote(word).replace("$", "$$") for word in command),
        # Jobs of the service continue without it; a job ends with its processes.
        kill_mode="process" if name == "up" else "mixed",
        stop_s=-(-stop_ms // 1_000),
        target="multi-user.target" if is_system else "default.target",
    )


def _read(context: click.Context, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return a command's name and parameters, after it has read its options.

    Raises:
        click.UsageError: the command does not run in the foreground, or rejects an option.
    """
    command: click.Command = context.find_root().command
    names, rest = [], list(words)
    while isinstance(command, click.Group) and rest:
        found, following, rest = command.resolve_command(context, rest)
        assert following is not None
        command = following
        names.append(str(found))
    name = " ".join(names)
    if name not in _FOREGROUND:
        raise click.UsageError(f"a unit runs {', '.join(_FOREGROUND)}; got {name!r}")
    parameters = command.make_context(name, rest, parent=context.find_root()).params
    if parameters.get("detach"):
        raise click.UsageError("a unit runs in the foreground; remove --detach")
    return name, parameters


def _quote(word: str) -> str:
    """Return a word as systemd reads it."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("%", "%%")):
        word = word.replace(character, escaped)
    return f'"{word}"'
