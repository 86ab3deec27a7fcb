"""A job bundle made of an environment, in this process.

Functions are pickled and checked as extraction does it, so a function that cannot be submitted
fails in a test, too, with the same error. Two things differ, because harness and test share a
process: code of the main module (a script, a notebook) is accepted, and classes that go by value
are loaded as the classes of the test, so records compare equal.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

import bicycle_sdk
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.extraction.errors import NOT_SHIPPABLE
from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.extraction.pickling import PayloadWriter
from bicycle_runtime.extraction.unpicklable import find_unpicklable
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.graph import JobGraph

_PLUGIN = "harness"


def bundle_of(env: GraphDraft, *, name: str = "test") -> JobBundle:
    """Return the bundle of the job that was built on an environment.

    Args:
        env: The environment, with all streams and sinks.
        name: Name of the job.

    Raises:
        GraphError: two vertices have one uid, or types do not fit.
        NOT_SHIPPABLE: a function holds something that cannot travel to workers.
    """
    graph = env.build_graph(name)
    return bundle_of_graph(graph, env.payloads)


def bundle_of_graph(graph: JobGraph, payloads: Mapping[str, Any]) -> JobBundle:
    """Return the bundle of a graph with its live objects; errors as of ``bundle_of``."""
    writer = PayloadWriter(ImportSearch(), is_loaded_here=True)
    try:
        written = writer.write_all(payloads)
    except Exception as error:
        for payload_id, value in sorted(payloads.items()):
            _check(payload_id, value, lambda part: _refusal(part, writer), error)
        raise
    pickled = {payload_id: payload.data for payload_id, payload in written.items()}
    return JobBundle(
        graph=graph,
        payloads=pickled,
        shipping={payload_id: payload.shipping for payload_id, payload in written.items()},
        digest=bundle_digest(graph, pickled),
        plugin=_PLUGIN,
        plugin_version="0",
        dist=_PLUGIN,
        sdk_version=bicycle_sdk.__version__,
        python_version=".".join(platform.python_version_tuple()[:2]),
    )


def _check(
    payload_id: str, value: Any, refusal: Callable[[Any], str | None], cause: Exception
) -> None:
    if refusal(value) is None:
        return
    vertex, _, role = payload_id.rpartition("/")
    unpicklable = find_unpicklable(role, value, refusal=refusal)
    raise NOT_SHIPPABLE(
        plugin=_PLUGIN,
        dist=_PLUGIN,
        vertex=vertex,
        role=role,
        name=unpicklable.name,
        held=unpicklable.held,
        type_name=unpicklable.type_name,
        location=unpicklable.location or "the job",
        reason=unpicklable.reason,
    ) from cause


def _refusal(value: Any, writer: PayloadWriter) -> str | None:
    try:
        writer.write(value)
    except Exception as error:  # noqa: BLE001 - Pickling calls user code, which may raise anything.
        return str(error) or type(error).__name__
    return None
