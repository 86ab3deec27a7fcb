"""``bicycle pipeline``: check, begin, test and convert jobs that are a file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bicycle_runtime.cli.candidates import file_names
from bicycle_runtime.cli.parameters import home
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text

if TYPE_CHECKING:
    from bicycle_runtime.pipelines.nodes import CheckedPipeline

_FILE = click.argument("file", shell_complete=file_names)


pipeline_command = command_group(
    "pipeline",
    "Create, check, test and convert pipelines (TOML or YAML).\n\n"
    "`bicycle run --config FILE` runs a pipeline.",
    "bicycle pipeline new clicks.toml",
    "bicycle pipeline test clicks.toml",
)


@command("check", "bicycle pipeline check clicks.toml", group=pipeline_command)
@_FILE
@answers
def check_command(*, file: str, as_json: bool) -> None:
    """Check a pipeline for errors without running it.

    The command reports all errors at once. It looks up functions of the pipeline in the
    environment of this command, in a child process that builds the graph.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.extract import extract
    from bicycle_runtime.jobs.plugins.environments import resolve_plugin

    pipeline = _check(file)
    graph = extract(resolve_plugin(file, None, home()), {}).graph
    arrows = " -> ".join(node.id for node in pipeline.nodes)
    if as_json:
        answer_json(
            {
                "file": file,
                "name": pipeline.name,
                "operators": [vertex.id for vertex in graph.vertices],
                "tests": [test.name for test in pipeline.tests],
                "remarks": pipeline.remarks,
            }
        )
    else:
        show_text("\n".join([f"{file} is valid: {arrows}", *pipeline.remarks]))


@command(
    "new",
    "bicycle pipeline new clicks.toml",
    "bicycle pipeline new clicks.yaml",
    group=pipeline_command,
)
@_FILE
@answers
def new_command(*, file: str, as_json: bool) -> None:
    """Create a pipeline file with a passing test.

    The file type follows from the name: FILE.toml, FILE.yaml or FILE.yml. An existing file is
    left unchanged.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
    from bicycle_runtime.pipelines.template import pipeline_template

    path, notation = Path(file), _notation(file)
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(pipeline_template(path.stem, notation))
    except OSError as error:
        reason = error.strerror or str(error)
        raise PIPELINE_UNREADABLE(
            file=file, problem=f"it cannot be written: {reason}", hint="use another name"
        ) from error
    if as_json:
        answer_json({"file": file})
    else:
        show_text(f"created {file}\nnext: bicycle pipeline test {shlex.quote(str(file))}")


@command("test", "bicycle pipeline test clicks.toml", group=pipeline_command)
@_FILE
@answers
def test_command(*, file: str, as_json: bool) -> None:
    """Run the [[test]] tables of a pipeline.

    Each test sends records to the sources and compares the output of the sinks. Tests run in
    this process, without Java, and import the functions of the pipeline.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.pipelines.errors import PIPELINE_TEST_FAILED
    from bicycle_runtime.testing.pipeline_tests import run_pipeline_tests
    from bicycle_sdk.quantities import amount

    outcomes = run_pipeline_tests(_check(file))
    failed = [outcome for outcome in outcomes if not outcome.is_good]
    if failed:
        listing = "\n".join(line for outcome in failed for line in _lines(outcome))
        raise PIPELINE_TEST_FAILED(
            file=file,
            failed=[outcome.name for outcome in failed],
            count_text=amount(len(outcomes), "test"),
            failed_text=str(len(failed)),
            listing=listing,
        )
    if as_json:
        answer_json({"file": file, "passed": [outcome.name for outcome in outcomes]})
    else:
        show_text(f"{file}: {len(outcomes)} passed")


@command(
    "convert",
    "bicycle pipeline convert clicks.toml --to yaml",
    "bicycle pipeline convert wordcount.yaml --to toml --form vertices",
    "bicycle pipeline convert clicks.toml --to sql > clicks.sql",
    group=pipeline_command,
)
@_FILE
@click.option(
    "--to", "notation", type=click.Choice(["toml", "yaml", "sql"]), help="Target file type."
)
@click.option(
    "--form",
    type=click.Choice(["short", "vertices"]),
    help="Target form: short (source, operators and sink), or vertices and edges.",
)
@answers
def convert_command(
    *,
    file: str,
    notation: Literal["toml", "yaml", "sql"] | None,
    form: Literal["short", "vertices"] | None,
    as_json: bool,
) -> None:
    """Convert a pipeline to TOML, YAML or SQL, or between short and full form.

    The result is printed to standard output. Without --to or --form, that property is
    unchanged. Ids are kept, so that a job can continue with the new file. Comments are lost.

    An SQL file writes the same rows, and starts with empty state. If steps have no counterpart in
    SQL, the command reports each with its reason.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.pipelines.conversion import form_of, pipeline_data, write_document

    pipeline = _check(file)
    if notation == "sql":
        from bicycle_runtime.pipelines.sql_conversion import sql_of_pipeline  # As above.
        from bicycle_runtime.tables.job import check_sql  # As above.

        if form is not None:
            raise click.UsageError("--form applies to TOML and YAML, not to SQL")
        text = sql_of_pipeline(pipeline, check_sql)
        if as_json:
            answer_json({"file": file, "sql": text})
        else:
            show_text(text.rstrip())
        return
    data = pipeline_data(pipeline, form or form_of(pipeline))
    if as_json:
        answer_json(data)
    else:
        text = write_document(data, notation or pipeline.document.notation, file=file)
        show_text(text.rstrip())


@command("schema", "bicycle pipeline schema", group=pipeline_command)
@answers
def schema_command(*, as_json: bool) -> None:
    """Print the JSON Schema of pipelines, for completion in editors."""
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.pipelines.json_schema import pipeline_schema

    schema = pipeline_schema()
    if as_json:
        answer_json(schema)
    else:
        show_text(json.dumps(schema, indent=2))


def _check(file: str) -> CheckedPipeline:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.scripts import read_pipeline
    from bicycle_runtime.pipelines.nodes import check_pipeline

    _notation(file)
    return check_pipeline(read_pipeline(file))


def _notation(file: str) -> Literal["toml", "yaml"]:
    # As above.
    from bicycle_runtime.pipelines.documents import notation_of

    found = notation_of(file)
    if found is None:
        raise click.UsageError(f"{file!r} is not a FILE.toml, FILE.yaml or FILE.yml")
    return found


def _lines(outcome: Any) -> list[str]:
    """Return the result of a test as lines."""
    lines = [f"  {outcome.name}:"]
    for word, rows in (("missing", outcome.missing), ("unexpected", outcome.unexpected)):
        for uid, records in rows.items():
            lines += [f"    {uid}: {word}: {json.dumps(record)}" for record in records]
    return lines
