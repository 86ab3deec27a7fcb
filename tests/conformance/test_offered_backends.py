"""A state backend that an extension offers: made on workers, with results as any other's."""

import os
from pathlib import Path

import pytest

from bicycle_runtime.connectors.hooks import runtime_hook
from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction, ListStateDescriptor, ValueStateDescriptor

MADE = ".made-by-"


class NotedSpace(MemorySpace):
    """Keeps all as ``memory`` does; its factory leaves a note of the process that called it."""


def noted_space(settings, *, job_url):
    Path(f"{job_url.removeprefix('file://').rstrip('/')}{MADE}{os.getpid()}").touch()
    return NotedSpace()


@runtime_hook
def bicycle_state_backends():
    return {"noted": f"{__name__}:noted_space"}


class Totals(KeyedProcessFunction[str, str, tuple[str, int, int]]):
    total = ValueStateDescriptor("total", int, default=0)
    all = ListStateDescriptor("all", int)

    def process_element(self, value, ctx):
        total, seen = ctx.get_value_state(self.total), ctx.get_list_state(self.all)
        total.update(total.value() + 1)
        seen.add(total.value())
        ctx.timer_service.register_event_time_timer(total.value())
        return [(value, total.value(), sum(seen.get()))]


def totals(env):
    words = env.add_source(script_source(str)).uid("words").key_by(str)
    words.process(Totals()).uid("totals").collect("out")


@pytest.fixture(autouse=True)
def offered(tmp_path, monkeypatch):
    """An extension whose module workers have as well."""
    info = tmp_path / "noting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bicycle.extensions]\nnoting = {__name__}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    default_registry.cache_clear()
    yield
    default_registry.cache_clear()


def makers(harness):
    """Return the processes in which the factory was called."""
    folder = Path(harness.storage.url.removeprefix("file://").rstrip("/"))
    return {int(path.name.rpartition("-")[2]) for path in folder.parent.glob(f"*{MADE}*")}


def test_state_of_an_offered_backend_survives_crashes_and_rescales(runner, request):
    with runner.harness(totals, parallelism=2, engine=EngineOptions(state_backend="noted")) as job:
        for number in range(4):
            job.push(["a", "b", "a"])
            job.run_epoch()
            if number == 1:
                job.crash()
            if number == 2:
                job.rescale(3)
        expected = [("a", n, sum(range(n + 1))) for n in range(1, 9)]
        expected += [("b", n, sum(range(n + 1))) for n in range(1, 5)]
        assert sorted(job.results("out")) == expected
        is_here = "spark" not in request.node.callspec.id
        assert makers(job)
        assert (makers(job) == {os.getpid()}) == is_here
