"""Bases go with their key groups, and keep their times to live."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.rescale import restore_ranges
from bicycle_runtime.state.sealed import bases
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.state import StateTtl, ValueStateDescriptor
from tests.examples import examples
from tests.unit.state.disk_workers import BACKENDS, BLANK, GROUPS, Worker, counts_of


@pytest.fixture(autouse=True)
def bases_at_each_interval(monkeypatch):
    """Let a base be worth while however little has changed."""
    monkeypatch.setattr(bases, "fold_start", lambda files, *, is_interval_over: is_interval_over)


class Job:
    """An operator at some parallelism, each subtask with a worker of its own."""

    def __init__(self, folder, backend="rocksdb"):
        self.folder = folder
        self.workers = []
        self.ranges = (BLANK,)
        self.epoch = 0
        self.use(backend)

    def use(self, backend):
        for worker in self.workers:
            worker.store.close()
        self.backend = backend
        self.workers = [Worker(self.folder, backend=backend) for _ in self.ranges]

    def rescale(self, parallelism):
        state = OperatorState(scope="key_groups", group_count=GROUPS, ranges=self.ranges)
        self.ranges = restore_ranges(
            state, scope=StateScope.KEY_GROUPS, group_count=GROUPS, parallelism=parallelism,
            owner=("job", "op"),
        )  # fmt: skip
        self.use(self.backend)

    def run(self, entries, *, is_interval_over=False):
        self.epoch += 1
        ranges = []
        for worker, sealed in zip(self.workers, self.ranges, strict=True):
            mine = range(sealed.first_group, sealed.end_group)

            def write(function, mine=mine):
                for key, value in entries.items():
                    if key % GROUPS in mine:
                        counts = function(key % GROUPS).counts
                        if value is None:
                            counts.pop(str(key), None)
                        else:
                            counts[str(key)] = value

            ranges.append(
                worker.epoch(sealed, self.epoch, write, is_interval_over=is_interval_over)
            )
        self.ranges = tuple(ranges)

    def read(self):
        return {
            int(key): value
            for worker, sealed in zip(self.workers, self.ranges, strict=True)
            for key, value in counts_of(worker, sealed).items()
        }

    def close(self):
        for worker in self.workers:
            worker.store.close()


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.close()


@pytest.mark.parametrize("parallelisms", [(1, 4), (4, 1), (4, 3, 2), (1, 3, 4, 1)])
def test_a_base_goes_with_its_key_groups(job, parallelisms):
    job.rescale(parallelisms[0])
    model = {}
    for parallelism in parallelisms[1:]:
        for _ in range(4):
            entries = {key: job.epoch for key in range(job.epoch, 40 + job.epoch, 3)}
            model |= entries
            job.run(entries, is_interval_over=True)
        assert all(state.files[0].is_database for state in job.ranges)
        job.rescale(parallelism)

        assert job.read() == model


ENTRIES = st.dictionaries(st.integers(0, 11), st.none() | st.integers(0, 9), max_size=4)
STEPS = st.lists(
    st.tuples(st.just("epoch"), ENTRIES)
    | st.tuples(st.just("interval"), ENTRIES)
    | st.tuples(st.just("rescale"), st.integers(1, GROUPS))
    | st.tuples(st.just("use"), st.sampled_from(BACKENDS))
    | st.tuples(st.just("lose"), st.none()),
    max_size=12,
)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_mix_of_bases_deltas_sizes_and_backends_gives_one_state(tmp_path_factory, steps):
    job, model = Job(tmp_path_factory.mktemp("job")), {}
    for action, what in steps:
        match action:
            case "epoch" | "interval":
                job.run(what, is_interval_over=action == "interval")
                model = {k: v for k, v in (model | what).items() if v is not None}
            case "rescale":
                job.rescale(what)
            case "use":
                job.use(what)
            case "lose":
                job.close()
                shutil.rmtree(job.folder / "local", ignore_errors=True)
                job.use(job.backend)
        assert job.read() == model
    job.close()


# --- times to live -------------------------------------------------------------------------------


class Timed:
    """A keyed state with a TTL, in a process of its own; the time is set by hand."""

    def __init__(self, folder, place, *, ttl=StateTtl(10)):  # noqa: B008  # it is frozen
        self.now = 0
        settings = StateSettings(backend="rocksdb", folder=str(folder / place))
        tables = tables_for(settings, job_url="job")
        self.keyed = tables.keyed(GroupCache(GROUPS), lambda _domain: self.now)
        storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        self.descriptor = ValueStateDescriptor("seen", int, ttl=ttl)
        self.keyed.entries_of(self.descriptor)
        self.store = tables.store("op", storage, self.new_table)

    def new_table(self):
        self.keyed.reset()
        return self.keyed

    def epoch(self, sealed, now, *keys, is_over=False):
        self.now = now
        self.store.at(sealed)
        self.store.bases.wait()
        for key in keys:
            self.keyed.entries_of(self.descriptor).put(key, now)
        number = sealed.epoch + 1
        return self.store.commit(
            sealed, epoch=number, attempt=f"{number}", is_interval_over=is_over
        )

    def keys(self, sealed):
        self.store.at(sealed)
        return set(self.keyed.entries_of(self.descriptor).entry_keys())


def timed_base(folder):
    """Two entries in a base, one behind it."""
    worker = Timed(folder, "first")
    sealed = worker.epoch(RangeState(first_group=0, end_group=GROUPS), 0, "ada")
    sealed = worker.epoch(sealed, 5, "bob", is_over=True)
    sealed = worker.epoch(sealed, 6, "eve")
    assert sealed.files[0].is_database
    worker.store.close()
    return sealed


def test_times_to_live_go_on_behind_a_base(tmp_path):
    sealed = timed_base(tmp_path)
    worker = Timed(tmp_path, "second")
    sealed = worker.epoch(sealed, 14, "joe")

    assert worker.keys(sealed) == {"bob", "eve", "joe"}
    sealed = worker.epoch(sealed, 18, "joe")
    assert worker.keys(sealed) == {"joe"}
    worker.store.close()


def test_entries_without_a_time_behind_a_base_get_one(tmp_path):
    sealed = timed_base(tmp_path)
    without = Timed(tmp_path, "second", ttl=None)
    sealed = without.epoch(sealed, 7, "kim")
    without.store.close()
    worker = Timed(tmp_path, "third")
    sealed = worker.epoch(sealed, 100, "joe")
    assert worker.keys(sealed) == {"kim", "joe"}
    sealed = worker.epoch(sealed, 120, "joe")

    assert worker.keys(sealed) == {"joe"}
    worker.store.close()
