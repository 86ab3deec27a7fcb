"""Replaying an epoch: the same result, nothing touched, one key, failed epochs, lost input."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import pytest

from bicycle_runtime.base.faults import InjectedFault, arm_fault
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.epoch.replay_record import BegunEpoch, ReplayRecord, decode_record
from bicycle_runtime.engine.errors import REPLAY_GRAPH_CHANGED, REPLAY_INPUT_GONE
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.planning.stages import with_parallelisms
from bicycle_runtime.engine.replay.one_key import narrow_to
from bicycle_runtime.engine.replay.replaying import ReplaySettings, replay_epoch
from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection, diff_operator
from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch
from bicycle_runtime.layouts.manifest import PlanRecord
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.operators.tasks.orders import TimeOrder
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RichAsyncFunction,
    StreamEnvironment,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.windows import CountTrigger, Sum, WindowFunction
from tests.raising import raises

WORDS = [f"{name}{number % 3}" for number in range(8) for name in ("ada", "bob", "cid")]
NOTHING = PlanRecord(bundle_digest="", parallelism={}, now_ms=0)
RECORD = ReplayRecord(
    epoch=7, now_ms=1, is_interval_over=False, bundle_digest="", parallelism={}, slices={},
    time=TimeOrder(),
)  # fmt: skip


class Job:
    """A job on a storage, epoch by epoch."""

    def __init__(self, folder, build, *, parallelisms=None):
        self.storage = LocalStorage(str(folder), is_synced=False)
        self.clock = ManualClock(1_000)
        self.build, self.parallelisms = build, parallelisms or {}

    def setup(self, build=None):
        env = StreamEnvironment()
        (build or self.build)(env)
        bundle = bundle_of(env)
        bundle = replace(bundle, graph=with_parallelisms(bundle.graph, self.parallelisms))
        return prepare_job(bundle, job_id="job", storage=self.storage)

    def loop(self, **options):
        services = LoopServices(clock=self.clock, console=print, on_epoch=lambda _: None)
        engine = EngineOptions(retained_epochs=100, **options)
        return EpochLoop(
            self.setup(), LocalExecutor(), options=engine, run_id="run", services=services
        )

    def run(self, **options):
        with self.loop(**options) as loop:
            while not loop.step().is_finished:
                self.clock.advance(700)
            loop.finish(is_finished=True)

    def files(self):
        return {path: self.storage.read(path) for path in self.storage.list("")}

    def replay(self, epoch, *, build=None, key=None, **settings):
        setup = self.setup(build)
        history = EpochHistory(self.storage)
        sealed = history.manifest(epoch) if epoch in history.epochs() else None
        record = (
            decode_record(sealed.replay)
            if sealed
            else BegunEpoch(self.storage, job="job").read(epoch)
        )
        before = history.manifest(epoch - 1) if epoch > 1 else Manifest(epoch=0, plan=NOTHING)
        if key is not None:
            settings["adapt"] = partial(narrow_to, setup=setup, keys=[key])
        done = replay_epoch(
            setup,
            record,
            before,
            ends=sealed.offsets if sealed else {},
            settings=ReplaySettings(**settings),
        )
        return done, sealed

    def state_changes(self, done, sealed, **selected):
        one, other = SealedEpoch(done.storage, sealed), SealedEpoch(done.storage, done.manifest)
        diffs = [
            diff_operator(one, other, uid, selection=Selection(**selected), limit=5)
            for uid in other.operators()
        ]
        return {d.operator: d.counts for d in diffs if any(d.counts.values())}

    def sealed_epochs(self):
        history = EpochHistory(self.storage)
        return [epoch for epoch in history.epochs() if history.manifest(epoch).replay]


@dataclass
class Moody(RichAsyncFunction[str, str]):
    """State that depends on the recorded time and on the random numbers of the epoch."""

    moods: dict[str, float] = field(default_factory=dict)

    async def process(self, value, ctx):
        self.moods[value] = ctx.random.random() + ctx.now()
        return [value]


class Waiting(KeyedProcessFunction[str, str, str]):
    """Counts by timers of processing time."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_processing_time_timer(ctx.now() + 500)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [f"{ctx.current_key()} at {timestamp_ms}"]


def moody(env):
    keyed = env.from_collection(WORDS).uid("words").key_by(lambda word: word)
    keyed.process(Moody()).uid("moods").collect("moody")
    keyed.count().uid("counts").collect("counted")
    keyed.process_fn(Waiting()).uid("waits").collect("waited")


def poisoned(is_fixed, env):
    def length(word):
        if word == "cid1" and not is_fixed:
            raise ValueError(word)
        return len(word)

    words = env.from_collection(WORDS).uid("words")
    words.map(length).uid("lengths").collect("out")


@pytest.mark.parametrize("parallelisms", [{}, {"moods": 3, "counts": 2, "waits": 2}])
def test_every_epoch_comes_out_as_it_was_sealed_and_nothing_is_touched(tmp_path, parallelisms):
    job = Job(tmp_path, moody, parallelisms=parallelisms)
    job.run(max_records_per_epoch=5)
    before = job.files()

    epochs = job.sealed_epochs()
    assert len(epochs) >= 5
    for epoch in epochs:
        done, sealed = job.replay(epoch)
        assert done.error is None
        assert job.state_changes(done, sealed) == {}
        assert done.manifest.time == sealed.time
        assert done.manifest.offsets == sealed.offsets
        counts = {uid: (c.records_in, c.records_out) for uid, c in done.counts.items()}
        assert counts == decode_record(sealed.replay).counts
    assert job.files() == before


class Listed(ProcessFunction):
    """Lists of a subtask, which a start divides."""

    def open(self, ctx):
        self.own = ctx.get_operator_list_state("own", str)
        self.all = ctx.get_union_list_state("all", str)

    def process_element(self, value, ctx):
        self.own.add(value)
        self.all.update([*sorted(set(self.all.get())), value])
        return [len(self.all.get())]


def test_an_epoch_behind_a_start_divides_lists_again_and_others_do_not(tmp_path):
    def build(env):
        words = env.from_collection(WORDS).uid("words").rebalance()
        words.process_fn(Listed()).set_parallelism(2).uid("listed").collect("out")

    job = Job(tmp_path, build)
    with job.loop(max_records_per_epoch=5) as loop:
        assert [loop.step().has_run for _ in range(2)] == [True, True]
    job.run(max_records_per_epoch=5)

    epochs = job.sealed_epochs()
    assert len(epochs) >= 5
    starts = []
    for epoch in epochs:
        done, sealed = job.replay(epoch)
        assert done.error is None
        assert job.state_changes(done, sealed) == {}
        starts += [epoch] if decode_record(sealed.replay).is_start else []
    assert starts == [3]


class Forgetful(KeyedProcessFunction):
    """State that expires by the clock, written again and again before it does."""

    last = ValueStateDescriptor("last", str, ttl=timedelta(seconds=4))

    def process_element(self, value, ctx):
        last = ctx.get_value_state(self.last)
        before = last.value()
        last.clear() if value.endswith("2") else last.update(value)
        return [(before, value)]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_states_that_expire_by_the_clock_come_out_as_they_were_sealed(tmp_path, backend):
    def build(env):
        keyed = env.from_collection(WORDS).uid("words").key_by(lambda word: word[:3])
        keyed.process_fn(Forgetful()).uid("f").collect("out")

    job = Job(tmp_path / "job", build)
    job.run(max_records_per_epoch=2, state_backend=backend)

    for epoch in job.sealed_epochs():
        state = StateSettings(backend=backend, folder=str(tmp_path / f"local-{epoch}"))
        done, sealed = job.replay(epoch, state=state)
        assert done.error is None
        assert job.state_changes(done, sealed) == {}
        assert done.manifest.time == sealed.time


class Everything(WindowFunction):
    def process(self, elements, ctx):
        return [(ctx.current_key(), len(elements))]


class Together(KeyedCoProcessFunction):
    seen = ValueStateDescriptor("seen", int)

    def process_element1(self, value, ctx):
        state = ctx.get_value_state(self.seen)
        state.update((state.value() or 0) + 1)
        return [(value[0], state.value())]

    def process_element2(self, value, ctx):
        return [(value[0], -1)]


def windowed(env):
    events = [(name, second) for second in range(12) for name in ("ada", "bob", "cid")]
    records = env.from_collection(events).uid("events")
    strategy = WatermarkStrategy.ascending().with_timestamps(lambda event: event[1] * 1_000)
    timed = records.assign_timestamps(strategy).uid("timed").key_by(lambda event: event[0])
    five = timedelta(seconds=5)
    timed.tumbling_window(five).aggregate(Sum(lambda event: event[1])).uid("sums").collect("s")
    timed.tumbling_window(five).process(Everything()).uid("all").collect("a")
    timed.session_window(five).aggregate(Sum(lambda event: event[1])).uid("visits").collect("v")
    timed.tumbling_window(five).trigger(CountTrigger(2)).aggregate(Sum(lambda event: event[1])).uid(
        "twos"
    ).collect("t")
    timed.connect(timed).process(Together()).uid("together").collect("c")


def test_with_a_key_only_its_windows_and_both_its_inputs_are_seen(tmp_path):
    job = Job(tmp_path, windowed, parallelisms={"sums": 2, "all": 2})
    job.run(max_records_per_epoch=9)
    seen = set()

    for epoch in job.sealed_epochs():
        whole, _ = job.replay(epoch, shown_count=1_000)
        done, sealed = job.replay(epoch, key="ada", shown_count=1_000)
        assert (done.error, job.state_changes(done, sealed, key="ada")) == (None, {})
        for uid, got in done.sinks.items():
            wanted = [record for record in whole.sinks[uid].shown if "ada" in str(record)]
            assert sorted(map(str, got.shown)) == sorted(map(str, wanted))
            seen |= {uid} if wanted else set()
    assert len(seen) == 5


@pytest.mark.parametrize("sealed_by", ["memory", "rocksdb"])
@pytest.mark.parametrize("replayed_by", ["memory", "rocksdb"])
def test_bases_of_either_backend_are_replayed_with_either(tmp_path, sealed_by, replayed_by):
    job = Job(tmp_path / "job", moody)
    job.run(max_records_per_epoch=5, state_backend=sealed_by, checkpoint_interval_ms=1)
    before = job.files()
    folder = str(tmp_path / "replay")
    state = StateSettings(backend=replayed_by, folder=folder if replayed_by == "rocksdb" else None)

    for epoch in job.sealed_epochs():
        done, sealed = job.replay(epoch, state=state)
        assert done.error is None
        assert job.state_changes(done, sealed) == {}
    assert job.files() == before


def test_sinks_are_shown_what_they_would_get_as_far_as_is_asked(tmp_path):
    job = Job(tmp_path, moody)
    job.run(max_records_per_epoch=5)

    done, _ = job.replay(1, shown_count=2)
    sinks = {len(got.shown): got.record_count for got in done.sinks.values() if got.record_count}

    assert sinks == {2: 5}


def test_with_a_key_only_its_records_and_timers_are_seen(tmp_path):
    job = Job(tmp_path, moody)
    job.run(max_records_per_epoch=6)

    for epoch in job.sealed_epochs():
        whole, sealed = job.replay(epoch)
        done, _ = job.replay(epoch, key="ada1")
        assert job.state_changes(done, sealed, key="ada1").keys() <= {"moods"}
        records = [record for got in done.sinks.values() for record in got.shown]
        assert all("ada1" in str(record) for record in records)
        wanted = [r for got in whole.sinks.values() for r in got.shown if "ada1" in str(r)]
        assert len(records) == len(wanted)


def test_an_epoch_that_failed_fails_again_with_the_same_record_until_the_plugin_is_mended(tmp_path):
    job = Job(tmp_path, partial(poisoned, False))
    with pytest.raises(FunctionFailedError) as caught:
        job.run(max_records_per_epoch=4)
    epoch = EpochHistory(job.storage).epochs()[-1] + 1

    again, _ = job.replay(epoch)
    corrected, _ = job.replay(epoch, build=partial(poisoned, True))

    assert isinstance(again.error, FunctionFailedError)
    assert again.error.facts["position"] == caught.value.facts["position"]
    assert corrected.error is None
    assert corrected.sinks[next(iter(corrected.sinks))].record_count == 4
    record = BegunEpoch(job.storage, job="job").read(epoch)
    assert record.error["facts"]["offset"] == caught.value.facts["offset"]


def test_an_epoch_whose_driver_is_killed_is_replayed_with_the_records_that_it_had(tmp_path):
    job = Job(tmp_path, moody)
    arm_fault("before_seal", passage=3)
    with pytest.raises(InjectedFault):
        job.run(max_records_per_epoch=5)
    before = job.files()

    done, sealed = job.replay(3)
    killed = BegunEpoch(job.storage, job="job").read(3)

    assert (sealed, killed.error, job.files()) == (None, None, before)
    job.run(max_records_per_epoch=5)
    sealed = EpochHistory(job.storage).manifest(3)
    assert done.manifest.offsets == {uid: dict(ends) for uid, ends in sealed.offsets.items()}
    assert decode_record(sealed.replay).slices == killed.slices


def test_no_epoch_behind_the_last_sealed_one_is_replayed_unless_it_was_begun(tmp_path):
    job = Job(tmp_path, moody)
    job.run(max_records_per_epoch=5)

    begun = BegunEpoch(job.storage, job="job")
    assert begun.read(job.sealed_epochs()[-1]) is not None
    assert begun.read(EpochHistory(job.storage).epochs()[-1] + 1) is None


def test_behind_a_url_an_epoch_is_noted_while_it_runs():
    begun = BegunEpoch(open_storage("memory://begun"), job="job")

    with begun.noting(RECORD, {}):
        pass
    begun.close()
    assert begun.read(7) == RECORD
    with raises(REPLAY_GRAPH_CHANGED), begun.noting(RECORD, {}):
        raise REPLAY_GRAPH_CHANGED(epoch=7, missing="a", known_text="b")
    assert begun.read(7).error["facts"]["missing"] == "a"


def test_an_epoch_runs_though_nobody_can_note_that_it_was_begun(tmp_path, caplog):
    (tmp_path / "epochs").write_text("a file where a folder should be")
    begun = BegunEpoch(LocalStorage(str(tmp_path)), job="job")

    with begun.noting(RECORD, {}):
        pass
    assert [each.getMessage() for each in caplog.records] == ["begun_epoch_not_noted"]


def test_a_manifest_without_a_record_is_readable_and_one_with_it_keeps_it():
    old = Manifest(epoch=3, plan=NOTHING)
    new = replace(old, replay=b'{"epoch":3}')

    assert decode_manifest(encode_manifest(old), path="old").replay == b""
    assert decode_manifest(encode_manifest(new), path="new") == new


def test_input_that_is_gone_is_told_with_its_place(tmp_path, monkeypatch):
    job = Job(tmp_path / "job", moody)
    job.run(max_records_per_epoch=5)
    setup = job.setup()
    source = setup.sources["words"]

    class Gone:
        def read(self, part):
            yield from job.storage.read(f"no/{part.shard}")

        def close(self):
            pass

    monkeypatch.setattr(source, "reader", Gone)
    sealed = EpochHistory(job.storage).manifest(1)
    done = replay_epoch(
        setup,
        decode_record(sealed.replay),
        Manifest(epoch=0, plan=NOTHING),
        ends={},
        settings=ReplaySettings(),
    )

    assert done.error.code == REPLAY_INPUT_GONE.code
    assert done.error.facts["source"] == "words"


def test_another_plugin_without_the_source_is_refused(tmp_path):
    job = Job(tmp_path, moody)
    job.run(max_records_per_epoch=5)

    def other(env):
        env.from_collection([1]).uid("numbers").collect("out")

    with raises(REPLAY_GRAPH_CHANGED) as caught:
        job.replay(1, build=other)
    assert caught.value.facts["missing"] == "words"
