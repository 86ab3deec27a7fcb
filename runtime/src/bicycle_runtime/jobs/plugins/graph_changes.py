"""Changes to a plugin's graph for a command, as pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.jobs.errors import NO_RETENTION, NOTHING_TO_FOLLOW
from bicycle_sdk.errors import OptionError
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

if TYPE_CHECKING:
    from bicycle_runtime.jobs.options import JobOptions

_FILE_SOURCES = frozenset({"text", "jsonl", "csv"})
_SOURCES_WITH_RETENTION = frozenset({"kafka"})


def with_run_options(bundle: JobBundle, options: JobOptions) -> JobBundle:
    """Return the job with its sources changed by the options of a run.

    Raises:
        NOTHING_TO_FOLLOW: no source reads files, but the run follows them.
        NO_RETENTION: no source can lose input, but the run has a policy for that.
    """
    if options.follow:
        bundle = with_follow(bundle)
    if options.on_data_loss is not None:
        bundle = with_data_loss_policy(bundle, options.on_data_loss)
    return bundle


def with_follow(bundle: JobBundle) -> JobBundle:
    """Return the job with all file sources set to follow, and with its own digest.

    Raises:
        NOTHING_TO_FOLLOW: no source reads files.
    """
    if not any(map(_is_file_source, bundle.graph.vertices)):
        raise NOTHING_TO_FOLLOW(plugin=bundle.plugin, sources=_source_words(bundle))
    return _with_property(bundle, _is_file_source, "follow", value=True)


def with_data_loss_policy(bundle: JobBundle, policy: str) -> JobBundle:
    """Return the job with all sources that can lose input doing so by ``policy``.

    Raises:
        NO_RETENTION: no source can.
    """
    if not any(map(_has_retention, bundle.graph.vertices)):
        raise NO_RETENTION(plugin=bundle.plugin, sources=_source_words(bundle))
    return _with_property(bundle, _has_retention, "on_data_loss", value=policy)


def require_parallelism(graph: JobGraph, parallelism: int | None) -> None:
    """Raise an error for a parallelism above the plugin's limit.

    Raises:
        OptionError: it is over the smallest maximum; with that.
    """
    limits = [vertex.max_parallelism for vertex in graph.vertices if vertex.max_parallelism]
    limit = min([graph.config.max_parallelism, *limits])
    if parallelism is not None and parallelism > limit:
        expected = f"a number from 1 to {limit}, the max_parallelism of the plugin"
        raise OptionError(
            group="JobOptions", name="parallelism", found=parallelism, expected=expected
        )


def _with_property(
    bundle: JobBundle, is_meant: Callable[[Vertex], bool], name: str, *, value: Any
) -> JobBundle:
    """Return the job with a property of some connectors set, and with its own digest."""
    vertices = tuple(
        _set_property(vertex, name, value) if is_meant(vertex) else vertex
        for vertex in bundle.graph.vertices
    )
    graph = dataclasses.replace(bundle.graph, vertices=vertices)
    digest = bundle_digest(graph, bundle.payloads)
    return dataclasses.replace(bundle, graph=graph, digest=digest)


def _set_property(vertex: Vertex, name: str, value: Any) -> Vertex:
    connector = vertex.details["connector"]
    properties = {**connector.get("properties", {}), name: value}
    details = {**vertex.details, "connector": {**connector, "properties": properties}}
    return dataclasses.replace(vertex, details=details)


def _source_words(bundle: JobBundle) -> str:
    words = sorted(_word(v) for v in bundle.graph.vertices if v.kind is OperatorKind.SOURCE)
    return ", ".join(words)


def _is_file_source(vertex: Vertex) -> bool:
    return vertex.kind is OperatorKind.SOURCE and _word(vertex) in _FILE_SOURCES


def _has_retention(vertex: Vertex) -> bool:
    return vertex.kind is OperatorKind.SOURCE and _word(vertex) in _SOURCES_WITH_RETENTION


def _word(vertex: Vertex) -> str:
    return str(vertex.details["connector"]["connector_type"])
