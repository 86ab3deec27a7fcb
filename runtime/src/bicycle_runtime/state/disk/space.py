"""The state space of the backend ``rocksdb``: partly in memory, the rest on disk.

It makes dicts, entries and queues for tables that read missing entries (``cache``), over the folder
with the sealed entries (``folder``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from bicycle_runtime.layouts.state import ChangeSet, RangeState, TimerKind, WindowKey
from bicycle_runtime.state.disk.cache import BatchKeys, DiskCache, UncountedPart
from bicycle_runtime.state.disk.dicts import DiskDict, SealedEntries
from bicycle_runtime.state.disk.entries import DiskMapEntries, DiskValueEntries
from bicycle_runtime.state.disk.folder import LocalFolder
from bicycle_runtime.state.disk.timers import DiskExpiry, DiskTimerQueue, TimeQueue
from bicycle_runtime.state.disk.windows import (
    DiskKeyRecords,
    DiskNamespaceRecords,
    DiskWindowEntries,
)
from bicycle_runtime.state.memory.attributes import Attribute
from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.space import (
    KeyedEntries,
    StateSpace,
    StateTable,
    Store,
    map_key_order,
)
from bicycle_runtime.state.memory.windows import Moments, Records, WindowEntries
from bicycle_runtime.state.rocksdb.indexes import DueIndex, due_order, names_of, window_key_in
from bicycle_runtime.state.rocksdb.key_layout import (
    behind,
    key_bytes,
    state_start,
    time_in,
    value_in,
)
from bicycle_runtime.state.sealed.bases import BaseFolder, Make
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.timers import TimerQueue

_STAMPS = ValueCodec(int)


class DiskSpace(StateSpace):
    """The state of one operator in one subtask, of which only a part is in memory.

    Args:
        settings: Where the folder is, and the bounds of memory.
        job_url: The job's checkpoint storage.
    """

    holds_all = False
    reads_ahead = True

    def __init__(self, settings: StateSettings, *, job_url: str) -> None:
        self.cache = DiskCache(settings, job_url=job_url)
        self._folder: LocalFolder | None = None

    @property
    def groups(self) -> range:  # type: ignore[override]  # it follows the folder
        """The key groups in the space."""
        return self.cache.groups

    # --- sealed state --------------------------------------------------------------------------

    def read(self, group: int, name: str, key: Any) -> bytes | None:
        data = self.cache.read(state_start(group, name) + key_bytes(key))
        return None if data is None else value_in(data)

    def has(self, name: str, groups: Iterable[int] | None = None) -> bool:
        if not self.cache.is_open:
            return False
        starts = (state_start(each, name) for each in groups or self.cache.groups)
        return any(next(self.cache.scan(s, behind(s)), None) is not None for s in starts)

    def names(self, prefix: str) -> set[str]:
        groups = self.cache.groups
        return {name for group in groups for name in self.cache.names(group, prefix)}

    # --- parts of tables ---------------------------------------------------------------------

    def dicts(self, name: str, codec: ValueCodec) -> dict[int, dict[Any, Any]]:
        def make(group: int) -> DiskDict:
            return DiskDict(SealedEntries(self.cache, name, codec, group=group, is_by_key=True))

        return _Dicts(make)

    def load(self, entries: dict[Any, Any], change_set: ChangeSet, codec: ValueCodec) -> None:
        assert isinstance(entries, DiskDict)
        entries.load(change_set, codec)

    def attribute_dict(self, attribute: Attribute, group: int, initial: dict[Any, Any]) -> DiskDict:
        assert attribute.tracked is not None
        sealed = SealedEntries(
            self.cache, attribute.state_name, attribute.codec, group=group, is_by_key=True
        )
        found = DiskDict(sealed, attribute.tracked)
        found.put_all(initial)
        return found

    def keyed_entries(
        self, descriptor: StateDescriptor, codec: ValueCodec, *, entries: str, times: str,
        groups: Mapping[Any, int], clock: Callable[[TimeDomain], int],
    ) -> KeyedEntries:  # fmt: skip
        cache, is_map = self.cache, descriptor.kind in ("list", "map")

        def group_of_entry(entry_key: Any) -> int:
            return groups[entry_key[0]]

        group_of = group_of_entry if is_map else groups.__getitem__
        ttl = descriptor.time_to_live
        cache.timed[times] = ttl is not None
        found: KeyedEntries
        expiry = None
        if ttl is not None:
            expiry = DiskExpiry(
                ttl, lambda: clock(ttl.time), cache, times,
                stamps=DiskDict(
                    SealedEntries(
                        cache, times, _STAMPS, group_of=group_of, is_by_key=not is_map
                    )
                ),
                entry_keys=lambda: found.entry_keys(),  # noqa: PLW0108  # they are made below
            )  # fmt: skip
        frozen = descriptor.stored_type is not None and is_frozen_type(descriptor.stored_type)
        sealed = SealedEntries(cache, entries, codec, group_of=group_of, is_by_key=not is_map)
        if is_map:
            found = DiskMapEntries(
                cache, entries, groups.__getitem__, sealed,
                is_frozen=frozen, expiry=expiry, order=map_key_order(descriptor),
            )  # fmt: skip
        else:
            found = DiskValueEntries(sealed, is_frozen=frozen, expiry=expiry)
        return found

    def timers(self, kind: TimerKind, groups: Mapping[Any, int]) -> TimerQueue:
        return DiskTimerQueue(kind, groups, self.cache)

    def entries(
        self, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> WindowEntries:  # fmt: skip
        return DiskWindowEntries(self.cache, prefix, value_type, dump=dump, load=load)

    def records(self, value_type: Any, *, is_by_key: bool) -> Records:
        kind = DiskKeyRecords if is_by_key else DiskNamespaceRecords
        return kind(self.cache, value_type)

    def due_times(self, domain: TimeDomain) -> DueTimes:
        return DiskDueTimes(self.cache, domain)

    def keep_due_times(self, entries: WindowEntries, moments: Moments, rules: str) -> bool:
        self.cache.keep_index(DueIndex(entries.prefix, entries.decode, moments, rules))
        return True

    def key_count(self, table: StateTable) -> int:  # noqa: ARG002  # it has a part of them
        return self.cache.key_count()

    # --- epochs ------------------------------------------------------------------------------

    def stand_at(
        self, store: Store, state: RangeState, checkpoint_id: str | None, written: list[ChangeSet]
    ) -> None:
        if self._folder is None:
            self._folder = LocalFolder(store, self.cache)
        self._folder.stand_at(state, checkpoint_id, written)

    def prepare_base(self, store: Store, state: RangeState, folder: BaseFolder) -> Make | None:  # noqa: ARG002  # it is the folder's
        assert self._folder is not None
        return self._folder.checkpoint(state, folder)

    def announce_base(self) -> None:
        assert self._folder is not None
        self._folder.write_soon()

    def trim(self) -> None:
        self.cache.trim()

    def expect(
        self, keys: Callable[[], Iterable[Any]], groups: Mapping[Any, int]
    ) -> AbstractContextManager[Any]:
        self.cache.batch = BatchKeys(keys, groups)
        expected = ExitStack()
        expected.callback(setattr, self.cache, "batch", None)
        return expected

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()


class _Dicts(dict[int, dict[Any, Any]]):
    """The dict of each key group, created on first access."""

    def __init__(self, make: Callable[[int], DiskDict]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, group: int) -> dict[Any, Any]:
        made = self[group] = self._make(group)
        return made

    def get(self, group: int, default: Any = None) -> Any:  # noqa: ARG002  # there is always one
        """Return the dict of a key group."""
        return self[group]

    def setdefault(self, group: int, default: Any = None) -> Any:  # noqa: ARG002  # as above
        """Return the dict of a key group."""
        return self[group]


class DiskDueTimes(UncountedPart, DueTimes):
    """``DueTimes`` over an index that is updated with the entries.

    Args:
        cache: The operator's.
        domain: Which time is meant.
    """

    is_lasting = True  # The operator holds it.

    def __init__(self, cache: DiskCache, domain: TimeDomain) -> None:
        super().__init__()
        self._cache = cache
        self._time_queue: TimeQueue[tuple[int, WindowKey]] = TimeQueue(
            cache,
            names_of("due", domain),
            lambda order, data: (time_in(order), window_key_in(data)),
        )
        self._taken: dict[bytes, None] = {}  # The entries that the running epoch has removed.
        self._taking: int | None = None  # The time that is being taken out.
        self._later: list[tuple[int, WindowKey]] = []
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""
        for order in self._taken:
            self._cache.drop_stale(self._time_queue.db_key(order))
        self._taken.clear()
        self._time_queue.trim(self._cache.settings.cache_entries // 2)

    # --- as due times ------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all that is in memory."""
        self._time_queue.reset()
        self._taken.clear()
        self._taking = None
        self._later.clear()

    def add(self, time_ms: int, window_key: WindowKey) -> None:
        if self._taking is not None and time_ms <= self._taking:
            self._later.append((time_ms, window_key))
            return
        order = due_order(time_ms, window_key)
        self._taken.pop(order, None)
        self._time_queue.add(order, (time_ms, window_key))

    def due(self, until_ms: int) -> Iterator[tuple[int, WindowKey]]:
        while (entry := self._time_queue.first()) is not None and entry[1][0] <= until_ms:
            self._taking = entry[1][0]
            while entry is not None and entry[1][0] == self._taking:
                self._take(entry[0])
                yield entry[1]
                entry = self._time_queue.first()
            self._taking = None
            later, self._later = self._later, []
            for time_ms, window_key in later:
                self.add(time_ms, window_key)

    def first(self, is_set: Callable[[int, WindowKey], bool]) -> int | None:
        while (entry := self._time_queue.first()) is not None:
            time_ms, window_key = entry[1]
            if is_set(time_ms, window_key):
                return time_ms
            self._take(entry[0])
        return None

    def _take(self, order: bytes) -> None:
        self._time_queue.pop()
        self._taken[order] = None
