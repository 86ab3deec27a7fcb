"""The setup of the epoch loop from a job bundle: plan, sources, sinks, image."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.connectors.registry import ConnectorRegistry, default_registry
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    LetterFolder,
    Sink,
    Source,
    SourceReader,
    WriterFactory,
)
from bicycle_runtime.engine.errors import BATCH_MODE_ENDLESS
from bicycle_runtime.engine.planning.stages import (
    parallelisms_of,
    plan_stages,
    with_parallelism,
    with_parallelisms,
)
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.layouts.state import OperatorStateMetadata
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.spec import (
    DEAD_LETTERS,
    REPLAYED_LETTERS,
    JobImage,
    PluginInfo,
    StagePlan,
)
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import ErrorAction, JobGraph, OperatorKind, Vertex


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """A job that is ready to run; ``sinks`` includes required dead-letter sinks.

    ``allows_dropped_state`` allows it to begin although it drops sealed state.
    """

    job_id: str
    bundle: JobBundle
    graph: JobGraph
    plan: StagePlan
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    storage: Storage
    dead_letters_dir: str
    allows_dropped_state: bool = False

    def image(
        self,
        run_id: str,
        *,
        blocking_call_ms: int = 1_000,
        state: StateSettings | None = None,
        state_metadata: Mapping[str, OperatorStateMetadata] | None = None,
        readers: Mapping[str, SourceReader] | None = None,
        writers: Mapping[str, WriterFactory] | None = None,
    ) -> JobImage:
        """Return the image for workers.

        Args:
            run_id: Unique to this run of the driver, so that no worker takes it for an earlier one.
            blocking_call_ms: An async function that blocks the event loop for longer is reported.
            state: The backend; None is memory.
            state_metadata: Schema versions in which values of states may be sealed, by operator.
            readers: Readers of the sources; None takes the readers of started sources.
            writers: Writers of the sinks; None takes the writers of the sinks.
        """
        if readers is None:
            readers = {uid: source.reader() for uid, source in self.sources.items()}
        if writers is None:
            writers = {uid: sink.writer() for uid, sink in self.sinks.items()}
        return JobImage(
            job_id=self.job_id,
            run_id=run_id,
            plugin=PluginInfo(
                name=self.bundle.plugin,
                version=self.bundle.plugin_version,
                dist=self.bundle.dist,
            ),
            plan=self.plan,
            payloads=self.bundle.payloads,
            storage=self.storage,
            readers=readers,
            writers=writers,
            blocking_call_ms=blocking_call_ms,
            state=state or StateSettings(),
            state_metadata=state_metadata or {},
            properties=self.graph.config.properties,
        )

    def _letters_storage(self) -> LocalStorage:
        """Return the folder of dead letters, which is not created without its checkpoint."""
        required = self.storage.required_folder if isinstance(self.storage, LocalStorage) else ""
        return LocalStorage(self.dead_letters_dir, required_folder=required)

    def services(
        self, uid: str, *, clock: Clock, collected: dict[str, list[Any]], console: Any,
        epoch_interval_ms: int, wake: Callable[[], None] | None = None,
    ) -> DriverServices:  # fmt: skip
        """Return the driver's services for the connector of a vertex."""
        letters = LetterFolder(
            storage=self._letters_storage(), plugin=self.bundle.plugin,
            plugin_version=self.bundle.plugin_version,
        )  # fmt: skip
        return DriverServices(
            storage=self.storage, prefix=f"connectors/{uid}", clock=clock, collected=collected,
            console=console, job=self.job_id, epoch_interval_ms=epoch_interval_ms, letters=letters,
            wake=wake,
        )  # fmt: skip


def prepare_job(
    bundle: JobBundle, *, job_id: str, storage: Storage, parallelism: int | None = None,
    registry: ConnectorRegistry | None = None, parallelisms: Mapping[str, int] | None = None,
    dead_letters_dir: str | None = None,
) -> JobSetup:  # fmt: skip
    """Plan a job and create its connectors. Nothing is opened or started.

    Args:
        bundle: The extracted job.
        job_id: Name of the job within its checkpoint directory.
        storage: The job's own folder of checkpoint storage.
        parallelism: Overrides the parallelism of every operator; None keeps the graph's.
        registry: The registry of connectors; None takes this installation's.
        parallelisms: Parallelism by operator, which wins over the others; operators that the graph
            does not have are ignored.
        dead_letters_dir: Local directory for dead letters; None is one in the storage, which then
            must be local.

    Raises:
        GraphError: the graph is not valid (at this parallelism).
        NO_EVENT_TIME: records without event time reach an operator that needs it.
        BicycleError: a connector's options are wrong.
    """
    bundle.graph.validate()
    registry = registry or default_registry()
    sources = {
        vertex.id: registry.create_source(_connector_spec(bundle, bundle.graph, vertex))
        for vertex in bundle.graph.vertices
        if vertex.kind is OperatorKind.SOURCE
    }
    require_event_times(bundle.graph, sources)
    sinks = {
        vertex.id: registry.create_sink(_connector_spec(bundle, bundle.graph, vertex))
        for vertex in bundle.graph.vertices
        if vertex.kind is OperatorKind.SINK
    }
    limits = {
        uid: source.default_parallelism_max
        for uid, source in sources.items()
        if source.default_parallelism_max is not None
    }
    graph = (
        bundle.graph if parallelism is None else with_parallelism(bundle.graph, parallelism, limits)
    )
    if parallelisms:
        graph = with_parallelisms(bundle.graph, {**parallelisms_of(graph), **parallelisms})
    folder = dead_letters_dir or f"{storage.url}/dead_letters"
    if makes_letters(graph):
        sinks[DEAD_LETTERS] = registry.create_sink(_letters_spec(DEAD_LETTERS, folder, 1_000))
    has_letters = makes_letters(graph) or any(sink.refuses_records for sink in sinks.values())
    if has_letters or Path(folder).is_dir():  # Letters of former code can be replayed, too.
        marks = _letters_spec(REPLAYED_LETTERS, f"{folder}/replayed", 0)
        sinks[REPLAYED_LETTERS] = registry.create_sink(marks)
    return JobSetup(
        job_id=job_id, bundle=bundle, graph=graph,
        plan=plan_stages(graph, sinks=sinks),
        sources=sources, sinks=sinks, storage=storage, dead_letters_dir=folder,
    )  # fmt: skip


def makes_letters(graph: JobGraph) -> bool:
    """Return whether failed records become dead letters, which have their own sink."""
    return any(each.on_error.action is ErrorAction.DEAD_LETTER for each in graph.vertices)


def _connector_spec(bundle: JobBundle, graph: JobGraph, vertex: Vertex) -> ConnectorSpec:
    connector = vertex.details["connector"]
    return ConnectorSpec(
        vertex_id=vertex.id,
        connector_type=connector["connector_type"],
        properties=connector.get("properties", {}),
        payloads={
            role: cloudpickle.loads(bundle.payloads[vertex.payload_id(role)])
            for role in vertex.payloads
            if role != "output_type"
        },
        record_type=_record_type(bundle, graph, vertex),
        on_error=vertex.on_error.action.value,
    )


def _record_type(bundle: JobBundle, graph: JobGraph, vertex: Vertex) -> Any:
    """Return the declared type of a source's output or a sink's input, or None."""
    typed = vertex
    if vertex.kind is OperatorKind.SINK:
        typed = graph.vertex(graph.inputs_of(vertex.id)[0].source_id)
    if "output_type" not in typed.payloads:
        return None
    return cloudpickle.loads(bundle.payloads[typed.payload_id("output_type")])


def _letters_spec(uid: str, folder: str, roll_ms: int) -> ConnectorSpec:
    return ConnectorSpec(
        vertex_id=uid, connector_type="jsonl_file",
        properties={"path": folder, "roll_ms": roll_ms},
    )  # fmt: skip


# Operators that need event time but can get no event time: refused before anything starts.  A pure
# function of the graph and its sources. A source that does not report whether its records have
# times is assumed to have them; an error missed here is an error of the first record.


def require_event_times(graph: JobGraph, sources: Mapping[str, Source]) -> None:
    """Refuse a graph where records without event time reach an operator that needs it.

    Raises:
        NO_EVENT_TIME: with the first such operator.
    """
    for vertex in graph.vertices:
        if vertex.descriptor.needs_event_time and _is_reached_without(graph, vertex.id, sources):
            raise NO_EVENT_TIME(operator=vertex.id, made=vertex.made)


def _is_reached_without(graph: JobGraph, uid: str, sources: Mapping[str, Source]) -> bool:
    """Return whether records of a source without times reach an operator."""
    waiting, seen = [uid], {uid}
    while waiting:
        for edge in graph.inputs_of(waiting.pop()):
            sender = graph.vertex(edge.source_id)
            if edge.output_tag is not None or edge.feedback or sender.id in seen:
                continue
            seen.add(sender.id)
            if sender.kind is OperatorKind.SOURCE and sources[sender.id].gives_times is False:
                return True
            if sender.descriptor.keeps_times:
                waiting.append(sender.id)
    return False


@contextlib.contextmanager
def locating_operators(graph: JobGraph) -> Iterator[None]:
    """Add the creating call, as the fact ``made``, to errors that name an operator."""
    try:
        yield
    except BicycleError as error:
        uid = error.facts.get("operator")
        made = next((vertex.made for vertex in graph.vertices if vertex.id == uid), "")
        if made:
            error.facts.setdefault("made", made)
        raise


def require_bounded(setup: JobSetup) -> None:
    """Refuse a job with input that never ends; its sources were started.

    Raises:
        BATCH_MODE_ENDLESS: there are such sources; with all of them.
    """
    endless = [uid for uid, source in setup.sources.items() if not source.poll().is_bounded]
    if endless:
        words = [f"{uid!r} ({setup.sources[uid].spec.connector_type})" for uid in endless]
        raise BATCH_MODE_ENDLESS(job=setup.job_id, sources=endless, sources_text=", ".join(words))
