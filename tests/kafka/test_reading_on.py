"""Epochs that read on behind their slices: what is visible when, sealed, repeated, and replayed."""

import contextlib
import itertools
import signal
import threading

import pytest

from bicycle_runtime.base.faults import InjectedFault, arm_fault, disarm_faults
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.epoch.replay_record import BegunEpoch, decode_record
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.replay.replaying import ReplaySettings, replay_epoch
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import KafkaSinkBuilder, KafkaSourceBuilder, StreamEnvironment
from bicycle_sdk.clock import SystemClock
from tests.kafka.kafka_feeding import feed
from tests.kafka.sink_runs import values_in
from tests.plugin_zoo.zoo import install, whole
from tests.waiting import until

RECORDS_MAX = 16  # Half of them behind the slices.


def shouted(text):
    if text == "bad":
        raise ValueError(text)
    return text.upper()


class Relay:
    """A job with one stage on a storage that outlives it; no epoch ends by time."""

    def __init__(self, broker, folder, source, target):
        self.broker, self.source, self.target = broker, source, target
        self.storage = LocalStorage(str(folder), is_synced=False)

    def setup(self):
        env = StreamEnvironment()
        read = KafkaSourceBuilder[str](self.broker.bootstrap, self.source).group_id(self.target)
        texts = env.add_source(read).uid("in").map(shouted).uid("shouted")
        texts.sink_to(KafkaSinkBuilder[str](self.broker.bootstrap, self.target)).uid("out")
        return prepare_job(bundle_of(env), job_id="job", storage=self.storage, parallelism=1)

    @contextlib.contextmanager
    def loop(self):
        services = LoopServices(clock=SystemClock(), console=print, on_epoch=lambda _: None)
        options = EngineOptions(max_records_per_epoch=RECORDS_MAX, epoch_target_ms=600_000)
        with EpochLoop(
            self.setup(), LocalExecutor(), options=options, run_id="run", services=services
        ) as loop:
            yield loop

    def out(self):
        return sorted(values_in(self.broker.bootstrap, self.target))

    def feed(self, values, partition=0):
        feed(self.broker, self.source, values, partition=partition)


class Stepping(threading.Thread):
    """Lets a loop come to the end of an epoch."""

    def __init__(self, loop, epoch):
        super().__init__(daemon=True)
        self.loop, self.epoch, self.error = loop, epoch, None
        self.start()

    def run(self):
        try:
            while self.loop.epoch < self.epoch:
                self.loop.step(reads_on=True)
        except Exception as error:  # noqa: BLE001 - the test looks at it.
            self.error = error

    def end(self):
        self.join(90)
        assert not self.is_alive()
        return self.error


@pytest.fixture
def relay(kafka_broker, topic, tmp_path):
    yield Relay(kafka_broker, tmp_path / "job", topic(partitions=2), topic(partitions=1))
    disarm_faults()


@pytest.mark.core
def test_what_comes_while_an_epoch_reads_on_is_visible_before_and_sealed_with_it(relay):
    relay.feed(["a"])
    with relay.loop() as loop:
        first = Stepping(loop, 1)
        until(lambda: relay.out() == ["A"], "the slice")
        relay.feed(["b"], partition=1)
        until(lambda: relay.out() == ["A", "B"], "what came behind it")
        assert loop.epoch == 0
        relay.feed([f"c{number}" for number in range(RECORDS_MAX // 2 - 1)])
        assert first.end() is None
        sealed = loop.manifest

    assert sealed.offsets["in"] == {f"{relay.source}/0": RECORDS_MAX // 2, f"{relay.source}/1": 1}
    assert len(relay.out()) == sealed.event_count == RECORDS_MAX // 2 + 1

    relay.feed(["d"], partition=1)
    with relay.loop() as loop:
        second = Stepping(loop, 2)
        until(lambda: "D" in relay.out(), "what the next run reads")
        relay.feed([f"e{number}" for number in range(RECORDS_MAX // 2)])
        assert second.end() is None
    assert len(relay.out()) == len(set(relay.out())) == RECORDS_MAX + 2


def test_an_epoch_that_dies_while_it_reads_on_is_read_again_from_what_is_sealed(relay):
    relay.feed(["a"])
    with relay.loop() as loop:
        first = Stepping(loop, 1)
        until(lambda: relay.out() == ["A"], "the slice")
        arm_fault("operator")
        relay.feed(["b"], partition=1)
        assert isinstance(first.end(), InjectedFault)
        assert loop.epoch == 0

    with relay.loop() as loop:
        again = Stepping(loop, 1)
        relay.feed([f"c{number}" for number in range(RECORDS_MAX // 2)])
        assert again.end() is None
        count = loop.manifest.event_count
    assert set(relay.out()) >= {"A", "B"}
    assert count == len(set(relay.out()))  # Each once in what is sealed, whatever is there twice.


def test_a_replay_reads_what_the_epoch_had_read_on(relay):
    relay.feed(["a"])
    with relay.loop() as loop:
        blank = loop.manifest
        first = Stepping(loop, 1)
        until(lambda: relay.out() == ["A"], "the slice")
        relay.feed(["b"], partition=1)
        relay.feed([f"c{number}" for number in range(RECORDS_MAX // 2 - 1)])
        assert first.end() is None
        sealed = loop.manifest

    record = decode_record(sealed.replay)
    replayed = replay_epoch(
        relay.setup(), record, blank, ends=sealed.offsets, settings=ReplaySettings()
    )
    assert {part.shard: part.end for part in record.slices["in"]} == sealed.offsets["in"]
    assert replayed.manifest.offsets == sealed.offsets
    found = {uid: (each.records_in, each.records_out) for uid, each in replayed.counts.items()}
    assert found == record.counts


def test_a_failed_epoch_is_noted_up_to_the_record_that_failed(relay):
    relay.feed(["a"])
    with relay.loop() as loop:
        blank = loop.manifest
        first = Stepping(loop, 1)
        until(lambda: relay.out() == ["A"], "the slice")
        relay.feed(["bad"], partition=1)
        assert isinstance(first.end(), FunctionFailedError)

    record = BegunEpoch(relay.storage, job="job").read(1)
    replayed = replay_epoch(relay.setup(), record, blank, ends={}, settings=ReplaySettings())
    assert isinstance(replayed.error, FunctionFailedError)
    assert replayed.error.facts["shard"] == f"{relay.source}/1"


# --- on Spark ------------------------------------------------------------------------------------

DIRECT = whole(
    "direct",
    """
    from dataclasses import dataclass

    from bicycle_sdk import (
        KafkaSinkBuilder, KafkaSourceBuilder, StreamEnvironment, bicycle_plugin,
    )


    @dataclass(frozen=True, kw_only=True)
    class Params:
        brokers: str
        source: str
        target: str


    @bicycle_plugin(name="direct", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        source = KafkaSourceBuilder[str](params.brokers, params.source).group_id(params.target)
        texts = env.add_source(source).uid("in").map(str.upper).uid("shouted")
        texts.filter(bool).uid("some").sink_to(
            KafkaSinkBuilder[str](params.brokers, params.target)
        ).uid("out")
    """,
)


@pytest.mark.spark
def test_a_job_that_reads_on_loses_nothing_when_it_is_killed_and_rescaled(
    kafka_broker, topic, new_site
):
    source, target = topic(partitions=4), topic(partitions=2)
    site = new_site("direct")
    install(site.plugins, DIRECT)
    site.params = {"brokers": kafka_broker.bootstrap, "source": source, "target": target}
    expected = set()

    def send(name):
        for partition in range(4):
            feed(kafka_broker, source, [f"{name}-{partition}"], partition=partition)
        expected.update(f"{name}-{partition}".upper() for partition in range(4))

    def wait():
        until(
            lambda: expected <= set(values_in(kafka_broker.bootstrap, target)),
            lambda: f"{sorted(expected - set(values_in(kafka_broker.bootstrap, target)))}",
        )

    fault = "delta_written@4=kill"
    life = site.start("--parallelism", "2", "--latency-target-ms", "0", faults=fault)
    numbers = itertools.count()

    def is_hit():
        """Epochs that read on take their time: there is input until the fourth one."""
        send(f"a{next(numbers)}")
        wait()
        return (life.folder / fault).exists()

    until(is_hit, fault)
    send("b")
    wait()
    life.process.kill()
    life.wait()
    site.wait_for_no_process()  # Else a task that still reads on could send what comes next.

    life = site.start("--parallelism", "1", "--latency-target-ms", "0")
    send("c")
    wait()
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr
    assert set(values_in(kafka_broker.bootstrap, target)) == expected
