"""The program that computes the future of a job's state under another version.

It is a child process, which answers one question (``base.pipes``): the environment of the plugin is
put on the import path there, and never on that of a service.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.engine.replay.rereading import rereaders
from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.errors import BLUE_GREEN_REFUSED
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.jobs.inspection.state_changes import require_no_loss, state_changes
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import resolve_plugin
from bicycle_runtime.jobs.running.starting import plan_job_setup
from bicycle_runtime.jobs.savepoints.commands import open_origin
from bicycle_runtime.recovery.adoption import AdoptedEpoch
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import JobGraph, OperatorKind
from bicycle_sdk.random_source import system_random


def main(arguments: list[str]) -> int:
    """Answer one question."""
    return answer_once(arguments[0], _planned_or_not)


def _planned_or_not(given: dict[str, Any], _blobs: list[bytes]) -> dict[str, Any]:
    try:
        return _plan(Home(Path(given["home"])), given)
    except BicycleError as error:
        return {"error": error.to_json()}


def _plan(home: Home, given: Mapping[str, Any]) -> dict[str, Any]:
    request = JobRequest.from_json(given["request"])
    options = request.options
    bundle = extract(resolve_plugin(options.plugin, options.plugin_env, home), request.params)
    origin = open_origin(given["checkpoint"])
    bundle = with_operator_ids(bundle, origin.manifest.operator_ids)
    report = inspect_job(bundle, parallelism=options.parallelism)
    # The job publishes the output that its sinks hold back when it is stopped.
    stopped = replace(origin, manifest=replace(origin.manifest, held=frozenset()))
    changes = state_changes(stopped, bundle, report)
    require_no_loss(changes, allows_dropped=options.allow_dropped_state)
    if given.get("is_followed"):
        _require_same_input(origin, bundle, request, home)
    return {
        "changes": asdict(changes),
        "operators": [vertex.id for vertex in bundle.graph.vertices],
        "plugin_version": bundle.plugin_version,
    }


def _require_same_input(
    origin: AdoptedEpoch, bundle: JobBundle, request: JobRequest, home: Home
) -> None:
    """Check that a version reads the job's input, and can read it once more.

    Raises:
        BLUE_GREEN_REFUSED: it does not, or cannot.
    """
    location = locate_job(request.options, home, clock=SystemClock(), source=system_random())
    setup = plan_job_setup(bundle, request, location)
    graph = origin.graph()
    if graph is None:
        raise BLUE_GREEN_REFUSED(
            job=location.job, reason="its last epoch does not contain its graph"
        )
    own, known = _connectors(setup.graph), _connectors(JobGraph.from_json(json.dumps(graph)))
    for uid in sorted(own.keys() | known.keys()):
        if uid not in own or uid not in known:
            who = "the new version" if uid not in own else "the current version"
            raise BLUE_GREEN_REFUSED(job=location.job, reason=f"{who} has no source {uid!r}")
        if own[uid] != known[uid]:
            raise BLUE_GREEN_REFUSED(job=location.job, reason=f"source {uid!r} reads other input")
    try:
        rereaders(setup)
    except Exception as error:
        reason = f"a source cannot be read while the job reads it: {error}"
        raise BLUE_GREEN_REFUSED(job=location.job, reason=reason) from error


def _connectors(graph: JobGraph) -> dict[str, Any]:
    """Return the input of each source, as it is stored."""
    return {
        vertex.id: json.loads(json.dumps(vertex.details["connector"], default=str))
        for vertex in graph.vertices
        if vertex.kind is OperatorKind.SOURCE
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
