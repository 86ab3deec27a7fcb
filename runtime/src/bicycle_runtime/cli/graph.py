"""``bicycle graph``: a plugin's job as it will run."""

from __future__ import annotations

import click

from bicycle_runtime.cli.parameters import home, plugin_env_option, plugin_option, set_option
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text


@command(
    "graph",
    "bicycle graph clicks.py --set input=clicks.csv",
    "bicycle graph --plugin wordcount --params job.toml --format mermaid",
)
@plugin_option
@plugin_env_option
@set_option
@click.option(
    "--parallelism", type=click.IntRange(min=1), help="Show the job with this parallelism."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid"]),
    default="text",
    help=(
        "Output format: text for people, JSON for programs, Mermaid for diagrams. --json selects "
        "json."
    ),
)
@answers
def graph_command(
    *,
    plugin: str,
    plugin_env: str | None,
    params: dict[str, str],
    parallelism: int | None,
    form: str,
    as_json: bool,
) -> None:
    """Show the chains, stages and parallelism of a job.

    The command does not start the job.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.extract import extract
    from bicycle_runtime.jobs.plugins.environments import resolve_plugin
    from bicycle_runtime.jobs.plugins.graph_changes import require_parallelism
    from bicycle_runtime.jobs.plugins.graph_view import graph_view

    bundle = extract(resolve_plugin(plugin, plugin_env, home()), params)
    require_parallelism(bundle.graph, parallelism)
    view = graph_view(bundle.graph, parallelism=parallelism)
    if as_json or form == "json":
        answer_json(view.to_json())
    else:
        show_text(view.to_mermaid() if form == "mermaid" else view.to_text())
