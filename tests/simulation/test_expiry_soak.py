"""Keys come and expire forever: the local disk, the checkpoints and the files stay bounded.

An epoch is a second of the job's time. In the short form, keys live for a minute and 300 epochs
pass; ``make soak`` runs many more, with more keys.
"""

import statistics
import sys
import time

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.state import StateTtl, ValueStateDescriptor

pytestmark = pytest.mark.soak

GROUPS = 8
TTL_EPOCHS, INTERVAL_EPOCHS = 60, 10
LONG_EPOCH_COUNT = 5_000
KEYS_SHORT, KEYS_LONG = 100, 2_000
BUFFER_BYTES = 1 << 20
# An entry and its time, each with its key, and once more by time.
ENTRY_BYTES = 140


class Job:
    """One keyed state with a TTL, sealed and collected as the engine does it."""

    def __init__(self, folder, backend):
        self.local, self.now_ms = folder / "local", 0
        settings = StateSettings(
            backend=backend, folder=str(self.local), write_buffer_bytes=BUFFER_BYTES
        )
        tables = tables_for(settings, job_url="job")
        self.storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        self.ledger = EpochLedger(
            self.storage, job="job", retained_count=3, sink_paths=lambda _: set()
        )
        self.keyed = tables.keyed(GroupCache(GROUPS), lambda _domain: self.now_ms)
        ttl = StateTtl(TTL_EPOCHS * 1_000)
        self.seen = self.keyed.entries_of(ValueStateDescriptor("seen", int, ttl=ttl))
        self.store = tables.store("op", self.storage, self.new_table)
        self.state = RangeState(first_group=0, end_group=GROUPS)

    def new_table(self):
        self.keyed.reset()
        return self.keyed

    def run(self, number, key_count):
        """Run an epoch with new keys, seal it and collect what is old."""
        self.now_ms = number * 1_000
        self.store.at(self.state)
        if number % INTERVAL_EPOCHS == 1:
            self.store.bases.wait()  # Here an epoch takes milliseconds and stands for a second.
        for key in range(key_count):
            self.seen.put(f"{number}-{key}", number)
        self.state = self.store.commit(
            self.state, epoch=number, attempt="a", is_interval_over=number % INTERVAL_EPOCHS == 0
        )
        plan = PlanRecord(bundle_digest="d", parallelism={"op": 1}, now_ms=self.now_ms)
        states = {"op": OperatorState(scope="key_groups", group_count=GROUPS, ranges=(self.state,))}
        self.ledger.seal(Manifest(epoch=number, plan=plan, states=states))
        self.ledger.mark_published(number)
        self.ledger.collect()

    def figures(self):
        """Return bytes on the local disk and in the storage, and files in the storage."""
        sealed = self.storage.list("")
        return (
            sum(map(byte_count, self.local.rglob("*"))),
            sum(self.storage.size(path) for path in sealed),
            len(sealed),
        )


def byte_count(path):
    """Return the size of a file; 0 for a folder, and for a file that a compaction has removed."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_disks_stay_bounded_while_keys_come_and_expire(tmp_path, soak_epoch_count, backend, capsys):
    job = Job(tmp_path, backend)
    key_count = KEYS_LONG if soak_epoch_count >= LONG_EPOCH_COUNT else KEYS_SHORT
    found, began = [], time.perf_counter()
    for number in range(1, soak_epoch_count + 1):
        job.run(number, key_count)
        found.append(job.figures())
    seconds = time.perf_counter() - began
    job.store.close()
    quarter = len(found) // 4
    second, fourth = found[quarter : 2 * quarter], found[3 * quarter :]
    live_bytes = 2 * TTL_EPOCHS * key_count * ENTRY_BYTES
    with capsys.disabled():
        most = [max(column) for column in zip(*fourth, strict=True)]
        sys.stdout.write(
            f"\n{backend}, {soak_epoch_count} epochs of {key_count} keys in {seconds:.0f} s: "
            f"at most {most[0]:,} bytes here, {most[1]:,} sealed in {most[2]} files\n"
        )

    # When RocksDB writes a buffer out and compacts is its own affair, and a base behind that shares
    # no file with the one before: what counts is the median. Without a bound it would be 2.3 times.
    slacks = (BUFFER_BYTES, 0, 0)
    for before, after, slack in zip(
        zip(*second, strict=True), zip(*fourth, strict=True), slacks, strict=True
    ):
        assert statistics.median(after) <= 1.5 * statistics.median(before) + slack
    # Two bases while one is being taken, what changes in an interval, and files not compacted yet.
    assert max(sealed for _, sealed, _ in fourth) <= 3 * live_bytes
