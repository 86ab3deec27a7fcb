"""The cache of one operator's state on disk: space, repair and the memory bound.

An entry is *hot* when it was used since the cache was last aged, *warm* when it was used in the
span before, and *touched* when the running epoch changed it. Touched entries stay until they are
sealed; of the others the bound keeps the entries used last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from bicycle_runtime.state.rocksdb.indexes import Index
from bicycle_runtime.state.rocksdb.space import RocksSpace, SpaceError, is_from_rocksdb
from bicycle_runtime.state.settings import StateSettings


class CachePart(Protocol):
    """A part of the table that keeps entries of the space in memory.

    ``is_lasting`` means that the part outlives the table, because handles of functions hold it.
    """

    is_lasting: bool

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""

    def age(self, share: float) -> None:
        """Evict warm entries, and make the newest hot, untouched entries warm.

        Args:
            share: How large a part, up to 1.
        """


class UncountedPart:
    """A part for the changes of the running epoch, or for entries counted elsewhere."""

    __slots__ = ()

    def clean_count(self) -> int:
        """Return 0: this part has no entries to evict."""
        return 0

    def age(self, share: float) -> None:
        """Keep everything."""


class BatchKeys:
    """The keys of the records of a batch, by which single values of state are read.

    Args:
        keys: Returns the keys; called when the first of them is read.
        groups: The key group of a key, by indexing.
    """

    def __init__(self, keys: Callable[[], Iterable[Any]], groups: Mapping[Any, int]) -> None:
        self._keys = keys
        self._groups = groups
        self._found: dict[int | None, dict[Any, None]] = {}

    def of(self, group: int | None) -> dict[Any, None]:
        """Return the keys of a key group; None for all keys."""
        found = self._found
        if None not in found:
            found[None] = dict.fromkeys(self._keys())
        if group is not None and len(found) == 1:
            for key in found[None]:
                found.setdefault(self._groups[key], {})[key] = None
        return found.get(group, {})


class DiskCache:
    """The parts on disk of one operator in one subtask.

    Args:
        settings: Bounds of memory.
        job_url: The job's checkpoint storage, which distinguishes its state from other jobs'.
    """

    def __init__(self, settings: StateSettings, *, job_url: str) -> None:
        self.settings = settings
        self.job_url = job_url
        self.groups = range(0)
        self.timed: dict[str, bool] = {}
        self.marks: set[str] = set()
        self.batch: BatchKeys | None = None
        self._indexes: dict[str, Index] = {}
        self._space: RocksSpace | None = None
        self.get: Callable[[Any], Any] = _nowhere
        self._heal: Callable[[BaseException], RocksSpace] | None = None
        self._members: list[CachePart] = []
        self._stale: list[bytes] = []

    def stand_on(
        self, space: RocksSpace, groups: range, heal: Callable[[BaseException], RocksSpace]
    ) -> None:
        """Read from a space from now on.

        Args:
            space: Sealed entries.
            groups: The key groups in it.
            heal: Builds the space again when it cannot be read, and returns it.
        """
        self._space, self._heal, self.groups = space, heal, groups
        self.get = space.get
        self.marks = space.marks()
        self._stale.clear()

    @property
    def is_open(self) -> bool:
        """Return whether a space is open."""
        return self._space is not None

    def let_go(self) -> None:
        """Read from no space any more."""
        self._space = self._heal = None
        self.get = _nowhere

    def key_count(self) -> int:
        """Return about how many entries are sealed; 0 while there is no space."""
        return 0 if self._space is None else self._space.entry_count()

    # --- reading -----------------------------------------------------------------------------

    def read(self, entry_key: Any) -> Any:
        """Return the sealed bytes of a database key or None, or a list of them for a list."""
        try:
            return self.get(entry_key)
        except Exception as error:
            if not is_from_rocksdb(error):
                raise
            return self._heal_space(error).get(entry_key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield sealed entries with ``start <= key < end``, in order."""
        assert self._space is not None
        entries = self._space.scan(start, end)
        entry_key: bytes | None = None
        while True:
            try:
                entry = next(entries, None)
            except SpaceError as error:
                entries = self._heal_space(error).scan(
                    start if entry_key is None else entry_key + b"\0", end
                )
                continue
            if entry is None:
                return
            entry_key = entry[0]
            yield entry

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last sealed entry with ``start <= place < end``."""
        assert self._space is not None
        try:
            return self._space.last(start, end)
        except SpaceError as error:
            return self._heal_space(error).last(start, end)

    def names(self, group: int, prefix: str = "") -> list[str]:
        """Return the names with a prefix that have sealed entries in a key group."""
        assert self._space is not None
        try:
            return self._space.names(group, prefix)
        except SpaceError as error:
            return self._heal_space(error).names(group, prefix)

    def _heal_space(self, error: BaseException) -> RocksSpace:
        assert self._heal is not None
        self._space = self._heal(error)
        self.get = self._space.get
        return self._space

    # --- memory ------------------------------------------------------------------------------

    def join(self, part: CachePart) -> None:
        """Register a part, which is settled and aged with the others."""
        self._members.append(part)

    def keep_index(self, index: Index) -> None:
        """Keep an index in the space, instead of an older one for the same change sets."""
        self._indexes[index.prefix] = index

    @property
    def indexes(self) -> list[Index]:
        """The indexes that the space has."""
        return list(self._indexes.values())

    def forget(self) -> None:
        """Drop the cache of a discarded table, with its list of stale index entries."""
        self._stale.clear()
        self._members = [part for part in self._members if part.is_lasting]

    def trim(self) -> None:
        """Keep the bound on entries in memory. Called between batches."""
        limit = self.settings.cache_entries // 2
        count = sum(part.clean_count() for part in self._members)
        if count <= limit:
            return
        for part in self._members:
            part.age(limit / count)

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space.

        Called after they were applied to it.
        """
        assert self._space is not None
        for part in self._members:
            part.settle()
        marks = {n: is_set for n, is_set in self.timed.items() if is_set != (n in self.marks)}
        if self._stale or marks:
            self._space.tidy(self._stale, marks)
            self.marks = {n for n in self.marks | set(marks) if marks.get(n, True)}
            self._stale.clear()

    def drop_stale(self, entry_key: bytes) -> None:
        """Note a stale entry of the time index, to be removed later."""
        self._stale.append(entry_key)


def _nowhere(entry_key: bytes) -> bytes | None:
    raise AssertionError(f"nothing is open to read {entry_key!r} from")
