"""What is kept: any order of epochs, crashes, collections, damage and holds leaves what is needed.

The job of the unit tests of the ledger runs beside a model that knows every epoch's state.
"""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bicycle_runtime.recovery.errors import NO_EPOCH_READABLE, ManifestVersionError
from bicycle_runtime.recovery.history import EpochHistory
from tests.examples import examples
from tests.raising import raises
from tests.unit.recovery.ledger_job import Job, sink_paths

HOUR_MS = 3_600_000
# Where the version of a manifest is, from its end: no checksum covers it.
VERSION_PLACES = (12, 11)
ENTRIES = st.dictionaries(st.integers(0, 30), st.integers(0, 1_000), max_size=3)


def flipped(data, position, bit):
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def replace_object(storage, path, data):
    storage.delete(path)
    storage.write(path, data)


def needed_paths(manifest):
    return manifest.state_paths() | manifest.feedback_paths()


class Retention(RuleBasedStateMachine):
    """Drives a job; what a restart, a held copy or the retention needs is always there."""

    @initialize(retained=st.integers(2, 4), age_ms=st.sampled_from([0, HOUR_MS]))
    def start(self, retained, age_ms):
        self.job = Job(self.folder_factory(), retained, age_ms=age_ms)
        self.sealed_ms = {}
        self.attempt = 0
        self.hold = None
        self.held = None

    def advance(self, entries, *, is_interval_over):
        self.attempt += 1
        manifest = self.job.run(
            entries, attempt=f"t{self.attempt}", is_interval_over=is_interval_over
        )
        self.job.seal(manifest, entries)
        self.sealed_ms[manifest.epoch] = manifest.plan.now_ms

    def collect_all(self):
        """Collect, in the model as well: the oldest goes when neither number nor age keep it."""
        job = self.job
        job.collect()
        while len(self.sealed_ms) > job.retained:
            oldest = min(self.sealed_ms)
            is_young = job.now_ms - self.sealed_ms[oldest] < job.age_ms
            if is_young or (self.held is not None and self.held.epoch == oldest):
                return
            del self.sealed_ms[oldest]

    @rule(entries=ENTRIES, is_interval_over=st.booleans())
    def epoch(self, entries, is_interval_over):
        self.advance(entries, is_interval_over=is_interval_over)

    @rule(entries=ENTRIES)
    def published_epoch(self, entries):
        self.advance(entries, is_interval_over=False)
        self.collect_all()

    @rule()
    def collect(self):
        if self.job.manifest.epoch:
            self.collect_all()

    @rule(entries=ENTRIES)
    def crash_before_the_seal(self, entries):
        self.attempt += 1
        self.job.run(entries, attempt=f"t{self.attempt}")
        self.restart()

    @rule()
    def restart(self):
        self.release()
        self.job.restart()

    @rule(minutes=st.integers(1, 90))
    def time_passes(self, minutes):
        self.job.now_ms += minutes * 60_000

    @precondition(lambda self: self.hold is None and self.job.manifest.epoch)
    @rule(data=st.data())
    def hold_an_epoch(self, data):
        retained = EpochHistory(self.job.storage).retained()
        known = {one.epoch: one.manifest for one in retained if not one.is_put_aside}
        self.held = known[data.draw(st.sampled_from(sorted(known)))]
        self.hold = self.job.ledger.holding(self.held.epoch)
        self.hold.__enter__()

    @precondition(lambda self: self.hold is not None)
    @rule()
    def release(self):
        if self.hold is not None:
            self.hold.__exit__(None, None, None)
            self.hold = self.held = None

    @precondition(lambda self: self.hold is None and len(self.job.sealed_epochs()) > 1)
    @rule(data=st.data())
    def damage_the_newest(self, data):
        storage, newest = self.job.storage, self.job.manifest
        older = [
            one.manifest
            for one in EpochHistory(storage).retained()
            if one.manifest and one.epoch < newest.epoch and not one.is_put_aside
        ]
        spared = set().union(*map(needed_paths, older))
        paths = [f"epochs/{newest.epoch:012}.manifest", *sorted(needed_paths(newest) - spared)]
        path = data.draw(st.sampled_from(paths))
        whole = storage.read(path)
        position = data.draw(st.integers(0, len(whole) - 1))
        bit = data.draw(st.integers(0, 8))
        damaged = whole[:position] if bit == 8 else flipped(whole, position, bit)
        replace_object(storage, path, damaged)
        if path == paths[0] and bit != 8 and len(whole) - position in VERSION_PLACES:
            with raises(ManifestVersionError):  # It may be of another version.
                self.job.restart()
            storage.delete(path)
            assert self.job.restart().manifest.epoch == newest.epoch - 1
            del self.sealed_ms[newest.epoch]
            return
        last = self.job.restart()
        assert [error.facts["path"] for error in last.damaged] == [paths[0]]
        assert last.manifest.epoch == newest.epoch - 1
        del self.sealed_ms[newest.epoch]

    @invariant()
    def the_newest_epoch_is_whole(self):
        job = self.job
        assert job.read() == job.models[job.manifest.epoch]
        for path in sink_paths(job.manifest):
            job.storage.read(path)

    @invariant()
    def whatever_is_listed_can_be_restored(self):
        for one in EpochHistory(self.job.storage).retained():
            if one.manifest is not None and not one.is_put_aside:
                assert self.job.read(one.manifest) == self.job.models[one.epoch]

    @invariant()
    def what_is_young_or_held_or_among_the_last_is_there_and_nothing_else(self):
        assert set(self.job.sealed_epochs()) == set(self.sealed_ms)
        if self.held is not None:
            assert self.job.read(self.held) == self.job.models[self.held.epoch]


def test_no_order_of_events_removes_what_is_needed(tmp_path_factory):
    class Here(Retention):
        def folder_factory(self):
            return tmp_path_factory.mktemp("job")

    Here.TestCase.settings = settings(
        max_examples=examples(60), stateful_step_count=30, deadline=None
    )
    Here.TestCase().runTest()


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_any_byte_that_is_flipped_or_cut_in_any_file_is_found_and_fallen_back_from(
    tmp_path_factory, data, seed
):
    job = Job(tmp_path_factory.mktemp("job"), retained=5)
    chance = random.Random(seed)
    for epoch in range(1, 6):
        entries = {chance.randrange(30): epoch for _ in range(3)}
        job.seal(job.run(entries, is_interval_over=chance.random() < 0.3), entries)
    storage = job.storage
    known = {one.epoch: one.manifest for one in EpochHistory(storage).retained()}
    manifests = [path for path in storage.list("epochs") if path.endswith(".manifest")]
    path = data.draw(st.sampled_from(manifests + storage.list("state")))
    whole = storage.read(path)
    position = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 8))
    replace_object(storage, path, whole[:position] if bit == 8 else flipped(whole, position, bit))

    hurt = {
        epoch
        for epoch, manifest in known.items()
        if path in needed_paths(manifest) or path == f"epochs/{epoch:012}.manifest"
    }
    if hurt == set(known):
        with raises(NO_EPOCH_READABLE):
            job.restart()
        return
    last = job.restart()
    expected = max(set(known) - hurt)
    assert last.manifest.epoch == expected
    assert job.read() == job.models[expected]
    told = {error.facts["path"] for error in last.damaged}
    passed_over = {f"epochs/{epoch:012}.manifest" for epoch in hurt if epoch > expected}
    assert passed_over <= told


def test_storage_stays_below_twice_the_live_state_and_one_interval_of_changes(tmp_path):
    """A steady job: as many keys as ever, each interval changes a tenth of them."""
    job = Job(tmp_path, retained=2)
    everything = dict.fromkeys(range(20_000), 10**6)
    job.seal(job.run(everything, is_interval_over=True), everything)
    job.collect()
    live = sum(job.storage.size(path) for path in job.storage.list("state"))
    chance = random.Random(7)
    per_interval, deltas, ratios = 10, [], []
    for epoch in range(2, 82):
        entries = {chance.randrange(20_000): 10**6 + epoch for _ in range(200)}
        before = sum(job.storage.size(path) for path in job.storage.list("state"))
        job.seal(job.run(entries, is_interval_over=epoch % per_interval == 0), entries)
        written = sum(job.storage.size(path) for path in job.storage.list("state")) - before
        job.collect()
        if epoch % per_interval:
            deltas.append(written)
        found = sum(job.storage.size(path) for path in job.storage.list("state"))
        interval = sum(sorted(deltas)[-per_interval:])
        ratios.append(found / (2 * live + interval))
    assert max(ratios) <= 1, max(ratios)
