"""What waits for a time, in order, of which only a part is in memory.

The space has entries that are sealed in an index by time. A heap holds those that the running epoch
has added, and of the sealed ones all that come before the *floor*; from there on they are read when
they are needed, a chunk at a time. Entries may be out of date: the code that gets one looks.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Generic, TypeVar

from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.rocksdb.key_layout import behind, index_start

__all__ = ["TimeQueue"]

Item = TypeVar("Item")
_CHUNK = 512


class TimeQueue(Generic[Item]):
    """Items of one index.

    Args:
        cache: The operator's.
        name: Name of the index.
        item_of: Makes an item of what sorts it and of the data of its entry.
    """

    def __init__(
        self, cache: DiskCache, name: str, item_of: Callable[[bytes, bytes], Item]
    ) -> None:
        self._cache = cache
        self._start = index_start(name)
        self._end = behind(self._start)
        self._item_of = item_of
        self._heap: list[tuple[bytes, int, Item]] = []
        self._added = 0
        self._floor: bytes | None = b""  # None when all are in the heap.

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, order: bytes, item: Item) -> None:
        """Put an item in, in the running epoch."""
        self._added += 1
        heappush(self._heap, (order, self._added, item))

    def first(self) -> tuple[bytes, Item] | None:
        """Return the first item with what sorts it; None when there is none."""
        heap = self._heap
        while self._floor is not None and not (heap and heap[0][0] < self._floor):
            self._load(self._floor)
        return (heap[0][0], heap[0][2]) if heap else None

    def pop(self) -> None:
        """Take the first item out, which may be there more than once."""
        order = heappop(self._heap)[0]
        while self._heap and self._heap[0][0] == order:
            heappop(self._heap)

    def db_key(self, order: bytes) -> bytes:
        """Return where the entry of an item lies in the space."""
        return self._start + order

    def discard(self, is_gone: Callable[[Item], bool]) -> None:
        """Take out what is gone."""
        self._heap[:] = [entry for entry in self._heap if not is_gone(entry[2])]
        heapify(self._heap)

    def trim(self, count_max: int) -> None:
        """Let go of the last items when there are too many. All must be sealed."""
        heap = self._heap
        if len(heap) <= count_max:
            return
        heap.sort()
        first = heap[count_max // 2][0]
        del heap[count_max // 2 :]
        self._floor = first if self._floor is None else min(first, self._floor)

    def reset(self) -> None:
        """Forget all that is in memory."""
        self._heap.clear()
        self._floor = b""

    def _load(self, floor: bytes) -> None:
        entries = list(islice(self._cache.scan(self._start + floor, self._end), _CHUNK))
        for db_key, data in entries:
            order = db_key[len(self._start) :]
            self.add(order, self._item_of(order, data))
        is_all = len(entries) < _CHUNK
        self._floor = None if is_all else entries[-1][0][len(self._start) :] + b"\0"
