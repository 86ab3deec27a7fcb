"""Parameters of commands about jobs: plugins, ``--set``, the service, options.

Options are declared where they belong (``bicycle_sdk.options``) and only get a flag here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from bicycle_runtime.cli.candidates import file_names, matching, parameter_names, plugin_names
from bicycle_streams.cli.parameters import pairs
from bicycle_streams.cli.server_options import home_folder

if TYPE_CHECKING:
    from bicycle_runtime.jobs.home import Home
    from bicycle_sdk.options import OptionInfo

F = TypeVar("F", bound=Callable[..., Any])
SERVICE_URL, SERVICE_TOKEN_FILE = "BICYCLE_SERVICE", "BICYCLE_TOKEN_FILE"
SERVICE_CA = "BICYCLE_TLS_CA"
_SERVICE = f"{__name__}.service"
_PARAMS_FILE = "params_file"
_PIPELINE = "pipeline"


def home() -> Home:
    """Return the home that the environment names."""
    # Needed by commands about jobs only; listing plugins must start fast.
    from bicycle_runtime.jobs.home import Home

    return Home(home_folder())


def job_names(
    _context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Return the jobs of this machine, for a shell that completes one."""
    return matching((folder.id for folder in home().folders()), begin)


def complete_savepoint(
    _context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Return the savepoints beside jobs' local checkpoints, else a directory item.

    Storage behind a URL is not asked: it may take long to answer.
    """
    # Slow to import, and needed for this alone.
    from bicycle_runtime.jobs.control.job_queries import list_jobs
    from bicycle_runtime.layouts.paths import SAVEPOINTS

    checkpoints = {Path(status.checkpoint) for status in list_jobs(home()) if status.checkpoint}
    found = [str(path) for each in checkpoints for path in each.glob(f"{SAVEPOINTS}/*/")]
    return matching(found, begin) or [CompletionItem(begin, type="dir")]


def folder_option(help_text: str) -> Callable[[F], F]:
    """Add ``--dir``, the folder of a development server."""
    directory = click.Path(path_type=Path, file_okay=False)
    return click.option("--dir", "folder", type=directory, help=help_text)


def plugin_option(command: F) -> F:
    """Add ``--plugin``, ``--config`` and the argument FILE, of which one is required.

    The function gets ``plugin``, whichever of them was given.
    """
    command = click.option(
        "-c",
        "--config",
        "pipeline",
        metavar="PIPELINE",
        is_eager=True,
        shell_complete=file_names,
        expose_value=False,
        callback=lambda context, _option, file: context.meta.update({_PIPELINE: file}),
        help="Pipeline file (TOML or YAML); the same as FILE.",
    )(command)
    command = click.option(
        "--plugin",
        metavar="NAME",
        is_eager=True,
        shell_complete=plugin_names,
        help="Name of an installed plugin, as listed by `bicycle plugins`; not with FILE.",
    )(command)
    return click.argument(
        "file",
        required=False,
        metavar="[FILE]",
        expose_value=False,
        callback=_take_file,
        shell_complete=file_names,
    )(command)


def _take_file(context: click.Context, _argument: click.Parameter, file: str | None) -> None:
    """Use a file as the plugin.

    Raises:
        click.UsageError: neither is given, or both, or it is no file of Python.
    """
    if context.resilient_parsing:
        return
    # Slow to import, and needed when a command runs only.
    from bicycle_runtime.extraction.scripts import is_script
    from bicycle_runtime.pipelines.documents import notation_of

    pipeline = context.meta.get(_PIPELINE)
    given = [each for each in (file, pipeline, context.params.get("plugin")) if each is not None]
    if len(given) != 1:
        raise click.UsageError(
            "pass either a file, such as clicks.py, clicks.toml or clicks.sql, or --plugin NAME"
        )
    if pipeline is not None and notation_of(pipeline) is None:
        raise click.UsageError(f"{pipeline!r} is not a FILE.toml, FILE.yaml or FILE.yml")
    if file is not None and Path(file).is_dir():
        folder = Path(file) if Path(file).name not in {"", ".."} else Path(file).resolve()
        file = given[0] = str(folder / "*.sql")
    if file is not None and not is_script(file):
        hint = "use --plugin for an installed plugin"
        raise click.UsageError(
            f"{file!r} is not a FILE.py, FILE.py:FUNCTION, FILE.sql, pipeline or folder; {hint}"
        )
    context.params["plugin"] = given[0]


def plugin_env_option(command: F) -> F:
    """Add ``--plugin-env``, as a path, or None for this command's environment."""
    return click.option(
        "--plugin-env",
        metavar="PATH",
        help="Virtual environment of the plugin. Default: the environment of this command.",
    )(command)


def set_option(command: F) -> F:
    """Add ``--set`` and ``--params``; the function gets ``params``, a dict of texts."""
    command = click.option(
        "--params",
        _PARAMS_FILE,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,  # Before --set, which wins.
        expose_value=False,
        callback=lambda context, _option, path: context.meta.update({_PARAMS_FILE: path}),
        help="TOML file with parameters of the plugin; --set takes precedence.",
    )(command)
    return click.option(
        "--set",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_take_params,
        shell_complete=parameter_names,
        help=(
            "Parameter of the plugin. Repeatable. Pass secrets as env:NAME or file:PATH; prompt: "
            "reads the secret from the terminal."
        ),
    )(command)


def _take_params(
    context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    if context.resilient_parsing:  # A shell completes: no prompt.
        return {}
    return _ask_for_values({**_params_in(context.meta.get(_PARAMS_FILE)), **pairs(values, "--set")})


def _ask_for_values(params: dict[str, str]) -> dict[str, str]:
    """Prompt for parameters given as ``prompt:``; return references to their values.

    They stay in the environment of this process and its child processes, and are not stored.
    """
    if not params:
        return params
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.options import PROMPT, PROMPTED

    for name, text in params.items():
        if text == PROMPT:
            variable = PROMPTED + re.sub(r"\W", "_", name).upper()
            os.environ[variable] = click.prompt(name, hide_input=True, err=True)
            params[name] = f"env:{variable}"
    return params


def _params_in(path: Path | None) -> dict[str, str]:
    """Return the parameters in a file as texts.

    Raises:
        click.BadParameter: it cannot be read, is not TOML, or has a value without a text form.
    """
    if path is None:
        return {}
    # Slow to import, and needed with a file only.
    import tomllib

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--params") from error
    return {name: _toml_text(name, value) for name, value in found.items()}


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, list):
        items = [_toml_text(name, item) for item in value]
        if not any("," in item for item in items):
            return ",".join(items)
    elif not isinstance(value, dict):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise click.BadParameter(
        f"{name!r} must be a text or a list of texts without commas", param_hint="--params"
    )


def declared_options(infos: Sequence[OptionInfo]) -> Callable[[F], F]:
    """Add a flag for each option, as texts, None for absent ones."""

    def add(command: F) -> F:
        for info in reversed(infos):
            command = _flag(info)(command)
        return command

    return add


def _flag(info: OptionInfo) -> Callable[[F], F]:
    if info.type_name == "true or false":
        return click.option(info.flag, info.name, is_flag=True, default=None, help=info.doc)
    if info.is_map:
        return click.option(
            info.flag.removesuffix("s"), info.name, multiple=True, metavar="NAME=NUMBER",
            callback=_map_text, help=f"{info.doc} May be given several times.",
        )  # fmt: skip
    is_plain = info.is_required or info.expected == "text"
    text = info.doc if is_plain else f"{info.doc} Accepts: {info.expected}."
    if info.default is not None:
        text += f" Default: {info.default}."
    return click.option(
        info.flag,
        *(f"--{alias.replace('_', '-')}" for alias in info.aliases),
        info.name,
        required=info.is_required,
        metavar=_metavar(info),
        shell_complete=complete_savepoint if info.flag == "--from" else None,
        help=text,
    )


def _map_text(_context: click.Context, option: click.Parameter, texts: Sequence[str]) -> str:
    """Return the value of an option that is a map as one text."""
    found = pairs(texts, option.opts[0], form="NAME=NUMBER")
    return ",".join(f"{name}={value}" for name, value in found.items())


def _metavar(info: OptionInfo) -> str:
    if info.unit:
        return {"ms": "DURATION", "bytes": "SIZE"}[info.unit]
    return "NUMBER" if "number" in info.type_name else "TEXT"


def service_options(command: Any) -> Any:
    """Add ``--service``, ``--token-file`` and ``--tls-ca``, for ``reached_jobs``."""
    file = click.Path(exists=True, dir_okay=False)
    for flag, name, kind, text in (
        ("--tls-ca", SERVICE_CA, file,
         "PEM file with the CA certificates that verify the service."),
        ("--token-file", SERVICE_TOKEN_FILE, file,
         "File with the token for the service. BICYCLE_TOKEN contains the token itself."),
        ("--service", SERVICE_URL, None,
         "URL of the service. Default: the service of this home, or its files if no service runs."),
    ):  # fmt: skip
        command = click.option(
            flag, f"{_SERVICE}.{name}".replace(".", "_"), type=kind, envvar=name, show_envvar=True,
            expose_value=False, callback=_keep(name), help=text,
        )(command)  # fmt: skip
    return command


def _keep(name: str) -> Any:
    def keep(context: click.Context, _option: click.Parameter, value: str | None) -> None:
        context.meta[f"{_SERVICE}.{name}"] = value or None

    return keep


def chosen_service(name: str) -> str | None:
    """Return the value of a flag of ``service_options``, by the name of its variable."""
    found: str | None = click.get_current_context().meta.get(f"{_SERVICE}.{name}")
    return found
