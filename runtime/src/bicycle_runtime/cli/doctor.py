"""``bicycle doctor``: can this machine run jobs?"""

from __future__ import annotations

from dataclasses import asdict

import click

from bicycle_runtime.cli.parameters import home
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_text


@command("doctor", "bicycle doctor", "bicycle doctor --spark")
@click.option("--spark", "with_spark", is_flag=True, help="Also run a small job on Spark.")
@click.option(
    "--master", metavar="TEXT", help="Spark master URL for --spark. Default: embedded Spark."
)
@answers
def doctor_command(*, with_spark: bool, master: str | None, as_json: bool) -> None:
    """Check whether this machine can run jobs.

    The checks cover Java, Python, versions, disk and memory; --spark also runs a small job.
    Each failed check prints a fix, and the exit code is then 6. With --json, the checks are the
    fact `checks` of the error.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.getting_started.doctor import examine, require_health

    checks = examine(home(), with_spark=with_spark or master is not None, master=master)
    if as_json:
        require_health(checks)
        answer_json({"checks": [asdict(check) for check in checks]})
        return
    for check in checks:
        show_text(f"{'ok  ' if check.is_ok else 'FAIL'}  {check.name}: {check.found}")
        if not check.is_ok:
            show_text(f"      fix: {check.fix}")
    require_health(checks)
