"""Changes that a command asks for on a plugin's graph: pure functions; the plugin is unchanged."""

from __future__ import annotations

import dataclasses

from bicycle_runtime.base.errors import OptionError
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.jobs.errors import NothingToFollowError
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

__all__ = ["require_parallelism", "with_follow"]

_FILE_SOURCES = frozenset({"text", "jsonl", "csv"})


def with_follow(bundle: JobBundle) -> JobBundle:
    """Return the job with every file source waiting for more, under a digest of its own.

    Raises:
        NothingToFollowError: no source reads files.
    """
    vertices = tuple(map(_followed, bundle.graph.vertices))
    if not any(_is_file_source(vertex) for vertex in vertices):
        words = sorted(_word(v) for v in vertices if v.kind is OperatorKind.SOURCE)
        raise NothingToFollowError(plugin=bundle.plugin, sources=", ".join(words))
    graph = dataclasses.replace(bundle.graph, vertices=vertices)
    digest = bundle_digest(graph, bundle.payloads)
    return dataclasses.replace(bundle, graph=graph, digest=digest)


def require_parallelism(graph: JobGraph, parallelism: int | None) -> None:
    """Refuse a parallelism that a command asks for and the plugin does not allow.

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


def _followed(vertex: Vertex) -> Vertex:
    if not _is_file_source(vertex):
        return vertex
    connector = vertex.details["connector"]
    properties = {**connector.get("properties", {}), "follow": True}
    details = {**vertex.details, "connector": {**connector, "properties": properties}}
    return dataclasses.replace(vertex, details=details)


def _is_file_source(vertex: Vertex) -> bool:
    return vertex.kind is OperatorKind.SOURCE and _word(vertex) in _FILE_SOURCES


def _word(vertex: Vertex) -> str:
    return str(vertex.details["connector"]["connector_type"])
