"""``stream.preview(n)``: the first records of a stream, computed here and now."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.testing.bundling import bundle_of_graph
from bicycle_runtime.testing.registries import registry_for
from bicycle_runtime.testing.rewiring import add_taps, part_before, used_payloads
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.drafts import GraphDraft

_FIRST_RECORDS = 1_000


def preview(env: GraphDraft, vertex_id: str, n: int) -> list[Any]:
    """Run the graph up to a vertex, and return its first records.

    Sources read their real input from its start; only temporary files are written. The run ends
    when there are enough records, or when the input ends. If a source waits for input, the call
    waits, too.

    Args:
        env: The environment of the streams.
        vertex_id: The vertex.
        n: Maximum number of records, 0 or more.
    """
    found: list[Any] = []
    size = max(n, _FIRST_RECORDS)
    with closing(preview_epochs(env, vertex_id, size=size, stop=threading.Event())) as epochs:
        while len(found) < n and (records := next(epochs, None)) is not None:
            found += records
    return found[:n]


def preview_epochs(
    env: GraphDraft, vertex_id: str, *, size: int, stop: threading.Event
) -> Generator[list[Any]]:
    """Run the graph up to a vertex, and yield the records of each sealed epoch.

    Args:
        env: The environment of the streams.
        vertex_id: The vertex.
        size: Maximum number of records that an epoch reads.
        stop: Ends the run after the current epoch; it may be set by any thread or signal handler.
    """
    graph = add_taps(part_before(env.build_graph("preview"), vertex_id), [vertex_id])
    bundle = bundle_of_graph(graph, used_payloads(graph, env.payloads))
    collected: dict[str, list[Any]] = {}
    services = LoopServices(
        clock=SystemClock(), console=_ignore, on_epoch=_ignore, collected=collected
    )
    options = EngineOptions(mode=graph.config.mode.value, max_records_per_epoch=size)
    with tempfile.TemporaryDirectory(prefix="bicycle-preview-") as folder:
        storage = LocalStorage(folder, is_synced=False)
        setup = prepare_job(bundle, job_id="preview", storage=storage, registry=registry_for(graph))
        with EpochLoop(
            setup, LocalExecutor(), options=options, run_id="preview", services=services
        ) as loop:
            records = collected[vertex_id]
            while not stop.is_set():
                step = loop.step()
                loop.settle()
                if records:
                    yield records[:]
                    records.clear()
                if step.is_finished:
                    return
                if not step.has_run:
                    stop.wait(step.wait_ms / 1_000)


def _ignore(_: object) -> None:
    """Ignore a notification."""
