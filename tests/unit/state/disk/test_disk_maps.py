"""Maps on disk, of which many entries are put and taken at once, are those in memory."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.state.entries import MISSING
from tests.examples import examples

ROWS = MapStateDescriptor("rows", tuple[int, int], str)
KEYS = st.sampled_from(["a", "b"])
PARTS = st.tuples(st.integers(0, 30), st.integers(0, 1))
SOME = st.lists(PARTS, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add_all", "add_all", "between", "take"]), KEYS, SOME),
        st.tuples(st.sampled_from(["seal", "seal", "age"]), KEYS, SOME),
    ),
    max_size=25,
)


class Process:
    """A worker process with a map for each key."""

    def __init__(self, folder, backend):
        self.tables = tables_for(
            StateSettings(backend=backend, folder=str(folder / "local"), cache_entries=4),
            job_url="job",
        )
        groups = GroupCache(4)
        self.keyed = self.tables.keyed(groups, lambda _: 0)
        storage = LocalStorage(str(folder / backend), is_synced=False)
        self.store = self.tables.store("op", storage, self.new_table)
        self.sealed, self.epoch = RangeState(first_group=0, end_group=4), 0
        self.entries = self.keyed.entries_of(ROWS)
        self.begin()

    def new_table(self):
        self.keyed.reset()
        return self.keyed

    def begin(self):
        self.store.at(self.sealed)
        self.store.bases.wait()

    def step(self, word, key, parts):
        first, *_, last = [*sorted(parts), (9, 0), (20, 0)]
        match word:
            case "add_all":
                texts = [f"{self.epoch}-{number}" for number in range(len(parts))]
                return self.entries.add_all(key, parts, texts)
            case "seal":
                self.epoch += 1
                self.sealed = self.store.commit(
                    self.sealed, epoch=self.epoch, attempt="a", is_interval_over=False
                )
                return self.begin()
            case "age":
                return self.tables.space.trim()
            case "take":
                # What a table yields for keys without entries has no meaning.
                taken = self.entries.take([key, "nobody"], last)
                return [each for each in taken if each[1] or each[2] is not MISSING]
        return self.entries.between(key, first, last)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
@example([("add_all", "a", []), ("take", "a", []), ("seal", "a", []), ("take", "a", [])])
def test_many_entries_at_once_are_the_same_on_disk_as_in_memory(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("state")
    both = [Process(folder, backend) for backend in ("memory", "rocksdb")]
    try:
        for step in steps:
            found = [process.step(*step) for process in both]
            assert found[0] == found[1]
        kept = [[list(process.entries.scan(key)) for key in "ab"] for process in both]
        assert kept[0] == kept[1]
    finally:
        for process in both:
            process.store.close()
