"""A worker with state on disk, as small as can be: a rich function behind ``key_by``."""

from dataclasses import dataclass, field

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.state.memory.attributes import describe_attributes
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk import RichAsyncFunction

GROUPS = 4
BACKENDS = ["memory", "rocksdb"]
BLANK = RangeState(first_group=0, end_group=GROUPS)


@dataclass
class Function(RichAsyncFunction[str, str]):
    """One state attribute of each kind."""

    counts: dict[str, int] = field(default_factory=dict)
    lists: dict[str, list[int]] = field(default_factory=dict)
    seeded: dict[str, int] = field(default_factory=lambda: {"first": 1})
    total: int = 0

    def process(self, value, ctx):
        return [value]


class Worker:
    """The table of a function, and its store."""

    def __init__(self, folder, *, backend="rocksdb", cache_entries=4, job_url="job", storage=None):
        settings = StateSettings(
            backend=backend, folder=str(folder / "local"), cache_entries=cache_entries
        )
        function = Function()
        self.tables = tables_for(settings, job_url=job_url)
        self.storage = storage or LocalStorage(str(folder / "sealed"), is_synced=False)
        self.store = self.tables.store(
            "op",
            self.storage,
            lambda: self.tables.attributes(function, describe_attributes(function), call),
        )

    def epoch(self, sealed, number, write, *, is_interval_over=False):
        """Run an epoch; ``write`` gets the function of a key group."""
        table = self.store.at(sealed)
        self.store.bases.wait()
        write(lambda group: table.group(group).instance)
        return self.store.commit(
            sealed, epoch=number, attempt=f"a{number}", is_interval_over=is_interval_over
        )

    def read(self, sealed):
        """Return all entries of ``counts`` and the totals."""
        table = self.store.at(sealed)
        groups = range(sealed.first_group, sealed.end_group)
        instances = [table.group(group).instance for group in groups]
        counts = {key: count for one in instances for key, count in one.counts.items()}
        return counts, [one.total for one in instances]


def call(hook, *arguments):
    return hook(*arguments)


def put(group, **counts):
    """Return a write of counts and of their total."""

    def write(function):
        function(group).counts.update(counts)
        function(group).total += sum(counts.values())

    return write


def counts_of(worker, sealed):
    """Return all entries of ``counts``."""
    return worker.read(sealed)[0]
