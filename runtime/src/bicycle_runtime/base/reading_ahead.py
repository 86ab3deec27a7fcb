"""Reading many objects in their order, with several requests under way at a time.

The idea a reader needs: an object storage answers late, and each connection has a part of its
bandwidth. So the next objects are requested while others are worked on, and a large object is
requested in parts. The waiting bytes in memory have a bound. Nothing is checked here: callers know
the checksums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import Storage

_REQUESTS = 8
_PART_BYTES = 8 << 20
_AHEAD_BYTES = 64 << 20  # At most so much is requested, or waits, and one part more.

# Index of the object, expected size, whether it is the object's last, its request.
_Part = tuple[int, int, bool, Callable[[], bytes]]


def objects_ahead(
    storage: Storage, objects: Sequence[tuple[str, int]], *, come: Callable[[int], object]
) -> Iterator[bytes]:
    """Yield the content of objects, in their order.

    Args:
        storage: Their location.
        objects: Path and expected size of each. An object of another size comes as it is, or too
            long by a byte: its caller finds out.
        come: Gets the size of each part when it is there, in the thread of the caller.

    Raises:
        ObjectMissingError: there is no such object.
        StorageError: the storage cannot be read.
    """
    parts: list[bytes] = []
    for _, data, is_last in parts_ahead(storage, objects):
        come(len(data))
        parts.append(data)
        if is_last:
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts = []


def parts_ahead(
    storage: Storage, objects: Sequence[tuple[str, int]]
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the parts of objects: the object's index, bytes, and whether it ends.

    Args:
        storage: Their location.
        objects: Path and expected size of each.

    Raises:
        ObjectMissingError: there is no such object.
        StorageError: the storage cannot be read.
    """
    parts = [part for index, item in enumerate(objects) for part in _parts(storage, index, *item)]
    if len(parts) == 1:
        [(index, _, is_last, request)] = parts
        yield index, request(), is_last
        return
    coming: deque[tuple[_Part, Future[bytes]]] = deque()
    waiting = deque(parts)
    ahead_bytes = 0
    pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="bicycle-read-ahead")
    try:
        while waiting or coming:
            while waiting and (ahead_bytes < _AHEAD_BYTES or not coming):
                part = waiting.popleft()
                ahead_bytes += part[1]
                coming.append((part, pool.submit(part[3])))
            (index, size, is_last, _), answer = coming.popleft()
            yield index, answer.result(), is_last
            ahead_bytes -= size
    finally:
        pool.shutdown(cancel_futures=True)


def _parts(storage: Storage, index: int, path: str, size: int) -> Iterator[_Part]:
    if size <= _PART_BYTES or not isinstance(storage, S3Storage):
        yield index, size, True, partial(storage.read, path)
        return
    for start in range(0, size, _PART_BYTES):
        end = start + _PART_BYTES
        is_last = end >= size
        # One byte more than there must be: so an object that is too long does not pass for whole.
        end = size + 1 if is_last else end
        yield index, end - start, is_last, partial(storage.read_span, path, start, end)
