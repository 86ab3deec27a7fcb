"""``stream.preview(n)``: the first records of a stream, computed here and now."""

from __future__ import annotations

import tempfile
import threading
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

__all__ = ["preview"]

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
    graph = add_taps(part_before(env.build_graph("preview"), vertex_id), [vertex_id])
    bundle = bundle_of_graph(graph, used_payloads(graph, env.payloads))
    collected: dict[str, list[Any]] = {}
    services = LoopServices(
        clock=SystemClock(),
        console=_ignore,
        on_epoch=_ignore,
        collected=collected,
    )
    options = EngineOptions(max_records_per_epoch=max(n, _FIRST_RECORDS))
    with tempfile.TemporaryDirectory(prefix="bicycle-preview-") as folder:
        storage = LocalStorage(folder, is_synced=False)
        setup = prepare_job(bundle, job_id="preview", storage=storage, registry=registry_for(graph))
        with EpochLoop(
            setup, LocalExecutor(), options=options, run_id="preview", services=services
        ) as loop:
            _run_until(loop, collected, vertex_id, n)
    return collected[vertex_id][:n]


def _ignore(_: object) -> None:
    """Ignore a notification."""


def _run_until(loop: EpochLoop, collected: dict[str, list[Any]], name: str, n: int) -> None:
    pause = threading.Event()
    while len(collected[name]) < n:
        step = loop.step()
        loop.settle()
        if step.is_finished:
            return
        if not step.has_run:
            pause.wait(step.wait_ms / 1_000)
