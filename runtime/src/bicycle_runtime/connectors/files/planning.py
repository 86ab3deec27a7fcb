"""Slices of files: the bytes that an epoch reads, and the subtasks that do it.

The plan is a pure function of the files, their contents and the budget.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bicycle_runtime.connectors.files.tracking import TrackedFile
from bicycle_runtime.contract import Budget, Slice

SLICE_BYTES_MIN = 256 << 10
_LINE_BYTES_GUESS = 100
_COMPRESSION_RATIO_GUESS = 8
_COMPRESSED_BYTES_MIN = 64 << 10
_SCAN_BYTES = 1 << 20
_SAMPLE_BYTES = 64 << 10
_SAMPLES = 8
_LOOSE_FACTOR = 8
_ESTIMATE_RECORDS_MIN = 50_000
_SHARE_RECORDS_MIN = 1_000

LineEnds = Mapping[str, "array[int]"]  # by shard


def plan_slices(
    files: Iterable[TrackedFile],
    budget: Budget,
    *,
    is_splittable: bool,
    is_followed: bool,
    file_count_max: int,
    line_bytes: float | None = None,
) -> list[Slice]:
    """Return slices within the budget, of at most ``file_count_max`` files.

    Files are read side by side: event time can advance only when no file is far behind, and records
    that wait for it are state. A file that has less than its share leaves the rest to the others.

    1. Compressed files that were begun come first, so that few are open; then the file that waited
       longest. As many are read as get a share that is worth opening them, and more where they are
       small.
    2. A plain file is taken up to its share of the bytes and cut where that of the records ends.
    3. A compressed file gets an equal share of the records that are left, which its reader
       observes.
    4. Where records wait for calls in flight, the lines of a plain file are counted and divided
       evenly among the subtasks, however few they are: otherwise places in flight stay empty.

    Args:
        files: The files with input.
        budget: The most that an epoch may take.
        is_splittable: Whether reading may begin at any line.
        is_followed: Whether files may grow.
        file_count_max: The most files that are read.
        line_bytes: The mean size of a line; None where it is not known.
    """
    waiting = sorted(files, key=_order)[:file_count_max]
    ordered = _files_to_read(waiting, budget, line_bytes or _LINE_BYTES_GUESS)
    line_ends = _all_line_ends(ordered, budget) if is_splittable else {}
    loads = [0] * budget.parallelism
    slices: list[Slice] = []
    bytes_left, records_left = budget.byte_count, budget.record_count
    for index, file in enumerate(sorted(ordered, key=partial(_size_left, line_ends))):
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
        end = min(file.readable_end, start + share)
        if ends := line_ends.get(file.shard):
            ends = ends[: max(min(records, bisect_right(ends, end)), 1)]
            bounds = _divide(start, ends, loads, len(slices))
            slices += _plain_slices(file, bounds, is_complete=not is_followed, is_aligned=True)
            bytes_left -= bounds[-1] - start
            records_left -= len(ends)
            continue
        end, record_count = _fitting(file, end, records, is_approximate=budget.is_approximate)
        count = _slice_count(end - start, budget.parallelism) if is_splittable else 1
        bounds = [start + (end - start) * i // count for i in range(count + 1)]
        slices += _plain_slices(file, bounds, is_complete=not is_followed, is_aligned=False)
        bytes_left -= end - start
        records_left -= record_count
    return slices


def _files_to_read(
    files: Sequence[TrackedFile], budget: Budget, line_bytes: float
) -> list[TrackedFile]:
    """Return the first files, among which it is worth dividing a budget.

    Each gets at least 256 KiB and 1,000 records, or all that it has.
    """
    chosen: list[TrackedFile] = []
    bytes_left = budget.byte_count / SLICE_BYTES_MIN  # in shares
    records_left = budget.record_count / _SHARE_RECORDS_MIN
    for file in files:
        of_bytes, of_records = 1.0, 1.0
        size = file.readable_end - file.offset
        if not file.is_compressed and size < SLICE_BYTES_MIN:
            of_bytes, line_count = size / SLICE_BYTES_MIN, size / line_bytes
            if budget.wave > 1:
                line_count = len(_line_ends(file, file.readable_end, _SHARE_RECORDS_MIN))
            of_records = min(line_count / _SHARE_RECORDS_MIN, 1.0)
        least = 0.0 if of_bytes < 1 and of_records < 1 else 1.0
        left = min(bytes_left, records_left)
        if chosen and (left < least or left <= 0):
            break
        chosen.append(file)
        bytes_left, records_left = bytes_left - of_bytes, records_left - of_records
    return chosen


def _size_left(line_ends: LineEnds, file: TrackedFile) -> tuple[bool, int]:
    """Return a sort key by which files with less than their share come first."""
    ends = line_ends.get(file.shard)
    return file.is_compressed, len(ends) if ends else file.readable_end - file.offset


def _order(file: TrackedFile) -> tuple[bool, int, str]:
    is_begun = file.is_compressed and file.offset > 0
    return not is_begun, file.turn, file.path


def _slice_count(byte_count: int, parallelism: int) -> int:
    return max(1, min(parallelism, byte_count // SLICE_BYTES_MIN))


def _all_line_ends(files: Iterable[TrackedFile], budget: Budget) -> LineEnds:
    """Return where lines of plain files end; nothing where no calls are in flight."""
    if budget.wave <= 1:
        return {}
    return {
        file.shard: _line_ends(
            file, min(file.readable_end, file.offset + budget.byte_count), budget.record_count
        )
        for file in files
        if not file.is_compressed
    }


def _line_ends(file: TrackedFile, end: int, count: int) -> array[int]:
    """Return where each of the next lines ends; nothing for a file that is gone.

    Args:
        file: The file, from its offset on.
        end: Lines that begin there or later are left out.
        count: The most lines.
    """
    ends = array("q")
    position = file.offset
    with contextlib.suppress(OSError), Path(file.path).open("rb") as stream:
        stream.seek(position)
        while position < end and len(ends) < count:
            data = stream.read(min(_SCAN_BYTES, end - position))
            if not data:
                break
            found = data.find(b"\n") + 1
            while found and len(ends) < count:
                ends.append(position + found)
                found = data.find(b"\n", found) + 1
            position += len(data)
        if len(ends) < count and position >= end and (ends[-1] if ends else file.offset) < end:
            ends.append(end)
    return ends


def _divide(start: int, ends: Sequence[int], loads: list[int], first: int) -> list[int]:
    """Return the bounds of even slices of lines; the idlest subtasks get the rest.

    Args:
        start: Where the first line begins.
        ends: Where each line ends.
        loads: Lines of each subtask so far; they are added.
        first: Number of the first slice: slice i is read by subtask ``i % len(loads)``.
    """
    width = min(len(loads), len(ends))
    subtasks = [(first + number) % len(loads) for number in range(width)]
    least, rest = divmod(len(ends), width)
    idlest = sorted(subtasks, key=loads.__getitem__)[:rest]
    bounds, done = [start], 0
    for subtask in subtasks:
        count = least + (subtask in idlest)
        loads[subtask] += count
        done += count
        bounds.append(ends[done - 1])
    return bounds


def _plain_slices(
    file: TrackedFile, bounds: Sequence[int], *, is_complete: bool, is_aligned: bool
) -> list[Slice]:
    """Return slices between bounds; a line begins at each where ``is_aligned``."""
    return [
        Slice(
            shard=file.shard,
            start=bounds[i],
            end=bounds[i + 1],
            details=_details(
                file,
                is_aligned=is_aligned or i == 0,
                limit=file.readable_end,
                records=None,
                is_complete=is_complete,
            ),
        )
        for i in range(len(bounds) - 1)
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


def _fitting(
    file: TrackedFile, end: int, records_left: int, *, is_approximate: bool
) -> tuple[int, int]:
    """Return the result of ``_cut``, or all bytes of a file that was moved or removed.

    Its reader finds it under another name, or reports that it is removed.
    """
    try:
        is_approximate = is_approximate and records_left >= _ESTIMATE_RECORDS_MIN
        return (_cut_by_estimate if is_approximate else _cut)(file, end, records_left)
    except OSError:
        return end, records_left


def _cut(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return an end with ``records_left`` lines before it at most, and their bound.

    The lines are counted (at memory speed) unless a sample shows that the bytes are the tighter
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


def _cut_by_estimate(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return an end with about ``records_left`` lines before it, and their number.

    Lines are counted in samples all over the bytes.
    """
    byte_count = end - file.offset
    with Path(file.path).open("rb") as stream:
        found = size = 0
        for number in range(_SAMPLES):
            stream.seek(file.offset + byte_count * number // _SAMPLES)
            sample = stream.read(min(_SAMPLE_BYTES, byte_count))
            found, size = found + sample.count(b"\n"), size + len(sample)
    expected = byte_count * found // max(size, 1) + 1
    if expected <= records_left:
        return end, expected
    return file.offset + byte_count * records_left // expected, records_left


def _nth_newline_end(data: bytes, number: int) -> int:
    position = 0
    for _ in range(number):
        position = data.index(b"\n", position) + 1
    return position
