"""The program that says what becomes of a job's state under another version of its plugin.

It is a child process, ``python -m bicycle_runtime.jobs.upgrading.planning HOME``: the environment
of the plugin is put on the import path there, and never on that of a service.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.child_processes import answer
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.jobs.inspection.state_changes import require_no_loss, state_changes
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import entered
from bicycle_runtime.jobs.savepoints.commands import open_origin
from bicycle_sdk.errors import BicycleError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Answer one request."""
    home = Home(Path(arguments[0]))
    return answer(lambda given: _planned_or_not(home, json.loads(given)))


def _planned_or_not(home: Home, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _planned(home, given)
    except BicycleError as error:
        return {"error": error.to_json()}


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
