"""The topology of jobs and streams: the inputs and outputs of all jobs.

A stream is named by its address, so that jobs meet at it without knowing of each other. Streams
that only the job itself has, such as a generator or the console, are named after the job.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.recovery.savepoints import job_facts
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

_PATIENCE_S = 8.0
_FILES, _FILE_URL, _SQLITE = "file:", "file://", "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """A source or a sink of a job, and the streams that it reads or writes."""

    operator: str
    connector: str
    role: Literal["source", "sink"]
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """A job with its sources and sinks. ``problem`` tells why they are not known."""

    job: str
    state: str
    uses: tuple[StreamUse, ...] = ()
    problem: str = ""

    def streams(self, role: Literal["source", "sink"]) -> list[str]:
        """Return the streams that the job reads or writes."""
        found = [name for use in self.uses if use.role == role for name in use.streams]
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNode:
    """A stream, with the jobs that write and read it."""

    name: str
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTopology:
    """Jobs and the streams between them, from first inputs to last outputs."""

    jobs: tuple[JobNode, ...]
    streams: tuple[StreamNode, ...]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> JobTopology:
        """Return the topology of a ``to_json`` value."""
        return msgspec.convert(plain, prepare_type(cls))

    def to_text(self) -> str:
        """Return the streams with their writers and readers, and the problems of jobs."""
        lines = []
        for stream in self.streams:
            lines.append(stream.name)
            for word, jobs in (("written by", stream.written_by), ("read by", stream.read_by)):
                if jobs:
                    lines.append(f"  {word} {', '.join(jobs)}")
        lines += [f"{job.job}: {job.problem}" for job in self.jobs if job.problem]
        return "\n".join(lines)

    def to_mermaid(self) -> str:
        """Return the drawing in Mermaid's language: streams are boxes, jobs are round."""
        lines = ["flowchart LR"]
        numbers = {stream.name: number for number, stream in enumerate(self.streams)}
        lines += [f'  s{number}["{_quote(name)}"]' for name, number in numbers.items()]
        for number, job in enumerate(self.jobs):
            lines.append(f'  j{number}(["{_quote(job.job)}<br/>{job.state}"])')
            lines += [f"  s{numbers[name]} --> j{number}" for name in job.streams("source")]
            lines += [f"  j{number} --> s{numbers[name]}" for name in job.streams("sink")]
        return "\n".join(lines)


def topology_of(nodes: Sequence[JobNode]) -> JobTopology:
    """Return jobs and their streams; files join the directory that another job writes."""
    targets = {name for node in nodes for name in node.streams("sink")}
    jobs = tuple(_join(node, targets) for node in nodes)
    read: dict[str, list[str]] = {}
    written: dict[str, list[str]] = {}
    for job in jobs:
        for name in job.streams("source"):
            read.setdefault(name, []).append(job.job)
        for name in job.streams("sink"):
            written.setdefault(name, []).append(job.job)
    names = sorted({*read, *written}, key=lambda name: (name in written, name not in read, name))
    streams = tuple(
        StreamNode(
            name=name,
            written_by=tuple(written.get(name, ())),
            read_by=tuple(read.get(name, ())),
        )
        for name in names
    )
    return JobTopology(jobs=jobs, streams=streams)


def job_node(
    status: JobStatus, hide: Callable[[str, str], str] = lambda _job, text: text
) -> JobNode:
    """Return the streams of a job, from the graph in its checkpoint.

    Args:
        status: Of the job.
        hide: Removes secrets from a text about a job.
    """
    node = JobNode(job=status.id, state=status.state.value)
    try:
        graph, directory = _stored_graph(status)
    except BicycleError as error:
        return replace(node, problem=hide(status.id, error.summary))
    if graph is None:
        return replace(node, problem="its checkpoint has no graph yet")
    uses = []
    for vertex in graph.vertices:
        if vertex.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            use = _use(status.id, vertex, directory)
            names = tuple(hide(status.id, name) for name in use.streams)
            uses.append(replace(use, streams=names))
    return replace(node, uses=tuple(uses))


def _stored_graph(status: JobStatus) -> tuple[JobGraph | None, str]:
    """Return the graph in the checkpoint of a job, and the job's working directory."""
    if not status.checkpoint:
        return None, ""
    facts = job_facts(open_storage(status.checkpoint, patience_s=_PATIENCE_S))
    if "graph" not in facts:
        return None, ""
    directory = str(
        facts.get("working_directory", "")
    )  # Checkpoints of earlier versions have no directory.
    return JobGraph.from_json(msgspec.json.encode(facts["graph"])), directory


def _use(job: str, vertex: Vertex, directory: str) -> StreamUse:
    connector = vertex.details["connector"]
    word = connector["connector_type"]
    found = streams_of(word, connector.get("properties", {}), directory)
    return StreamUse(
        operator=vertex.uid or vertex.id,
        connector=word,
        role="source" if vertex.kind is OperatorKind.SOURCE else "sink",
        streams=tuple(found) or (f"{word} of {job}",),
    )


def streams_of(connector: str, properties: Mapping[str, Any], directory: str = "") -> list[str]:
    """Return the addresses that a connector reads or writes; [] if it has no place.

    Args:
        connector: Its word.
        properties: The properties in the graph.
        directory: Where relative paths begin; empty where that is not known.

    Example:
        >>> streams_of("kafka", {"brokers": "b:9092,a:9092", "topics": ["orders"]})
        ['kafka://a:9092,b:9092/orders']
        >>> streams_of("redis", {"address": "redis://host/a,b"})
        ['redis://host/a', 'redis://host/b']
        >>> streams_of("jsonl", {"path": "./in/*.jsonl"}), streams_of("console", {})
        (['file:in/*.jsonl'], [])
        >>> streams_of("jsonl", {"path": "../in"}, "/home/ada")
        ['file:/home/in']
        >>> streams_of("stream_file", {"address": "file://./events.ss/a"}, "/home/ada")
        ['file:///home/ada/events.ss/a']
        >>> streams_of("postgres", {"url": "postgresql://ada@host/shop", "table": "orders"})
        ['postgresql://host/shop/orders']
    """
    if address := properties.get("address"):
        location, _, keys = address.rpartition("/")
        if location.startswith(_FILE_URL):
            location = _FILE_URL + _resolve(location.removeprefix(_FILE_URL), directory)
        return [f"{location}/{key}" for key in keys.split(",") if key]
    if brokers := properties.get("brokers"):
        location = ",".join(sorted(brokers.split(",")))
        topics = properties.get("topics") or [properties.get("topic") or "*"]
        return [f"kafka://{location}/{topic}" for topic in topics]
    location = _location_of(connector, properties, directory)
    if stream := properties.get("stream"):
        return [f"{location}/{key}" for key in stream.split(",") if key]
    return [location] if location else []


def _location_of(connector: str, properties: Mapping[str, Any], directory: str) -> str | None:
    """Return the single place of a connector: files, a table, a port."""
    table, url, port = (properties.get(name) for name in ("table", "url", "port"))
    if path := properties.get("path"):
        return str(path) if "://" in path else _FILES + _resolve(path, directory)
    if catalog := properties.get("catalog"):
        name = properties.get("catalog_name", "")
        return f"{_resolve_database(catalog, directory)}/{'/'.join(filter(None, (name, table)))}"
    if url:
        parts = urlsplit(url)
        location = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        return f"{location}/{table}" if table else location
    if table:
        return f"{connector}:{table}"
    return f"{connector}://{properties.get('host', '127.0.0.1')}:{port}" if port else None


def _resolve(path: str, directory: str) -> str:
    return posixpath.normpath(posixpath.join(directory, path))


def _resolve_database(url: str, directory: str) -> str:
    """Return a database's address; an SQLite file path begins after three slashes."""
    if not url.startswith(_SQLITE):
        return url.rstrip("/")
    return _SQLITE + _resolve(url.removeprefix(_SQLITE), directory)


def _join(node: JobNode, written: set[str]) -> JobNode:
    """Return the node with files replaced by the directory that another sink writes."""
    uses = tuple(
        replace(use, streams=tuple(_folder_of(s, written) for s in use.streams))
        if use.role == "source"
        else use
        for use in node.uses
    )
    return replace(node, uses=uses)


def _folder_of(stream: str, written: set[str]) -> str:
    if stream in written:
        return stream
    return next((each for each in sorted(written) if stream.startswith(f"{each}/")), stream)


def _quote(text: str) -> str:
    return text.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
