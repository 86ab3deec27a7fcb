"""The command ``bicycle sql shell``, which `bicycle sql` is without a command."""

from __future__ import annotations

import sys

import click

from bicycle_runtime.cli.candidates import file_names
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers

__all__ = ["shell_command"]


@command(
    "shell", "bicycle sql", "bicycle sql views.sql", "bicycle sql shell --json -c 'SHOW FUNCTIONS'"
)
@click.argument("file", required=False, shell_complete=file_names)
@click.option("-c", "--command", "text", metavar="SQL", help="Run these statements and exit.")
@answers
def shell_command(*, file: str | None, text: str | None, as_json: bool) -> None:
    """Run SQL statements from a prompt, a file, --command or standard input.

    `bicycle sql` without a command is this shell. At a terminal it has a prompt with history and
    completion, and help shows the statements. Otherwise statements are read to the end, and the
    first error ends the command with its exit code.

    SELECT runs in this process, without Java, and shows rows as epochs are sealed; Ctrl-C ends it.
    INSERT INTO runs a job, as bicycle run does. With --json, each row is a JSON object in a line.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.scripts import text_of
    from bicycle_runtime.tables.errors import SQL_LIBRARY_MISSING

    if file is not None and text is not None:
        raise click.UsageError("give a FILE or --command, not both")
    try:
        # As above, and extras.
        from bicycle_runtime.cli.sql_answers import Shell, run_prompt
    except ModuleNotFoundError as error:
        raise SQL_LIBRARY_MISSING(file="bicycle sql", missing=error.name or "sqlglot") from error
    if file is not None:
        content = text_of(file) if file.endswith(".sql") else None
        if content is None:
            raise click.UsageError(f"{file!r} is not a FILE.sql")
        Shell(as_json=as_json).run(content, file=file)
    elif text is None and sys.stdin.isatty() and sys.stdout.isatty() and not as_json:
        run_prompt()
    else:
        Shell(as_json=as_json).run(sys.stdin.read() if text is None else text)
