"""A job of one reduce and one sink, run on the ledger as the engine does, beside a model of it."""

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.tables import AccumulatorTable
from bicycle_runtime.state.sealed.refs import with_mark
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_runtime.state.stores.store import StateStore

GROUPS = 8
PLAN = PlanRecord(bundle_digest="d", parallelism={"op": 1}, now_ms=5)


class Job:
    """A job of one reduce and one sink, as the engine runs it, with what must come out beside."""

    def __init__(self, folder, retained=2, *, age_ms=0, storage=None, backend="memory"):
        self.settings = StateSettings(backend=backend, folder=f"{folder}-local")
        self.store = None
        self.storage = storage or LocalStorage(str(folder), is_synced=False)
        self.retained = retained
        self.age_ms = age_ms
        self.now_ms = PLAN.now_ms
        self.models = {0: {}}
        self.restart()

    def restart(self):
        """Start as a new process: find the last epoch, sweep, forget all memory."""
        self.ledger = EpochLedger(
            self.storage, job="job", retained_count=self.retained, retained_age_ms=self.age_ms,
            sink_paths=sink_paths,
        )  # fmt: skip
        last = self.ledger.last()
        self.manifest = last.manifest if last else Manifest(epoch=0, plan=PLAN)
        if last:
            self.ledger.sweep()
        blank = RangeState(first_group=0, end_group=GROUPS)
        found = self.manifest.states.get("op")
        self.state = with_mark(found.ranges[0], None) if found else blank
        self.close()
        tables = tables_for(self.settings, job_url="job")
        self.store = tables.store("op", self.storage, lambda: tables.accumulators(None))
        return last

    def close(self):
        """End the worker process."""
        if self.store is not None:
            self.store.close()

    def run(self, entries, *, attempt="a", is_interval_over=False):
        """Run the tasks of the next epoch; nothing is sealed yet."""
        table = self.store.at(self.state)
        self.store.bases.wait()
        for key, value in entries.items():
            table.groups.setdefault(key % GROUPS, {})[key] = value
            table.touched[(key % GROUPS, key)] = None
        epoch = self.manifest.epoch + 1
        state = self.store.commit(
            self.state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
        )
        staged = f"staged/sink/{epoch:012}/{attempt}"
        self.storage.write(staged, repr(entries).encode())
        return Manifest(
            epoch=epoch,
            plan=PlanRecord(bundle_digest="d", parallelism={"op": 1}, now_ms=self.now_ms),
            event_count=epoch,
            offsets={"source": {"shard": epoch}},
            states={"op": OperatorState(scope="key_groups", group_count=GROUPS, ranges=(state,))},
            sinks={"sink": {"files": [staged]}},
        )

    def seal(self, manifest, entries):
        self.ledger.seal(manifest)
        self.manifest, self.state = manifest, manifest.states["op"].ranges[0]
        self.models[manifest.epoch] = self.models[manifest.epoch - 1] | entries

    def collect(self):
        self.ledger.mark_published(self.manifest.epoch)
        self.ledger.collect(now_ms=self.now_ms)

    def read(self, manifest=None):
        state = self.state if manifest is None else manifest.states["op"].ranges[0]
        table = StateStore("op", self.storage, AccumulatorTable).at(with_mark(state, None))
        return {key: value for group in table.groups.values() for key, value in group.items()}

    def act(self, action, entries, *, attempt):
        """Do what any run of a job may do with its next entries; other words mean nothing here."""
        match action:
            case "epoch" | "interval":
                over = action == "interval"
                self.seal(self.run(entries, attempt=attempt, is_interval_over=over), entries)
            case "crash before":
                self.run(entries, attempt=attempt)
                self.restart()
            case "crash after":
                self.seal(self.run(entries, attempt=attempt), entries)
                self.restart()
            case "restart":
                self.restart()

    def sealed_epochs(self):
        names = (path.rpartition("/")[2] for path in self.storage.list("epochs"))
        return [int(name.partition(".")[0]) for name in names if name.endswith(".manifest")]


def sink_paths(manifest):
    return set(manifest.sinks.get("sink", {}).get("files", ()))


def hurt(storage, path, damage):
    data = storage.read(path)
    storage.delete(path)
    match damage:
        case "cut":
            storage.write(path, data[:-3])
        case "flip":
            storage.write(path, data[:10] + bytes([data[10] ^ 1]) + data[11:])
        case "empty":
            storage.write(path, b"")
