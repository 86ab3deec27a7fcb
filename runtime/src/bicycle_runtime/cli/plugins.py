"""``bicycle plugins``: installed plugins; ``check`` loads them in child processes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.cli.candidates import plugin_names
from bicycle_runtime.cli.parameters import home, plugin_env_option
from bicycle_runtime.extraction.discovery import InstalledPlugins, PluginRef, discover
from bicycle_streams.cli.commands import CommandGroup, command, examples
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, error_text, show_table, show_text

if TYPE_CHECKING:
    from bicycle_runtime.extraction.extract import CheckResult


@click.group(
    "plugins",
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples("bicycle plugins", "bicycle plugins --json", "bicycle plugins check wordcount"),
)
@plugin_env_option
@answers
@click.pass_context
def plugins_command(context: click.Context, *, plugin_env: str | None, as_json: bool) -> None:
    """List, check and lock installed plugins.

    The list shows why a plugin cannot be used. It reads only metadata and imports no plugin.
    """
    if context.invoked_subcommand is not None:
        context.obj = plugin_env
        return
    found = _discover(plugin_env)
    if as_json:
        answer_json(
            {
                "plugins": [_plugin_data(ref) for ref in found.found],
                "refused": [
                    {"name": refusal.name, "reason": refusal.reason, "sources": refusal.sources}
                    for refusal in found.refused
                ],
            }
        )
        return
    if not found.found and not found.refused:
        click.echo("no plugins are installed; `bicycle new NAME` creates a plugin")
        return
    rows = [(ref.name, "found", ref.dist, ref.target) for ref in found.found]
    rows += [(item.name, "refused", ", ".join(item.sources), item.reason) for item in found.refused]
    headings = ("plugin", "state", "distribution", "entry point or reason")
    show_table(headings, sorted(rows), spare=("distribution",))


@command(
    "check",
    "bicycle plugins check",
    "bicycle plugins check wordcount",
    "bicycle plugins check --plugin-env venv",
    group=plugins_command,
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=plugin_names)
@plugin_env_option
@answers
@click.pass_context
def check_command(
    context: click.Context, *, names: tuple[str, ...], plugin_env: str | None, as_json: bool
) -> None:
    """Load plugins and show the errors of broken plugins.

    Each plugin is loaded in a separate process. Without NAMES, all installed plugins are
    checked; with NAMES, their parameters are also shown. The exit code is 3 if a plugin fails.
    """
    # Slow to import, and needed for this command only.
    from bicycle_runtime.extraction.extract import check_all

    plugin_env = plugin_env or context.obj
    discovery = _discover(plugin_env)
    refs = [discovery.find(name) for name in names] or list(discovery.found)
    results = check_all([_loadable(ref, plugin_env) for ref in refs])
    refused = [] if names else list(discovery.refused)
    if as_json:
        answer_json(
            {
                "ok": [result.ref.name for result in results if result.ok],
                "parameters": {
                    result.ref.name: list(result.parameters) for result in results if result.ok
                },
                "failed": [_failure(result) for result in results if not result.ok],
                "refused": [{"name": item.name, "reason": item.reason} for item in refused],
            }
        )
    else:
        for result in results:
            parameters = result.parameters if names else ()
            texts = [_verdict(result), *(f"  {_parameter_text(each)}" for each in parameters)]
            show_text("\n".join(texts))
        for item in refused:
            show_text(f"refused  {item.name}: {item.reason}")
    if refused or not all(result.ok for result in results):
        # Slow to import, and needed for the bad case only.
        from bicycle_streams.cli.exit_codes import PLUGIN

        context.exit(PLUGIN)


@command(
    "lock",
    "bicycle plugins lock",
    "bicycle plugins lock dist/clicks-1.0-py3-none-any.whl --output requirements.lock",
    group=plugins_command,
)
@click.argument(
    "path", metavar="[WHEEL_OR_FOLDER]", default=".",
    type=click.Path(exists=True, path_type=Path),
)  # fmt: skip
@click.option(
    "--output",
    "-o",
    default="requirements.lock",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Path of the lock file; an existing file is replaced.",
)
@answers
def lock_command(*, path: Path, output: Path, as_json: bool) -> None:
    """Create a lock file with versions and hashes of a plugin's libraries.

    Pass the file to an upload: `bicycle submit --wheel WHEEL --lock FILE`. uv, or else pip,
    selects the versions for this Python and platform. Libraries of the runtime are omitted.
    """
    # Slow to import, and needed for this command only.
    from bicycle_runtime.service.plugins.lock_files import read_lock
    from bicycle_runtime.service.plugins.locking import lock_requirements, requirements_of

    title, requirements = requirements_of(path)
    with tempfile.TemporaryDirectory() as folder:
        data = lock_requirements(Path(folder), requirements, title=title)
    replace_file(output, data)
    names = [each.name for each in read_lock(data)]
    if as_json:
        answer_json({"file": str(output), "title": title, "libraries": names})
        return
    count = "1 library" if len(names) == 1 else f"{len(names)} libraries"
    show_text(f"{output}: {count} for {title}")


def _discover(plugin_env: str | None) -> InstalledPlugins:
    if plugin_env is None:
        return discover()
    # Slow to import, and needed for another environment only.
    from bicycle_runtime.jobs.plugins.environments import discover_in

    return discover_in(plugin_env)


def _loadable(ref: PluginRef, plugin_env: str | None) -> PluginRef:
    """Return a plugin that a child process can load, packed if of another environment."""
    if plugin_env is None:
        return ref
    # Slow to import, and needed for another environment only.
    from bicycle_runtime.jobs.plugins.environments import isolate

    return isolate(ref, plugin_env, home()).ref


def _verdict(result: CheckResult) -> str:
    if result.error is None:
        return f"ok       {result.ref.name} ({result.ref.dist})"
    return f"failed   {result.ref.name} ({result.ref.dist})\n{error_text(result.error)}"


def _parameter_text(parameter: Mapping[str, Any]) -> str:
    default = f"default {parameter['default']}" if parameter["default"] else "optional"
    need = "required" if parameter["required"] else default
    return (
        f"--set {parameter['name']}=…: {parameter['expected']}; {need}. {parameter['doc']}".rstrip()
    )


def _failure(result: CheckResult) -> dict[str, Any]:
    assert result.error is not None
    return {"name": result.ref.name, "error": result.error.to_json()}


def _plugin_data(ref: Any) -> dict[str, Any]:
    return {
        "name": ref.name,
        "target": ref.target,
        "dist": ref.dist_name,
        "version": ref.dist_version,
        "location": ref.location,
        "sdk_requirement": ref.sdk_requirement,
    }
