"""What becomes of a job's state under another version of its plugin.

Asked and answered in a child process, ``python -m bicycle_runtime.jobs.upgrading.planning HOME``:
the environment of the plugin is put on the import path there, and never on that of a service.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.child_answers import NoAnswerError, ask_child
from bicycle_runtime.jobs.errors import UPGRADE_NOT_PLANNED
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.jobs.inspection.state_changes import require_no_loss, state_changes
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import entered
from bicycle_runtime.jobs.savepoints.commands import open_origin
from bicycle_sdk.errors import BicycleError

__all__ = ["main", "plan_upgrade"]

_MODULE = "bicycle_runtime.jobs.upgrading.planning"
_TIMEOUT_S = 300


def plan_upgrade(home: Home, wanted: JobRequest, *, checkpoint: str, job: str) -> Mapping[str, Any]:
    """Hold the version that is wanted against the last published epoch; nothing is changed.

    Args:
        home: Packed environments are kept in its cache.
        wanted: The job with that version.
        checkpoint: Path or URL of the job's checkpoints.
        job: The job's id, for errors.

    Returns:
        ``changes`` as ``bicycle plan --from`` has them, ``operators`` (the uids of the version),
        and its ``plugin_version``.

    Raises:
        STATE_WOULD_BE_LOST: state is refused, or lost and that is not allowed.
        UPGRADE_NOT_PLANNED: the child process gave no answer.
        BicycleError: the version cannot be loaded or built, or it breaks a rule.
    """
    given = json.dumps({"request": wanted.to_json(), "checkpoint": checkpoint}).encode()
    try:
        answer = ask_child(_MODULE, str(home.path), given=given, timeout_s=_TIMEOUT_S)
    except NoAnswerError as error:
        raise UPGRADE_NOT_PLANNED(job=job, reason=str(error)) from None
    if "error" in answer:
        raise error_from_json(answer["error"])
    found: Mapping[str, Any] = answer
    return found


def main(arguments: list[str]) -> int:
    """Answer one request."""
    answer_descriptor = os.dup(1)
    os.dup2(2, 1)  # User code may print.
    given = json.loads(sys.stdin.buffer.read())
    try:
        answer = _planned(Home(Path(arguments[0])), given)
    except BicycleError as error:
        answer = {"error": error.to_json()}
    with os.fdopen(answer_descriptor, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    return 0


def _planned(home: Home, given: Mapping[str, Any]) -> dict[str, Any]:
    request = JobRequest.from_json(given["request"])
    options = request.options
    bundle = extract(entered(options.plugin, options.plugin_env, home), request.params)
    origin = open_origin(given["checkpoint"])
    bundle = with_operator_ids(bundle, origin.manifest.operator_ids)
    report = inspect_job(bundle, parallelism=options.parallelism)
    changes = state_changes(origin, bundle, report)
    require_no_loss(changes, allows_dropped=options.allow_dropped_state)
    return {
        "changes": changes.to_json(),
        "operators": [vertex.id for vertex in bundle.graph.vertices],
        "plugin_version": bundle.plugin_version,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
