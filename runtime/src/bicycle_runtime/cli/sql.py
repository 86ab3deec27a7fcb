"""``bicycle sql``: the shell, and tests of views."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from bicycle_runtime.cli.candidates import file_names
from bicycle_runtime.cli.parameters import declared_options
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.options import JobOptions
from bicycle_sdk.options import describe, from_mapping, option
from bicycle_streams.cli.commands import CommandGroup, command, examples
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTestOptions:
    """The options of SQL tests, in addition to options of a run."""

    epochs: int = option(
        1, low=1, high=1_000,
        doc="Number of epochs into which the rows before each query are split.",
    )  # fmt: skip


_JOB = ("parallelism",)
_ENGINE = ("state_backend", "state_dir", "max_records_per_epoch", "no_pickle")
_OPTIONS = [
    *(info for info in describe(JobOptions) if info.name in _JOB),
    *(info for info in describe(EngineOptions) if info.name in _ENGINE),
    *describe(SqlTestOptions),
]


class _ShellGroup(CommandGroup):
    """A group whose default command is the shell."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the name of the shell unless a command or the help is requested."""
        known = (*self.list_commands(ctx), *ctx.help_option_names)
        given = args if args[:1] and args[0] in known else [str(shell_command.name), *args]
        return super().parse_args(ctx, given)


@click.group(
    "sql",
    cls=_ShellGroup,
    epilog=examples("bicycle sql", "bicycle sql views.sql", "bicycle sql test tests/counts.slt"),
)
@answers
def sql_command(*, as_json: bool) -> None:  # options without a command: the shell
    """Run SQL statements at a prompt, and test views of SQL files.

    Without a command, `bicycle sql` is the same as `bicycle sql shell`. `bicycle run FILE.sql` runs
    an SQL file as one job, and `bicycle plan FILE.sql` shows its plan.
    """


@command(
    "shell",
    "bicycle sql shell",
    "bicycle sql shell views.sql",
    "bicycle sql shell --json -c 'SHOW FUNCTIONS'",
    group=sql_command,
)
@click.argument("file", required=False, shell_complete=file_names)
@click.option("-c", "--command", "text", metavar="SQL", help="Run these statements and exit.")
@answers
def shell_command(*, file: str | None, text: str | None, as_json: bool) -> None:
    """Run SQL statements from a prompt, a file, --command or standard input.

    At a terminal, the shell has a prompt with history and completion; `help` lists the statements.
    Otherwise, the command runs all statements of the input, until the first error, whose exit code
    it returns.

    SELECT runs in this process, without Java, and shows new rows whenever an epoch is sealed;
    Ctrl-C ends the query. Each INSERT INTO runs a separate job, as `bicycle run` does. With --json,
    each row is a JSON object on a separate line.
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
        folder = Path(file).parent
        with _module_path(folder):
            Shell(as_json=as_json, folder=folder).run(content, file=file)
        return
    with _module_path(Path()):
        if text is None and sys.stdin.isatty() and sys.stdout.isatty() and not as_json:
            run_prompt()
        else:
            Shell(as_json=as_json).run(sys.stdin.read() if text is None else text)


@contextmanager
def _module_path(*folders: Path) -> Iterator[None]:
    """Make the modules of folders importable, as for a job file there."""
    added = [str(folder.absolute()) for folder in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


@command(
    "test",
    "bicycle sql test counts.slt",
    "bicycle sql test views --parallelism 3 --epochs 7",
    group=sql_command,
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=file_names)
@declared_options(_OPTIONS)
@answers
def test_command(*, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Run tests of SQL in the format of sqllogictest.

    FILE.slt contains statements, input rows, and queries with expected rows. If FILE.sql is in the
    same folder, its statements run first. For a folder, all its .slt files run, after the
    statements of all .sql files beside them. In addition to the records of sqllogictest
    (statement, query, skipif, onlyif, hash-threshold, halt), a file can contain these records:
    epoch (rows that arrive in one epoch), watermark (advance event time, or check a watermark) and
    changes (check the new rows of a view or table).

    Tests run in this process, without Java. They do not use the connectors of tables, so tables
    need no WITH (...). The exit code is 1 if a record fails.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.tables.errors import SQL_LIBRARY_MISSING, SQL_TESTS_FAILED
    from bicycle_runtime.testing.harness import Harness
    from bicycle_sdk.quantities import amount

    found = list(_tests(files))
    try:
        # As above, and an extra.
        from bicycle_runtime.tables.logic_tests import LogicTest
    except ModuleNotFoundError as error:
        raise SQL_LIBRARY_MISSING(file=files[0], missing=error.name or "a library") from error

    def options(cls: type[T], names: Sequence[str], **more: str) -> T:
        found = {name: given[name] for name in names if given[name] is not None}
        return from_mapping(cls, {**found, **more})

    job = options(JobOptions, _JOB, plugin=files[0])
    engine = options(EngineOptions, _ENGINE)
    own = options(SqlTestOptions, ("epochs",))

    def new_harness(env: Any, sources: list[str]) -> AbstractContextManager[Any]:
        return Harness(env, scripted=sources, parallelism=job.parallelism, engine=engine)

    lines, failures, count = [], [], 0
    with _module_path(*(Path(file).parent for file, _ in found)):
        tests = [
            LogicTest(Path(file), new_harness, epochs=own.epochs, before=before)
            for file, before in found
        ]
        for test in tests:
            failures += test.run()
            count += len(test.records)
            lines.append(f"{test.text.file}: {amount(len(test.records), 'record')} passed")
    if failures:
        raise SQL_TESTS_FAILED(
            count_text=amount(count, "record"), failed_text=str(len(failures)),
            listing="\n".join(f"{each.file}:{each.line}: {each.text}" for each in failures),
            failures=[{"file": f.file, "line": f.line, "text": f.text} for f in failures],
        )  # fmt: skip
    if as_json:
        answer_json({"files": [file for file, _ in found], "passed": count})
    else:
        show_text("\n".join(lines))


def _tests(names: Iterable[str]) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Yield files of tests, with the name and text of the SQL files of a folder."""
    from bicycle_runtime.extraction.scripts import text_of  # As above.

    for name in names:
        if not Path(name).is_dir():
            yield name, None
            continue
        found = sorted(Path(name).rglob("*.slt"))
        if not found:
            raise click.UsageError(f"the folder {name!r} contains no .slt files")
        for file in found:
            beside = str(file.with_name("*.sql"))
            has_statements = any(file.parent.glob("*.sql"))
            yield str(file), (beside, (has_statements and text_of(beside)) or "")
