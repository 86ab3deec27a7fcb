"""Stable ids of operators without a uid, across later versions of the code.

The SDK numbers such operators in the order of calls, so that an operator that is put in between
would shift all ids behind it, and with them state, offsets and watermarks. Each manifest therefore
has the *operator ids* of its graph: the properties of such an operator (kind, name, connector), by
id. A graph of later code gets the ids of the operators that it shares with the former one. An
operator that could be one of several gets no id of theirs when it holds something: nothing is
guessed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.connectors.registry import ConnectorRegistry
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.layouts.manifest import OperatorIds
from bicycle_runtime.recovery.errors import STATE_LOST, EpochGoneError, ManifestError
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.graph import JobGraph, Vertex, descriptor_of

_NUMBERED = re.compile(r"vertex_(\d+)")


def operator_ids_of(graph: JobGraph) -> OperatorIds:
    """Return the signatures of operators without a uid, and of loops."""
    operators = [(vertex.id, _signature(vertex)) for vertex in graph.vertices if vertex.uid is None]
    return OperatorIds(operators=tuple(operators), loops=_loops_of(graph))


def last_operator_ids(storage: Storage) -> OperatorIds:
    """Return the operator ids of the newest readable manifest, perhaps empty."""
    history = EpochHistory(storage)
    for epoch in reversed(history.epochs()):
        try:
            return history.manifest(epoch).operator_ids
        except (ManifestError, EpochGoneError):
            continue  # The driver continues from the epoch before, too.
    return OperatorIds()


def with_operator_ids(bundle: JobBundle, operator_ids: OperatorIds) -> JobBundle:
    """Return the job with the ids that operators without a uid had before.

    Args:
        bundle: The job, numbered again.
        operator_ids: The ids of the former graph.
    """
    former = {uid: _with_current_words(found) for uid, found in operator_ids.operators}
    ids = _ids(bundle.graph, former)
    if all(old == new for old, new in ids.items()):
        return bundle
    graph = dataclasses.replace(
        bundle.graph,
        vertices=tuple(
            dataclasses.replace(vertex, id=ids.get(vertex.id, vertex.id))
            for vertex in bundle.graph.vertices
        ),
        edges=tuple(
            dataclasses.replace(
                edge,
                source_id=ids.get(edge.source_id, edge.source_id),
                target_id=ids.get(edge.target_id, edge.target_id),
            )
            for edge in bundle.graph.edges
        ),
    )
    payloads = {_rename(name, ids): data for name, data in bundle.payloads.items()}
    shipping = {_rename(name, ids): way for name, way in bundle.shipping.items()}
    digest = bundle_digest(graph, payloads)
    return dataclasses.replace(
        bundle, graph=graph, payloads=payloads, shipping=shipping, digest=digest
    )


def _ids(graph: JobGraph, operator_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the stable id of each operator without a uid, by its present id."""
    numbered = [vertex for vertex in graph.vertices if vertex.uid is None]
    if not operator_ids:
        return {vertex.id: vertex.id for vertex in numbered}
    found: dict[str, str] = {}
    free = dict(operator_ids)
    for signature in dict.fromkeys(map(_signature, numbered)):
        alike = [vertex for vertex in numbered if _signature(vertex) == signature]
        former = [uid for uid, stored in operator_ids.items() if stored == signature]
        if len(alike) == len(former) or descriptor_of(alike[0].kind).passes_on:
            for vertex, uid in zip(alike, former, strict=False):
                found[vertex.id] = uid
                del free[uid]
    _pair_lone_ones([vertex for vertex in numbered if vertex.id not in found], free, found)
    given_uids = {vertex.id for vertex in graph.vertices if vertex.uid is not None}
    fresh = _fresh_ids([*operator_ids, *(vertex.id for vertex in numbered), *given_uids])
    return {
        vertex.id: found[vertex.id]
        if vertex.id in found
        else next(fresh)
        if vertex.id in operator_ids
        else vertex.id
        for vertex in numbered
    }


def _pair_lone_ones(vertices: list[Vertex], free: Mapping[str, str], found: dict[str, str]) -> None:
    """Pair the only new operator of a kind with the only removed one: a rename."""
    for kind in {vertex.kind for vertex in vertices}:
        if descriptor_of(kind).passes_on:
            continue  # Which of several alike is which makes no difference.
        alike = [vertex for vertex in vertices if vertex.kind is kind]
        former = [uid for uid, stored in free.items() if stored.partition(" ")[0] == kind.value]
        if len(alike) == len(former) == 1:
            found[alike[0].id] = former[0]


def _fresh_ids(taken: Iterable[str]) -> Iterator[str]:
    numbers = [int(match[1]) for uid in taken if (match := _NUMBERED.fullmatch(uid))]
    number = max(numbers, default=0)
    while True:
        number += 1
        yield f"vertex_{number}"


def _signature(vertex: Vertex) -> str:
    connector = vertex.details.get("connector", {})
    words = [vertex.kind.value, connector.get("connector_type", ""), vertex.name]
    return _with_current_words(" ".join(words))


def _with_current_words(signature: str) -> str:
    """Return a signature with the current words of connectors that had others."""
    return " ".join(map(ConnectorRegistry.current_word, signature.split(" ")))


def _rename(payload_id: str, ids: Mapping[str, str]) -> str:
    vertex, slash, role = payload_id.rpartition("/")
    return f"{ids.get(vertex, vertex)}{slash}{role}"


def renumbered_loops(
    manifest: Manifest, graph: JobGraph, *, job: str, allows_dropped: bool = False
) -> dict[int, tuple[StagedFile, ...]]:
    """Return the records in flight on feedback edges, by the present edge numbers.

    Raises:
        STATE_LOST: an edge with records is gone, which is not allowed.
    """
    now = _loops_of(graph)
    then = {number: words for words, number in manifest.operator_ids.loops.items()}
    lost = lost_loops(manifest, graph)
    if lost and not allows_dropped:
        words = ", ".join(f"records on the loop {each!r}" for each in lost.values())
        raise STATE_LOST(job=job, lost=words, instead="")
    feedback = {}
    for number, files in manifest.feedback.items():
        if number not in lost:
            feedback[now[then[number]] if then else number] = files
    return feedback


def lost_loops(manifest: Manifest, graph: JobGraph) -> dict[int, str]:
    """Return the sealed loops with records that the graph does not have, by number."""
    now = _loops_of(graph)
    then = {number: words for words, number in manifest.operator_ids.loops.items()}
    lost = {number: then.get(number, "") for number in manifest.feedback} if then else {}
    return {number: words for number, words in lost.items() if words not in now}


def _loops_of(graph: JobGraph) -> dict[str, int]:
    """Return the numbers of the feedback edges, by their signatures."""
    return {
        f"{edge.source_id} {edge.output_tag or ''} > {edge.target_id} {edge.input_ordinal}": number
        for number, edge in enumerate(graph.edges)
        if edge.feedback
    }
