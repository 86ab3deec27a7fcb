"""Which bytes of which files one epoch reads: a pure function of the table and the budget."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bicycle_runtime.connectors.contract import Budget
from bicycle_runtime.connectors.files.tracking import TrackedFile
from bicycle_runtime.operators.io import Slice

__all__ = ["plan_slices"]

SLICE_BYTES_MIN = 256 << 10
_COMPRESSION_RATIO_GUESS = 8
_COMPRESSED_BYTES_MIN = 64 << 10
_SCAN_BYTES = 1 << 20
_SAMPLE_BYTES = 64 << 10
_LOOSE_FACTOR = 8
_SHARE_RECORDS_MIN = 1_000


def plan_slices(
    files: Iterable[TrackedFile],
    budget: Budget,
    *,
    is_splittable: bool,
    is_followed: bool,
    file_count_max: int,
) -> list[Slice]:
    """Return slices within the budget, at most ``file_count_max`` files.

    Files are read side by side: event time can move on only when none of them is far behind, and
    what waits for it is state. A file that has less than its share leaves the rest to the others.

    1. Compressed files that were begun come first, so that few are open; then the file that waited
       longest. As many are read as get a share that is worth opening them.
    2. A plain file is taken up to its share of the bytes and cut where that of the records ends.
    3. A compressed file gets an equal share of the records that are left, which its reader
       observes.
    """
    ordered = sorted(files, key=_order)[: min(file_count_max, _file_count(budget))]
    slices: list[Slice] = []
    bytes_left, records_left = budget.byte_count, budget.record_count
    for index, file in enumerate(sorted(ordered, key=_size_left)):
        if bytes_left <= 0 or records_left <= 0:
            break
        sharer_count = len(ordered) - index
        records = max(records_left // min(sharer_count, max(records_left, 1)), 1)
        if file.is_compressed:
            part = _compressed_slice(file, bytes_left, records)
            records_left -= records
            bytes_left -= part.end - part.start
            slices.append(part)
            continue
        start = file.offset
        share = max(bytes_left // sharer_count, 1)
        end, record_count = _fitting(file, min(file.readable_end, start + share), records)
        count = _slice_count(end - start, budget.parallelism) if is_splittable else 1
        slices += _plain_slices(file, start, end, count, is_complete=not is_followed)
        bytes_left -= end - start
        records_left -= record_count
    return slices


def _file_count(budget: Budget) -> int:
    """Return among how many files it is worth dividing a budget."""
    by_bytes = budget.byte_count // SLICE_BYTES_MIN
    by_records = budget.record_count // _SHARE_RECORDS_MIN
    return max(1, min(by_bytes, by_records))


def _size_left(file: TrackedFile) -> tuple[bool, int]:
    """Sorts files so that those with less than their share come before those that get the rest."""
    return file.is_compressed, file.readable_end - file.offset


def _order(file: TrackedFile) -> tuple[bool, int, str]:
    is_begun = file.is_compressed and file.offset > 0
    return not is_begun, file.turn, file.path


def _slice_count(byte_count: int, parallelism: int) -> int:
    return max(1, min(parallelism, byte_count // SLICE_BYTES_MIN))


def _plain_slices(
    file: TrackedFile, start: int, end: int, count: int, *, is_complete: bool
) -> list[Slice]:
    bounds = [start + (end - start) * i // count for i in range(count + 1)]
    return [
        Slice(
            shard=file.shard,
            start=bounds[i],
            end=bounds[i + 1],
            details=_details(
                file,
                is_aligned=i == 0,
                limit=file.readable_end,
                records=None,
                is_complete=is_complete,
            ),
        )
        for i in range(count)
    ]


def _compressed_slice(file: TrackedFile, bytes_left: int, records: int) -> Slice:
    guess = max(file.size * _COMPRESSION_RATIO_GUESS, _COMPRESSED_BYTES_MIN)
    end = file.offset + min(guess, bytes_left)
    details = _details(file, is_aligned=True, limit=None, records=records, is_complete=True)
    return Slice(shard=file.shard, start=file.offset, end=end, details=details)


def _details(
    file: TrackedFile,
    *,
    is_aligned: bool,
    limit: int | None,
    records: int | None,
    is_complete: bool,
) -> dict[str, Any]:
    return {
        "path": file.path,
        "identity": file.identity.to_json(),
        "aligned": is_aligned,
        "limit": limit,
        "records": records,
        "complete": is_complete,
    }


def _fitting(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return what ``_cut`` does, and all bytes of a file that is not at its place any more.

    Its reader finds it under another name, or says that it is gone.
    """
    try:
        return _cut(file, end, records_left)
    except OSError:
        return end, records_left


def _cut(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return an end with at most ``records_left`` lines before it, and a bound of their count.

    The lines are counted (at memory speed) unless a sample says that the bytes are the tighter
    bound by far.
    """
    if end - file.offset <= records_left:
        return end, end - file.offset
    with Path(file.path).open("rb") as stream:
        stream.seek(file.offset)
        sample = stream.read(min(_SAMPLE_BYTES, end - file.offset))
        lines_per_byte = max(sample.count(b"\n"), 1) / len(sample) if sample else 0.0
        expected = int((end - file.offset) * lines_per_byte) + 1
        if expected * _LOOSE_FACTOR < records_left:
            return end, expected
        stream.seek(file.offset)
        position, count = file.offset, 0
        while position < end:
            data = stream.read(min(_SCAN_BYTES, end - position))
            if not data:
                break
            found = data.count(b"\n")
            if count + found >= records_left:
                return position + _nth_newline_end(data, records_left - count), records_left
            count += found
            position += len(data)
    return end, count + 1


def _nth_newline_end(data: bytes, number: int) -> int:
    position = 0
    for _ in range(number):
        position = data.index(b"\n", position) + 1
    return position
