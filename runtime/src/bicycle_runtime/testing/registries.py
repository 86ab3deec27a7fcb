"""The connectors of a job on the harness: built-in ones, the script, and a test's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bicycle_runtime.base.extensions import Extension
from bicycle_runtime.connectors.registry import ConnectorRegistry, default_registry, load_registry
from bicycle_runtime.testing import script as script_module
from bicycle_sdk.graph import JobGraph, OperatorKind


def registry_for(graph: JobGraph, extensions: Sequence[object] = ()) -> ConnectorRegistry:
    """Return our connectors, the script and these extensions.

    Installed extensions are only loaded when the graph names a connector that no registered one
    offers.
    """
    given = [script_module, *extensions]
    ours = load_registry(
        Extension(name=f"testing-{number}", load=partial(_itself, module))
        for number, module in enumerate(given)
    )
    words = {
        vertex.details["connector"]["connector_type"]
        for vertex in graph.vertices
        if vertex.kind in (OperatorKind.SOURCE, OperatorKind.SINK)
    }
    if words <= ours.sources.keys() | ours.sinks.keys():
        return ours
    others = default_registry()
    return ConnectorRegistry(
        {**others.sources, **ours.sources}, {**others.sinks, **ours.sinks}, others.refusals
    )


def _itself(module: object) -> object:
    return module
