"""A job bundle made of an environment, in this process.

Functions are checked as extraction checks them, so that what could not be submitted fails in a test
too, with the same error. Two things differ, because harness and test share a process: code of the
main module is taken (a script or a notebook is that), and classes that travel by value come back as
the classes of the test, so that records compare equal.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cloudpickle import cloudpickle

import bicycle_sdk
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.extraction.errors import NOT_SHIPPABLE
from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.extraction.pickling import PayloadWriter
from bicycle_runtime.extraction.unpicklable import find_unpicklable
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_sdk.drafts import GraphDraft
from bicycle_sdk.graph import JobGraph

__all__ = ["bundle_of", "bundle_of_graph"]

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
    """Return the bundle of a graph and the live objects beside it; errors as ``bundle_of``."""
    with _class_names_kept():
        writer = PayloadWriter(ImportSearch())
        for payload_id, value in sorted(payloads.items()):
            _check(payload_id, value, lambda part: _as_submitted(part, writer))
    pickled = {payload_id: _pickle(payload_id, value) for payload_id, value in payloads.items()}
    return JobBundle(
        graph=graph,
        payloads=pickled,
        shipping=dict.fromkeys(pickled, "by value"),
        digest=bundle_digest(graph, pickled),
        plugin=_PLUGIN,
        plugin_version="0",
        dist=_PLUGIN,
        sdk_version=bicycle_sdk.__version__,
        python_version=".".join(platform.python_version_tuple()[:2]),
    )


@contextmanager
def _class_names_kept() -> Iterator[None]:
    """Let extraction's pickler name classes, and forget those names: here, classes stay alive."""
    names = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS
    before = dict(names)
    yield
    for cls in list(names):
        if cls in before:
            names[cls] = before[cls]
        else:
            del names[cls]


def _check(payload_id: str, value: Any, refusal: Callable[[Any], str | None]) -> None:
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
    )


def _pickle(payload_id: str, value: Any) -> bytes:
    _check(payload_id, value, _as_cloudpickle)
    return pickle_by_value(value)


def _as_submitted(value: Any, writer: PayloadWriter) -> str | None:
    try:
        writer.write(value)
    except Exception as error:  # noqa: BLE001 - Pickling calls user code, which may raise anything.
        reason = str(error) or type(error).__name__
        return None if "__main__" in reason else reason
    return None


def _as_cloudpickle(value: Any) -> str | None:
    try:
        pickle_by_value(value)
    except Exception as error:  # noqa: BLE001 - Pickling calls user code, which may raise anything.
        return str(error) or type(error).__name__
    return None
