"""``bicycle rescale``: other parallelism for a job that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bicycle_runtime.base.options import describe, from_mapping
from bicycle_runtime.cli.access import reached_jobs, service_options
from bicycle_runtime.cli.commands import examples
from bicycle_runtime.cli.parameters import answers, declared_options, job_names, pairs
from bicycle_runtime.cli.rendering import answer_json, byte_text, duration_text, show_table
from bicycle_runtime.engine.loop.rescaling import Rescaled
from bicycle_runtime.jobs.control.rescaling import RescaleOptions

__all__ = ["rescale_command"]


def _parallelisms(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Any:
    parallelisms = {}
    for uid, text in pairs(texts, "--operator", form="UID=NUMBER").items():
        if not (text.isascii() and text.isdecimal()) or int(text) < 1:
            raise click.BadParameter(
                f"parallelism must be a whole number, got {text!r}", param_hint="--operator"
            )
        parallelisms[uid] = int(text)
    return parallelisms


def _parallelism(_context: click.Context, _argument: click.Parameter, text: str | None) -> Any:
    if text is not None and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise click.BadParameter(
            f"parallelism must be at least 1, got {text!r}", param_hint="NUMBER"
        )
    return text


@click.command(
    "rescale",
    epilog=examples(
        "bicycle rescale wordcount 8",
        "bicycle rescale wordcount --operator counts=16",
    ),
)
@click.argument("job", shell_complete=job_names)
@click.argument("number", required=False, callback=_parallelism)
@declared_options(describe(RescaleOptions))
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="UID=NUMBER",
    callback=_parallelisms,
    help="Parallelism of one operator; takes precedence over --parallelism. Repeatable.",
)
@service_options
@answers
def rescale_command(
    *,
    job: str,
    number: str | None,
    operators: Mapping[str, int],
    as_json: bool,
    **given: str | None,
) -> None:
    """Change the parallelism of a running job.

    JOB is an id from `bicycle list`, and NUMBER is the new parallelism. The job rescales
    between two epochs, without a restart, and reads no input again. If the change is not
    possible, the job continues as before.
    """
    if number is not None and given["parallelism"] is not None:
        raise click.UsageError("use either NUMBER or --parallelism")
    given["parallelism"] = number or given["parallelism"]
    options = from_mapping(
        RescaleOptions, {name: text for name, text in given.items() if text is not None}
    )
    if options.parallelism is None and not operators:
        raise click.UsageError("set the parallelism: NUMBER, or --operator UID=NUMBER")
    done = reached_jobs().rescale(job, options, operators)
    if as_json:
        answer_json({"job": job, **done.to_json()})
        return
    click.echo(_sentence(job, done))
    changed = [uid for uid, parallelism in done.new.items() if parallelism != done.old[uid]]
    if changed:
        rows = [(uid, str(done.old[uid]), str(done.new[uid])) for uid in changed]
        show_table(("operator", "before", "now"), rows)


def _sentence(job: str, done: Rescaled) -> str:
    if done.new == done.old:
        return f"{job} already has this parallelism"
    return (
        f"{job}: rescaled in epoch {done.epoch}, paused for {duration_text(done.pause_ms)}, "
        f"state {byte_text(done.state_bytes)}"
    )
