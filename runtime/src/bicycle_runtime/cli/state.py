"""``bicycle state``: the state of operators, as of a retained epoch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bicycle_runtime.cli.candidates import plugin_names
from bicycle_runtime.cli.checkpoints import checkpoint_options
from bicycle_runtime.cli.parameters import home, plugin_env_option
from bicycle_sdk.quantities import amount, byte_text, count_text
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table

if TYPE_CHECKING:
    from bicycle_runtime.base.storage import Storage
    from bicycle_runtime.jobs.checkpoints.sealed_queries import SealedOperator
    from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch
    from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader

F = TypeVar("F", bound=Callable[..., Any])
_LIMIT = 20
_LS_HEADINGS = (
    "operator", "is a", "state", "kind", "types", "codec", "entries", "size", "key groups",
)  # fmt: skip


state_command = command_group(
    "state",
    "Query the state of a job at any retained epoch.\n\n"
    "The commands only read checkpoints: they work while the job runs, take no lock and need "
    "no plugin. If the job removes the epoch during the query, the exit code is 5.",
    "bicycle state ls --job wordcount",
    "bicycle state get --job wordcount --operator counts --key ada",
)


def _epoch_option(command: F) -> F:
    return click.option(
        "--epoch", type=click.IntRange(min=0), help="A retained epoch. Default: the newest."
    )(command)


def _plugin_option(command: F) -> F:
    return click.option(
        "--plugin",
        metavar="NAME",
        shell_complete=plugin_names,
        help=(
            "Load values of the plugin's own classes in a child process. Without this option, no "
            "pickles are loaded, and such values are shown by their type."
        ),
    )(plugin_env_option(command))


def _name_option(command: F) -> F:
    return click.option("--name", metavar="STATE", help="Show only this state.")(command)


def _limit_option(command: F) -> F:
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=_LIMIT,
        help="Maximum number of entries.",
        show_default=True,
    )(command)


@command(
    "ls",
    "bicycle state ls --job wordcount",
    "bicycle state ls --checkpoint-dir checkpoints/wordcount --epoch 7",
    group=state_command,
)
@checkpoint_options
@_epoch_option
@answers
def ls_command(
    *, job: str | None, checkpoint_dir: str | None, epoch: int | None, as_json: bool
) -> None:
    """List operators with state, and the states of each.

    Types and codecs are determined from the first hundred entries of a state.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.sealed_queries import summarize_operator
    from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch

    storage = _storage(job, checkpoint_dir)
    sealed = open_epoch(storage, epoch)
    found = [summarize_operator(sealed, operator) for operator in sealed.operators()]
    if as_json:
        answer_json(_about(sealed) | {"operators": [asdict(operator) for operator in found]})
        return
    click.echo(f"epoch {sealed.epoch} of {storage.url}")
    if found:
        show_table(_LS_HEADINGS, [row for operator in found for row in _ls_rows(operator)])
    else:
        click.echo("no operators with state")


@command(
    "get",
    "bicycle state get --job wordcount --operator counts --key ada",
    "bicycle state get --job wordcount --operator counts --prefix a --limit 100",
    group=state_command,
)
@checkpoint_options
@_epoch_option
@click.option("--operator", required=True, metavar="UID", help="The operator.")
@_name_option
@click.option(
    "--key", metavar="KEY", help="Show only this key: JSON, where a list is a tuple, or plain text."
)
@click.option(
    "--prefix",
    metavar="TEXT",
    help="Show only text keys with this prefix, and tuples whose first item has it.",
)
@_limit_option
@_plugin_option
@answers
def get_command(
    *, job: str | None, checkpoint_dir: str | None, epoch: int | None, limit: int,
    plugin: str | None, as_json: bool, **selected: str | None,
) -> None:  # fmt: skip
    """Show state entries of an operator, with key group and task.

    A missing entry is not an error: the output is then empty.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection
    from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch
    from bicycle_runtime.jobs.checkpoints.state_answers import entries_answer

    storage = _storage(job, checkpoint_dir)
    reader = _reader(plugin, selected["plugin_env"])
    selection = Selection(
        operator=selected["operator"],
        state=selected["name"],
        key=selected["key"],
        prefix=selected["prefix"],
    )
    found = entries_answer(open_epoch(storage, epoch), selection, reader=reader, limit=limit)
    if as_json:
        answer_json(found)
        return
    click.echo(f"epoch {found['epoch']} of {storage.url}")
    if found["entries"]:
        _show(found["entries"], "state", "key_group", "task", "key", "part", "value")
    else:
        click.echo("entry not found")
    if found["is_cut"]:
        click.echo(f"there are more than {limit}; see --limit")


@command(
    "diff",
    "bicycle state diff 6 7 --job wordcount",
    "bicycle state diff 6 7 --checkpoint-dir checkpoints/wordcount --operator counts",
    group=state_command,
)
@click.argument("epoch_a", type=click.IntRange(min=0))
@click.argument("epoch_b", type=click.IntRange(min=0))
@checkpoint_options
@click.option("--operator", metavar="UID", help="Show only this operator.")
@_name_option
@_limit_option
@_plugin_option
@answers
def diff_command(
    *, epoch_a: int, epoch_b: int, limit: int, plugin: str | None, as_json: bool,
    **selected: str | None,
) -> None:  # fmt: skip
    """Show the entries that were added, removed and changed between two epochs.

    Totals count all entries; --limit applies to each operator.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection
    from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch
    from bicycle_runtime.jobs.checkpoints.state_answers import changes_answer

    storage = _storage(selected["job"], selected["checkpoint_dir"])
    reader = _reader(plugin, selected["plugin_env"])
    before, after = open_epoch(storage, epoch_a), open_epoch(storage, epoch_b)
    selection = Selection(operator=selected["operator"], state=selected["name"])
    found = changes_answer(before, after, selection, reader=reader, limit=limit)
    if as_json:
        answer_json(found)
        return
    records = amount(found["record_count"], "record")
    click.echo(f"epoch {epoch_a} to {epoch_b} of {storage.url}: {records}")
    for each in found["operators"]:
        words = ("added", "removed", "changed")
        totals = ", ".join(f"{count_text(each[word])} {word}" for word in words)
        click.echo(f"{each['operator']}: {totals}")
        if each["changes"]:
            _show(each["changes"], "change", "state", "key", "part", "before", "after")


@command(
    "export",
    "bicycle state export --job wordcount --to state.parquet",
    "bicycle state export --job wordcount --operator counts --to counts.jsonl",
    group=state_command,
)
@checkpoint_options
@_epoch_option
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Target file, .parquet or .jsonl; an existing file is replaced.",
)
@click.option("--operator", metavar="UID", help="Export only this operator.")
@_name_option
@_plugin_option
@answers
def export_command(
    *, target: Path, epoch: int | None, plugin: str | None, as_json: bool, **selected: str | None
) -> None:
    """Export all state to a Parquet file or to JSON lines.

    Columns are operator, state, kind, key_group, task, key, part (the key within a map, the
    time of a timer, or the start of a window), value, and since_ms (the start of the time to live,
    in ms since 1970). In Parquet, which needs the extra `parquet`, key, part and value are JSON
    texts.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.sealed_export import export_entries, require_target
    from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection, select
    from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch

    storage = _storage(selected["job"], selected["checkpoint_dir"])
    require_target(target, storage)
    reader = _reader(plugin, selected["plugin_env"])
    sealed = open_epoch(storage, epoch)
    selection = Selection(operator=selected["operator"], state=selected["name"])
    entry_count = export_entries(target, select(sealed, selection), reader)
    if as_json:
        answer_json(_about(sealed) | {"file": str(target), "entry_count": entry_count})
    else:
        noun = "entry" if entry_count == 1 else "entries"
        click.echo(f"{count_text(entry_count)} {noun} of epoch {sealed.epoch} are in {target}")


def _storage(job: str | None, checkpoint_dir: str | None) -> Storage:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.lookup import find_checkpoint

    return find_checkpoint(home(), job=job, checkpoint_dir=checkpoint_dir)


def _reader(plugin: str | None, plugin_env: str | None) -> ValueReader:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader

    if plugin is not None:
        # Only metadata is read here; the plugin's code is loaded by a child process, which finds
        # modules where this one does.
        from bicycle_runtime.jobs.plugins.environments import resolve_plugin

        resolve_plugin(plugin, plugin_env, home())
    return ValueReader(plugin)


def _about(sealed: SealedEpoch) -> dict[str, Any]:
    return {"url": sealed.storage.url, "epoch": sealed.epoch}


def _ls_rows(operator: SealedOperator) -> list[tuple[str, ...]]:
    head = (operator.operator, operator.kind)
    if not operator.states:
        return [(*head, "none", "", "", "", "0", "", "")]
    return [
        (
            *head,
            state.name,
            state.kind,
            ", ".join(state.types),
            state.codec,
            count_text(state.entry_count),
            byte_text(state.byte_count),
            _groups_text(state.group_count, operator.group_count),
        )
        for state in operator.states
    ]


def _groups_text(used_count: int, group_count: int) -> str:
    if not group_count:
        return "by task"
    return f"{used_count} of {group_count}" if used_count else "a copy each"


def _show(rows: Sequence[dict[str, Any]], *names: str) -> None:
    """Write a table of rows; a column without any content is left out."""
    used = [name for name in names if any(row[name] is not None for row in rows)]
    cells = [[_cell(name, row[name]) for name in used] for row in rows]
    show_table([name.replace("_", " ") for name in used], cells)


def _cell(name: str, value: Any) -> str:
    if name in ("state", "change"):
        return str(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)
