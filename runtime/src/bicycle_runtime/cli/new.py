"""``bicycle new``: a plugin project to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json


@command("new", "bicycle new word-tally", "bicycle new word-tally --dir projects")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default="the current directory",
    help="Folder in which the project folder is created.",
)
@answers
def new_command(*, name: str, parent: Path, as_json: bool) -> None:
    """Create a plugin project with a job and its tests.

    The project is a wheel with one job, its parameters, and tests that pass. NAME is the name
    of the plugin, the distribution and the folder: lower-case words joined by dashes.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.getting_started.scaffold import write_project

    folder = write_project(name, parent)
    if as_json:
        files = sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
        )
        answer_json({"name": name, "folder": str(folder), "files": files})
        return
    click.echo(f"created {folder}")
    click.echo(f'next: cd {folder} && pip install --editable ".[test]" && pytest')
