"""Extensions that become part of the runtime: state backends, metric reporters, job listeners."""

import importlib
import logging
import sys
import textwrap
import threading

import pytest

from bicycle_runtime.connectors.errors import UNKNOWN_STATE_BACKEND
from bicycle_runtime.connectors.registry import (
    Extension,
    Offer,
    default_registry,
    load_registry,
)
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.running import listeners as listening
from bicycle_runtime.jobs.running.listeners import Listeners
from bicycle_runtime.state.errors import STATE_BACKEND_UNUSABLE
from tests.plugin_zoo.zoo import install, whole
from tests.raising import raises
from tests.unit.jobs.running.light_jobs import LightJob

EXTENSION = """
from bicycle_runtime.connectors.hooks import runtime_hook
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_sdk.state.access import make_entries

HEARD, STATES, CLOSED = [], [], []


class DictSpace(MemorySpace):
    def keyed_entries(self, descriptor, codec, *, entries, times, groups, clock):
        STATES.append(descriptor.name)
        return make_entries(descriptor, clock=clock)


def dict_space(settings, *, job_url):
    assert settings.backend == "dict"
    return DictSpace()


def broken(settings, *, job_url):
    raise OSError("no such place")


class Figures:
    def report(self, metrics):
        HEARD.append((metrics.epoch, metrics.record_count, sorted(metrics.operators)))

    def close(self):
        CLOSED.append("figures")


class States:
    def changed(self, change):
        HEARD.append((change.state, change.error))

    def close(self):
        CLOSED.append("states")


class Rude:
    def changed(self, change):
        raise ConnectionError("no line")

    def close(self):
        raise ConnectionError("no line")


@runtime_hook
def bicycle_state_backends():
    return {"dict": "heard_jobs:dict_space", "broken": "heard_jobs:broken"}


@runtime_hook
def bicycle_metric_reporters():
    return {"figures": "heard_jobs:Figures", "absent": "heard_jobs:Nobody"}


@runtime_hook
def bicycle_job_listeners():
    return {"states": "heard_jobs:States", "rude": "heard_jobs:Rude"}
"""

COUNTING = whole(
    "hooked",
    """
    from dataclasses import dataclass
    from pathlib import Path

    from bicycle_sdk import KeyedProcessFunction, RestartStrategy, ValueStateDescriptor
    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    class Count(KeyedProcessFunction[str, str, str]):
        kept = ValueStateDescriptor("count", int)

        def __init__(self, fails: str) -> None:
            self.fails = Path(fails)

        def process_element(self, value, ctx):
            if value == "b" and self.fails.exists():
                self.fails.unlink()
                raise ValueError("once")
            state = ctx.get_value_state(self.kept)
            state.update((state.value() or 0) + 1)
            return [f"{value} {state.value()}"]


    @bicycle_plugin(name="hooked", version="1.0")
    def job(env, params: Params):
        env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=3, delay_ms=1))
        lines = env.read_text(params.input).uid("in")
        counts = lines.key_by(str).process(Count(params.input + ".fails")).uid("count")
        counts.sink_to(file_sink(params.output, format="text")).uid("out")
    """,
)


@pytest.fixture
def extension(tmp_path, monkeypatch):
    """The module of an extension that is installed for one test."""
    site = tmp_path / "site"
    install(site, COUNTING)
    (site / "heard_jobs.py").write_text(EXTENSION)
    info = site / "heard_jobs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heard-jobs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bicycle.extensions]\nheard = heard_jobs\n")
    monkeypatch.syspath_prepend(str(site))
    default_registry.cache_clear()
    yield importlib.import_module("heard_jobs")
    del sys.modules["heard_jobs"]
    default_registry.cache_clear()


@pytest.fixture
def hooked(tmp_path, extension):
    """Make a job that counts six words and fails once."""

    def make(**engine):
        (tmp_path / "in.txt").write_text("a\nb\na\nc\nb\na\n")
        (tmp_path / "in.txt.fails").touch()
        params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
        return LightJob(tmp_path, "hooked", params, {"max_records_per_epoch": 2, **engine}, {})

    return make


def lines_in(folder):
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def test_a_state_backend_of_an_extension_runs_a_job_over_epochs_and_a_failure(
    hooked, extension, tmp_path
):
    summary = hooked(state_backend="dict").run()

    assert summary.state == "FINISHED"
    assert summary.epoch >= 3
    assert lines_in(tmp_path / "out") == ["a 1", "a 2", "a 3", "b 1", "b 2", "c 1"]
    assert set(extension.STATES) == {"count"}


def test_a_backend_that_cannot_be_made_ends_the_job_with_its_name(hooked):
    with raises(STATE_BACKEND_UNUSABLE) as caught:
        hooked(state_backend="broken").run()

    assert caught.value.facts["backend"] == "broken"
    assert "no such place" in caught.value.facts["reason"]


def test_a_backend_that_nobody_offers_is_refused_before_anything_starts(extension):
    with raises(UNKNOWN_STATE_BACKEND) as caught:
        EngineOptions(state_backend="dickt")

    assert caught.value.facts["known_text"] == "memory, rocksdb, broken, dict"


def test_listeners_hear_of_states_and_epochs_and_what_they_raise_ends_nothing(
    hooked, extension, caplog
):
    with caplog.at_level(logging.WARNING):
        summary = hooked().run()

    assert summary.state == "FINISHED"
    states = [heard for heard in extension.HEARD if isinstance(heard[0], str)]
    assert states[0] == ("CREATED", None)
    assert ("RESTARTING", None) in states
    assert states[-1] == ("FINISHED", None)
    epochs = [heard for heard in extension.HEARD if isinstance(heard[0], int)]
    assert [number for number, *_ in epochs] == list(range(1, summary.epoch + 1))
    assert sum(count for _, count, _ in epochs) == 6
    assert "count" in epochs[0][2]
    assert sorted(extension.CLOSED) == ["figures", "states"]
    told = [
        record.bicycle_fields["error"]
        for record in caplog.records
        if record.msg == "extension_failed"
    ]
    assert {error["code"] for error in told} == {"BIC-1942"}
    parts = [error["facts"]["part"] for error in told]
    assert sorted(parts) == ["absent", "rude"]  # The same failure is told once.
    assert {error["facts"]["extension"] for error in told} == {"heard"}


def test_a_listener_hears_why_a_job_failed(hooked, extension):
    with raises(STATE_BACKEND_UNUSABLE):
        hooked(state_backend="broken").run()

    assert extension.HEARD[-1] == ("FAILED", "BIC-1306")


def module_of(source):
    module = type(logging)("module_of_a_test")
    exec(compile(textwrap.dedent(source), "module_of_a_test", "exec"), module.__dict__)
    return module


def test_a_part_that_is_taken_or_has_no_place_is_a_refusal():
    def offering(name, hook, words):
        source = f"""
            from bicycle_runtime.connectors.hooks import runtime_hook

            @runtime_hook
            def {hook}():
                return {words!r}
        """
        return Extension(name=name, load=lambda: module_of(source))

    registry = load_registry(
        [
            offering("a", "bicycle_state_backends", {"dict": "a:b", "memory": "a:b"}),
            offering("b", "bicycle_state_backends", {"dict": "b:b"}),
            offering("c", "bicycle_job_listeners", {"dict": "c:d"}),
            offering("d", "bicycle_metric_reporters", {"dict": "no place"}),
            offering("e", "bicycle_job_listener", {}),
        ]
    )

    assert [(offer.kind, offer.extension) for offer in registry.offers] == [
        ("state_backends", "a"),
        ("job_listeners", "c"),
    ]
    assert [refusal.extension for refusal in registry.refusals] == ["a", "b", "d", "e"]


def test_a_listener_that_never_returns_holds_up_no_job(extension, monkeypatch, caplog):
    free = threading.Event()
    extension.States.changed = lambda _self, _change: free.wait()
    monkeypatch.setattr(listening, "_WAITING_MAX", 3)
    monkeypatch.setattr(listening, "_CLOSE_S", 0.01)
    offer = Offer(
        kind="job_listeners", word="states", location="heard_jobs:States", extension="heard"
    )
    with caplog.at_level(logging.WARNING), Listeners("job", [offer]) as listeners:
        for epoch in range(10):
            listeners.entered("RUNNING", epoch=epoch, error=None)
    free.set()

    (told,) = [record for record in caplog.records if record.msg == "listeners_behind"]
    assert told.bicycle_fields["lost"] >= 6
