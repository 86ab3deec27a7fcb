"""Upload of a wheel to a service, and the start of a job from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bicycle_runtime.extraction.scripts import file_name, text_to_send
from bicycle_runtime.jobs.options import JobOptions, JobRequest

if TYPE_CHECKING:
    from bicycle_runtime.cli.remote import Remote

_PATHS = ("checkpoint_dir", "from_", "savepoint_key")


def wheel_options(command: Any) -> Any:
    """Add ``--wheel`` and ``--lock``."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for flag, text in (
        ("--lock", "With --wheel: lock file with versions and hashes of its libraries."),
        ("--wheel", (
            "Upload this wheel to a service, which runs the job; the wheel contains the plugin of "
            "--plugin. The same wheel is uploaded and installed only once."
        )),
    ):  # fmt: skip
        command = click.option(flag, type=file, help=text)(command)
    return command


def submit_wheel(
    remote: Remote, request: JobRequest, *, wheel: Path, lock: Path | None
) -> dict[str, Any]:
    """Upload a wheel, start its job, and wait until that runs.

    Returns:
        The status of the job, with the ``digest`` of the plugin and the ``service``.

    Raises:
        SERVICE_UNREACHABLE: the service does not answer.
        BicycleError: it refuses the wheel or the job, or the job fails while it starts.
    """
    digest = remote.upload(wheel=wheel, lock=lock)["digest"]
    done = remote.operation("/jobs", {**job_facts(request), "digest": digest})
    status = remote.get(f"/jobs/{done['job_id']}/status")["status"]
    return {**status, "digest": digest, "service": remote.url}


def job_facts(request: JobRequest) -> dict[str, Any]:
    """Return the request of a job for a service, with paths of this machine resolved."""
    defaults = dataclasses.asdict(JobOptions(plugin=request.options.plugin))
    given = dataclasses.asdict(request.options)
    options = {name: value for name, value in given.items() if value != defaults[name]}
    name = options.pop("name", None)
    for path in _PATHS:
        if path in options and "://" not in options[path]:
            options[path] = str(Path(options[path]).expanduser().absolute())
    facts: dict[str, Any] = {
        "options": options, "params": dict(request.params),
        "engine": dict(request.engine), "spark": dict(request.spark),
    }  # fmt: skip
    plugin = request.options.plugin
    text = text_to_send(plugin)
    if text is None:
        facts["plugin"] = plugin
    else:
        facts["pipeline"] = {"file": file_name(plugin), "text": text}
    return facts if name is None else {**facts, "name": name}
