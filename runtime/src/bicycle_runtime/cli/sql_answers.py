"""Answers of the SQL shell: tables of rows, live results, plans, and jobs.

A query runs in this process, as a preview does, and its rows are shown as epochs are sealed. An
INSERT runs as a job, by ``bicycle run``.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from bicycle_runtime.base.work_folders import WorkFolder, remove_abandoned
from bicycle_runtime.cli.parameters import home
from bicycle_runtime.cli.plan import explain_lines
from bicycle_runtime.cli.sql_prompt import new_prompt
from bicycle_runtime.extraction.neighbors import find_neighbors
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.shell import (
    Answer,
    JobText,
    Running,
    ShellSession,
    is_complete,
    pieces_of,
)
from bicycle_runtime.testing.bundling import bundle_of, bundle_of_graph
from bicycle_runtime.testing.previews import preview_epochs
from bicycle_runtime.testing.rewiring import part_before, used_payloads
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.quantities import amount, duration_text
from bicycle_sdk.result_tables import ResultTable, text_table
from bicycle_streams.cli.rendering import answer_json, error_text, show_table, show_text

_EPOCH_RECORDS = 10_000
_JOB = "sql-"  # The start of the names of jobs, and of their folders.
_MAIN = "import sys; from bicycle_runtime.cli import main; main(sys.argv[1:], 'bicycle')"
_SHORT = {"\\d": "SHOW TABLES; SHOW VIEWS", "\\df": "SHOW FUNCTIONS"}
_DESCRIBE = "\\d "
_HELP = """\
SELECT ...;             show the rows of a query; Ctrl-C ends it
CREATE TABLE | VIEW | FUNCTION ...;    define a name of this session; DROP TABLE name;
INSERT INTO ...;        run a job that fills a table; Ctrl-C stops it
EXPLAIN SELECT ...;     show operators, exchanges, and state with its bound
SHOW TABLES | VIEWS | FUNCTIONS | CREATE TABLE name;    DESCRIBE name;
SET option = value;     set an option of jobs and queries; SET;  RESET option;
\\d, \\d name, \\df        tables and views, columns, functions
\\q, quit, Ctrl-D        end the shell"""


def run_prompt() -> None:
    """Read statements from the terminal and run them, until it is closed."""
    shell = Shell(as_json=False)
    ask = new_prompt(shell.session, home().path, is_complete=is_entered)
    show_text("SQL statements end with a semicolon; \\h shows help, \\q ends the shell.")
    while True:
        try:
            text = ask().strip()
            word = text.rstrip("; ").lower()
            if word in ("\\q", "quit", "exit"):
                return
            if word in ("\\h", "\\?", "help"):
                click.echo(_HELP)
                continue
            if word.startswith(_DESCRIBE):
                text = f"DESCRIBE {text[len(_DESCRIBE) :]}"
            shell.run(_SHORT.get(word, text))
        except EOFError:
            return
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C clears the line; a job failed.
            continue
        except BicycleError as error:
            show_text(error_text(error), err=True)


def is_entered(text: str) -> bool:
    """Return whether Enter ends a text: a whole statement, or a command of the shell."""
    word = text.strip().lower()
    return (
        not word or word.startswith("\\") or word in ("quit", "exit", "help") or is_complete(text)
    )


class Shell:
    """A session, whose answers are written to standard output.

    Args:
        as_json: Write a JSON object for each row.
        folder: The folder of modules with functions for jobs.
    """

    def __init__(self, *, as_json: bool, folder: Path = Path()) -> None:
        self.session = ShellSession()
        remove_abandoned(_job_folders(), _JOB)
        self._as_json, self._folder = as_json, folder

    def run(self, text: str, *, file: str = "") -> None:
        """Run statements, and show their answers; the first error ends it.

        Raises:
            BicycleError: a statement is wrong, or its query or job failed.
        """
        for piece in pieces_of(text, file=file):
            self._show(self.session.answer(piece))

    def _show(self, answer: Answer) -> None:
        match answer:
            case Running(vertex=""):
                bundle = bundle_of(answer.env, name="explain")
                report = inspect_job(bundle)
                if self._as_json:
                    answer_json(asdict(report))
                else:
                    show_text("\n".join(explain_lines(report, bundle.graph)))
            case Running():
                self._query(answer)
            case JobText():
                _run_job(answer.text, self._folder, *(["--json"] if self._as_json else []))
            case ResultTable():
                rows = _Rows(answer.columns, as_json=self._as_json)
                rows.show(answer)
                rows.end("")
            case _ if not self._as_json:
                show_text(answer)

    def _query(self, running: Running) -> None:
        began_ms = (clock := SystemClock()).now_ms()
        rows = _Rows(running.columns, as_json=self._as_json)
        with _interrupts() as stop:
            epochs = preview_epochs(running.env, running.vertex, size=_EPOCH_RECORDS, stop=stop)
            with closing(epochs):
                for records in epochs:
                    rows.show(ResultTable(records, columns=running.columns))
        more = f", {duration_text(clock.now_ms() - began_ms)}"
        if stop.is_set() and sys.stdout.isatty():
            click.echo()  # After the ^C that the terminal shows.
        rows.end(f"{more}, stopped" if stop.is_set() else more)


class _Rows:
    """Rows of a result, of which each part is shown when it comes."""

    def __init__(self, columns: Mapping[str, str], *, as_json: bool) -> None:
        self._columns, self._as_json = columns, as_json
        self._count, self._widths = 0, list[int]()  # Widths of the columns of the first part.

    def show(self, table: ResultTable) -> None:
        """Write the next rows, with headings at first or on a narrow terminal."""
        self._count += len(table)
        if self._as_json:
            for row in table:
                answer_json({name: row.get(name) for name in table.columns})
            return
        lines = text_table(
            table.headings, table.texts, are_numbers=table.are_numbers, widths=self._widths
        )
        is_wide = max(map(len, lines)) > shutil.get_terminal_size().columns
        if self._widths and not (is_wide and sys.stdout.isatty()):
            click.echo("\n".join(lines[2:]))
            return
        show_table(table.headings, table.texts, are_numbers=table.are_numbers)
        self._widths = table.widths

    def end(self, more: str) -> None:
        """Write the number of rows, and the headings of an empty result."""
        if self._as_json:
            return
        if not self._widths:
            self.show(ResultTable([], columns=self._columns))
        click.echo(f"({amount(self._count, 'row')}{more})")


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets; the second one raises KeyboardInterrupt."""
    stop = threading.Event()

    def note(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        # The signal may interrupt a wait for the event, which holds its lock.
        threading.Thread(target=stop.set).start()

    former = signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)


def explain(env: GraphDraft, end: str) -> str:
    """Return the plan of the part of a job that ends at a vertex."""
    graph = part_before(env.build_graph("explain"), end)
    bundle = bundle_of_graph(graph, used_payloads(graph, env.payloads))
    return "\n".join(explain_lines(inspect_job(bundle), graph))


def _job_folders() -> Path:
    return home().path / "sql"


def job_file(text: str, folder: Path, source: Path) -> Path:
    """Write the text of a job as a file, with the modules of its functions.

    Args:
        text: The text.
        folder: The folder of the file.
        source: The folder of the modules.

    Raises:
        SCRIPT_UNUSABLE: the modules are too large.
    """
    path = folder / f"{_JOB}{SystemClock().now_ms()}.sql"
    files = find_neighbors(source.absolute() / path.name, text)
    for each, content in {**files, path.name: text.encode()}.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(content)
    return path


def _run_job(text: str, source: Path, *options: str) -> None:
    """Run a job in a temporary folder with a lock; Ctrl-C stops only the job."""
    (parent := _job_folders()).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = WorkFolder(parent, _JOB)
    try:
        path = job_file(text, folder.path, source)
        command = [sys.executable, "-c", _MAIN, "run", str(path), *options]
        with _interrupts():
            done = subprocess.run(command, check=False, pass_fds=folder.held)
    finally:
        folder.remove()
    if done.returncode:
        sys.exit(done.returncode)
