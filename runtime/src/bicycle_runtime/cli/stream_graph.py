"""``bicycle stream graph``: which jobs read and write which streams."""

from __future__ import annotations

from dataclasses import asdict

import click

from bicycle_runtime.cli.parameters import service_options
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text


@command("graph", "bicycle stream graph", "bicycle stream graph --format mermaid")
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text",
    show_default=True,
    help=(
        "Output format: text for people, Mermaid for diagrams, JSON for programs. --json selects "
        "json."
    ),
)  # fmt: skip
@service_options
@answers
def stream_graph_command(*, form: str, as_json: bool) -> None:
    """Show which jobs read and write which streams.

    The graph covers all jobs of this home or service, and shows the addresses that the jobs
    declare.
    """
    # Slow to import, and needed for this alone.
    from bicycle_runtime.cli.access import reached_jobs

    found = reached_jobs().topology()
    if as_json or form == "json":
        answer_json(asdict(found))
    elif form == "mermaid":
        click.echo(found.to_mermaid())
    else:
        show_text(found.to_text() or "no jobs")
