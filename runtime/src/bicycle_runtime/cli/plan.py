"""``bicycle plan``: the guarantees of a plugin's job, and its records and state."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from bicycle_runtime.cli.parameters import (
    complete_savepoint,
    home,
    plugin_env_option,
    plugin_option,
    set_option,
)
from bicycle_sdk.quantities import duration_text
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text

if TYPE_CHECKING:
    from bicycle_runtime.jobs.inspection.reports import AttributeReport, JobReport, StateReport
    from bicycle_runtime.jobs.inspection.state_changes import OperatorChange, StateChanges
    from bicycle_sdk.graph import JobGraph

_GUARANTEES = ["at-most-once", "at-least-once", "exactly-once"]


@command(
    "plan",
    "bicycle plan clicks.py --set input=clicks.csv --require exactly-once",
    "bicycle plan views.sql",
    "bicycle plan --plugin wordcount --params job.toml --from savepoints/before-upgrade",
)
@plugin_option
@plugin_env_option
@set_option
@click.option(
    "--parallelism", type=click.IntRange(min=1), help="Plan the job with this parallelism."
)
@click.option(
    "--require",
    "wanted",
    type=click.Choice(_GUARANTEES),
    help="Exit with code 4 if the guarantee of the job is weaker.",
)
@click.option(
    "--from",
    "origin",
    metavar="URL",
    shell_complete=complete_savepoint,
    help=(
        "Savepoint or checkpoint directory: show which state would be restored, and exit with "
        "code 5 if state would be lost or cannot be read."
    ),
)
@click.option(
    "--allow-dropped-state",
    "allows_dropped",
    is_flag=True,
    help="With --from: accept the loss of state.",
)
@answers
def plan_command(
    *,
    plugin: str,
    plugin_env: str | None,
    params: dict[str, str],
    parallelism: int | None,
    wanted: str | None,
    origin: str | None,
    allows_dropped: bool,
    as_json: bool,
) -> None:
    """Show the guarantee, state and warnings of a job before it runs.

    The end-to-end guarantee is that of the weakest source or sink. With --from, the plan shows
    whether the state of each operator would be kept, migrated, new, dropped or rejected, and
    whether the start needs --trust because it loads pickles. The command starts no job, loads
    no pickles, and does not affect a running job.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.extract import extract
    from bicycle_runtime.jobs.inspection.reports import inspect_job, require_guarantee
    from bicycle_runtime.jobs.plugins.environments import resolve_plugin
    from bicycle_runtime.jobs.plugins.graph_changes import require_parallelism

    ref = resolve_plugin(plugin, plugin_env, home())
    bundle = extract(ref, params)
    require_parallelism(bundle.graph, parallelism)
    sealed = None
    if origin is not None:
        # Slow to import, and needed with a savepoint only.
        from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
        from bicycle_runtime.jobs.savepoints.commands import open_origin

        sealed = open_origin(origin)
        bundle = with_operator_ids(bundle, sealed.manifest.operator_ids)
    report = inspect_job(bundle, parallelism=parallelism)
    if wanted is not None:
        require_guarantee(report, wanted)
    changes, maker = None, ""
    if origin is not None and sealed is not None:
        # As above.
        from bicycle_runtime.jobs.inspection.state_changes import require_no_loss, state_changes
        from bicycle_runtime.jobs.savepoints.trust import provenance

        changes = state_changes(sealed, bundle, report)
        maker = provenance(origin, home(), None)
    if changes is not None and as_json:
        require_no_loss(changes, allows_dropped=allows_dropped)
    if as_json:
        more = {} if changes is None else {"changes": asdict(changes), "provenance": maker}
        answer_json(asdict(report) | more)
        return
    is_sql = ref.is_sql or plugin.endswith(".sql")
    lines = explain_lines(report, bundle.graph) if is_sql else report_lines(report)
    if changes is not None:
        lines += [*change_lines(changes), _trust_line(maker)]
    show_text("\n".join(lines))
    if changes is not None:
        require_no_loss(changes, allows_dropped=allows_dropped)


def explain_lines(report: JobReport, graph: JobGraph) -> list[str]:
    """Return the plan of a query, or of all statements of a file.

    Args:
        report: The report on the job.
        graph: Its graph.
    """
    batches = {each.operator: each.text.partition(": ")[2] for each in report.columns}
    bounds = {_state_lines(each)[0]: _bound(each, report) for each in report.states}
    operators = [
        f"  {vertex.id}: {vertex.name}{f', on {how}' if how else ''}"
        for vertex in graph.vertices
        for how in [batches.get(vertex.id)]
    ]
    _, *lines = report_lines(replace(report, columns=()))
    return ["operators:", *operators, *(f"{line}{bounds.get(line, '')}" for line in lines)]


def _bound(state: StateReport, report: JobReport) -> str:
    """Return the bound of the state of an operator that is known before the run."""
    if state.bound:
        return f", {state.bound}"
    if state.window_growth == "none":
        return ", bounded: a window is removed when the watermark passes its end"
    unbounded = [each for each in report.warnings if each.operator == state.operator]
    if any(each.kind == "unbounded-state" for each in unbounded):
        return ", unbounded: it grows with the number of keys"
    if state.keyed and all(each.ttl_ms is not None for each in state.keyed):
        return ", bounded: entries are removed after their TTL"
    return ""


def report_lines(report: JobReport) -> list[str]:
    """Return the report for people."""
    link = report.weakest.text if report.weakest else "none, every source and sink is exactly-once"
    shipping = list(report.shipping.values())
    by_value = shipping.count("by value")
    version = ".".join(report.python_version.split(".")[:2])
    python = f" (workers need Python {version})" if by_value else ""
    lines = [
        f"plugin {report.plugin} {report.plugin_version}",
        f"guarantee: {report.guarantee} end to end",
        f"  weakest link: {link}",
        *(f"  {connector.text}" for connector in report.connectors),
        "state:" if report.states else "state: none",
        *(line for state in report.states for line in _state_lines(state)),
        "exchanges:" if report.exchanges else "exchanges: none",
        *(
            f"  {item.source} -> {item.target}: {item.partitioning.lower()}, {item.type}, "
            f"{item.codec} codec"
            for item in report.exchanges
        ),
        *_column_lines(report),
        f"functions and types: {len(shipping) - by_value} imported by workers, "
        f"{by_value} sent with their code{python}",
        "warnings:" if report.warnings else "warnings: none",
        *(
            f"  {': '.join(filter(None, [item.kind, item.operator, item.text]))}"
            for item in report.warnings
        ),
    ]
    return lines


def _column_lines(report: JobReport) -> list[str]:
    # If no operator works on columns, the reasons of each are of no interest.
    is_on_columns = any(item.because is None for item in report.columns)
    told = [f"  {item.text}" for item in report.columns if is_on_columns or item.tells]
    return ["works on:", *told] if told else []


def change_lines(changes: StateChanges) -> list[str]:
    """Return lines about the future of an epoch's state."""
    start = "state of savepoint" if changes.is_savepoint else "state of checkpoint"
    return [
        f"{start} {changes.url}, epoch {changes.epoch}:",
        *(line for operator in changes.operators for line in _change_lines(operator)),
    ]


def _trust_line(maker: str) -> str:
    """Return a line about the trust that a start from there needs."""
    if maker != "foreign":
        return f"trust: {maker.replace('made', 'created')}; a start from it loads pickles"
    return (
        "trust: created by another home; a start from it loads pickles, which may run any "
        "code, and requires --trust, --savepoint-key or --no-pickle"
    )


def _change_lines(operator: OperatorChange) -> list[str]:
    details = "".join(f": {text}" for text in operator.details)
    lines = [f"  {operator.operator}: {operator.verdict}{details}"]
    for state in operator.states:
        reasons = f": {'; '.join(state.details)}" if state.details else ""
        lines.append(f"    {state.state}: {state.verdict}{reasons}")
        if state.verdict == "refused":
            lines += [f"      stored    {state.stored}", f"      declared  {state.declared}"]
    return lines


def _part_text(part: AttributeReport) -> str:
    if part.is_fixed:
        return ", set by the constructor"
    return ", written entry by entry" if part.is_per_entry else ""


def _state_lines(state: StateReport) -> list[str]:
    scope = f"{state.group_count} key groups" if state.scope == "key_groups" else "per subtask"
    return [
        f"  {state.operator}: {scope}{f', {state.join}' if state.join else ''}",
        *(
            f"    {part.name}: {part.type}, {part.codec}{_part_text(part)}"
            for part in ([] if state.is_of_sdk else state.attributes)  # They are settings.
        ),
        *(
            f"    {item.name}: {item.kind} of {item.type}, {item.codec}, "
            f"{'no TTL' if item.ttl_ms is None else f'TTL {duration_text(item.ttl_ms)}'}"
            for item in state.keyed
        ),
    ]
