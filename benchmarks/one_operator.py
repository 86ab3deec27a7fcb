"""The operator of a job by itself, built from a graph as on a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cloudpickle

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.stages import plan_stages
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.spec import JobImage, PluginInfo
from bicycle_runtime.operators.tasks.program import build_program
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import DataStream, StreamEnvironment, file_sink

__all__ = ["operator_of"]


def operator_of(
    form: Callable[[DataStream], DataStream], place: Path, state: StateSettings | None = None
) -> Operator:
    """Return the operator that a form adds to a stream of text lines.

    Args:
        form: Adds it, perhaps behind others.
        place: Checkpoint storage.
        state: Where its state lies; None for in memory.
    """
    env = StreamEnvironment.builder().parallelism(1).build()
    form(env.read_text(".")).uid("call").sink_to(file_sink("."))
    graph = env.build_graph("calls")
    image = JobImage(
        job_id="calls",
        run_id="1",
        plugin=PluginInfo(name="calls", version="1"),
        plan=plan_stages(graph),
        payloads={name: cloudpickle.dumps(value) for name, value in env.payloads.items()},
        storage=LocalStorage(place, is_synced=False),
        readers={},
        writers=dict.fromkeys((vertex.id for vertex in graph.vertices), None),
        state=state or StateSettings(),
    )
    levels = range(image.plan.level_count)
    operators = [each for level in levels for each in build_program(image, level, 0).operators()]
    return next(operator for operator in operators if operator.spec.uid == "call")
