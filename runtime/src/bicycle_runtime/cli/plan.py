"""``bicycle plan``: what a plugin's job promises, and how its records and state are carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bicycle_runtime.cli.parameters import answers, plugin_option, set_option
from bicycle_runtime.cli.rendering import answer_json

if TYPE_CHECKING:
    from bicycle_runtime.jobs.inspection import JobReport, StateReport

__all__ = ["plan_command", "report_lines"]

_GUARANTEES = ["at-most-once", "at-least-once", "exactly-once"]


@click.command("plan")
@plugin_option
@set_option
@click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    help="Plan the job as if it ran with this parallelism.",
)
@click.option(
    "--require",
    "wanted",
    type=click.Choice(_GUARANTEES),
    help="Fail with exit code 4 when the job promises less than this.",
)
@answers
def plan_command(
    *,
    plugin: str,
    params: dict[str, str],
    parallelism: int | None,
    wanted: str | None,
    as_json: bool,
) -> None:
    """Show the guarantee of a plugin's job from end to end, its state, its codecs, and warnings.

    The guarantee is that of the weakest source or sink, which is named. Nothing is started.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.extraction.discovery import discover
    from bicycle_runtime.extraction.extract import extract
    from bicycle_runtime.jobs.graph_changes import require_parallelism
    from bicycle_runtime.jobs.inspection import inspect_job, require_guarantee

    bundle = extract(discover().find(plugin), params)
    require_parallelism(bundle.graph, parallelism)
    report = inspect_job(bundle, parallelism=parallelism)
    if wanted is not None:
        require_guarantee(report, wanted)
    if as_json:
        answer_json(report.to_json())
    else:
        click.echo("\n".join(report_lines(report)))


def report_lines(report: JobReport) -> list[str]:
    """Return the report for people."""
    link = report.weakest.text if report.weakest else "every source and sink is exactly-once"
    shipping = list(report.shipping.values())
    by_value = shipping.count("by value")
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
        f"functions and types: {len(shipping) - by_value} by reference, {by_value} by value",
        "warnings:" if report.warnings else "warnings: none",
        *(f"  {item.kind}: {item.operator}: {item.text}" for item in report.warnings),
    ]
    return lines


def _state_lines(state: StateReport) -> list[str]:
    scope = f"{state.group_count} key groups" if state.scope == "key_groups" else "per subtask"
    return [
        f"  {state.operator}: {scope}",
        *(
            f"    {part.name}: {part.type}, {part.codec}"
            f"{', written entry by entry' if part.is_per_entry else ''}"
            for part in state.attributes
        ),
        *(
            f"    {item.name}: {item.kind} of {item.type}, {item.codec}, "
            f"{'lives for ever' if item.ttl_ms is None else f'lives {item.ttl_ms} ms'}"
            for item in state.keyed
        ),
    ]
