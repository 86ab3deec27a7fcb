"""Held files to rows, folder by folder, with a few row groups in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow
import pyarrow.compute as pc
from pyarrow import parquet

from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError, Storage
from bicycle_runtime.connectors.staging import BLOCK_BYTES, staged_blocks
from bicycle_runtime.connectors.tables.held import HeldFile, HeldJoin
from bicycle_runtime.connectors.tables.partitions import PARTITION
from bicycle_runtime.connectors.tables.row_groups import (
    CODECS,
    Footer,
    append_row_groups,
    end_file,
    footer_of,
)
from bicycle_runtime.connectors.tables.writer import GROUP_ROWS, SMALL_GROUP_ROWS, parquet_writer

_SHELF_ROWS = 250_000
_LARGE_GROUP_ROWS = GROUP_ROWS // 2


@dataclass(frozen=True, slots=True)
class FolderRows:
    """The rows of one folder, in order; an empty name means no folder."""

    name: str
    count: int
    tables: Iterator[pyarrow.Table]


class HeldReader:
    """A context manager that opens held files, each verified against its record.

    Args:
        storage: Their location.
        files: In the order of their rows.
    """

    def __init__(self, storage: Storage, files: Sequence[HeldFile]) -> None:
        self._storage = storage
        self._files = files
        self._stack = ExitStack()
        self._sources: list[Any] = []

    def __enter__(self) -> Self:
        for file in self._files:
            source = self._stack.enter_context(_locate(self._storage, file))
            self._sources.append(source)
        return self

    @cached_property
    def _open(self) -> list[tuple[HeldFile, parquet.ParquetFile]]:
        opened = []
        for file, source in zip(self._files, self._sources, strict=True):
            if isinstance(source, str) and file.crc32 is not None:
                for _ in staged_blocks(self._storage, file.staged()):
                    continue  # Reading it whole proves its checksum.
            found = parquet.ParquetFile(source, page_checksum_verification=True)
            opened.append((file, self._stack.enter_context(found)))
        return opened

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns, with that of the folders where there is one."""
        return self._open[0][1].schema_arrow

    @property
    def schemas(self) -> list[pyarrow.Schema]:
        """The columns of each file; they differ where a job was changed."""
        return [file.schema_arrow for _, file in self._open]

    @property
    def has_folders(self) -> bool:
        """Return whether rows are in folders."""
        return PARTITION in self.schema.names

    def batches(self, low: str | None = None, high: str | None = None) -> Iterator[pyarrow.Table]:
        """Yield rows in order, without rows that are visible already.

        Args:
            low: First folder, None for all rows.
            high: Last folder.
        """
        for held, file in self._open:
            for group in range(file.metadata.num_row_groups):
                if low is not None and not _may_have(file.metadata.row_group(group), low, high):
                    continue
                rows = file.read_row_group(group, use_threads=False)
                if low is not None:
                    names = rows.column(PARTITION)
                    is_asked = pc.and_(pc.greater_equal(names, low), pc.less_equal(names, high))
                    rows = rows.filter(is_asked)
                rows = _left(rows, held)
                if rows.num_rows:
                    yield rows

    def footers(self, compression: str) -> list[Footer] | None:
        """Return the footers of files whose row groups may be combined, or None.

        They may where they have no folders, are large, alike and compressed like this, and where
        checksums proved their bytes: a file that a join made is proved when it is decoded.
        """
        if any(file.has_folders or file.crc32 is None for file in self._files):
            return None
        try:
            footers = list(map(_read_footer, self._sources))
            group_count = sum(len(each.groups) for each in footers)
            wanted = {CODECS[compression]}
            is_alike = all(each.is_like(footers[0]) and each.codecs <= wanted for each in footers)
        except (OSError, LookupError, TypeError, ValueError):
            return None  # One is damaged, which is an error when its rows are read.
        row_count = sum(file.record_count for file in self._files)
        return footers if is_alike and row_count >= group_count * _LARGE_GROUP_ROWS else None

    def copy_groups(self, out: BinaryIO, footers: Sequence[Footer]) -> None:
        """Write one file with the row groups of all files, unchanged."""
        size = 0
        for file, source, footer in zip(self._files, self._sources, footers, strict=True):
            if isinstance(source, str):  # Passing whole blocks proves the checksum.
                blocks = staged_blocks(self._storage, file.staged())
            else:
                source.seek(0)
                blocks = iter(partial(source.read, BLOCK_BYTES), b"")
            size = append_row_groups(out, size, blocks, footer)
        end_file(out, footers)

    def counts(self) -> dict[str, int]:
        """Return how many rows of each folder are left, by name."""
        found: Counter[str] = Counter()
        for held, file in self._open:
            for group in range(file.metadata.num_row_groups):
                names = file.read_row_group(group, columns=[PARTITION], use_threads=False)
                for each in _left(names, held).column(PARTITION).value_counts().to_pylist():
                    found[each["values"]] += each["counts"]
        return dict(sorted(found.items()))

    def folders(self, only: str | None) -> Iterator[list[FolderRows]]:
        """Yield some folders at a time, each with its number of rows, and these in order.

        Args:
            only: One folder, None for all.
        """
        counts = self.counts()
        if only is not None:
            counts = {only: counts[only]} if only in counts else {}
        for shelf in _shelves(counts):
            if len(shelf) == 1:
                yield [FolderRows(shelf[0], counts[shelf[0]], self.batches(shelf[0], shelf[0]))]
                continue
            rows = pyarrow.concat_tables(self.batches(shelf[0], shelf[-1]))
            rows = rows.take(pc.sort_indices(rows, sort_keys=[(PARTITION, "ascending")]))
            start, found = 0, []
            for name in shelf:
                tables = iter([rows.slice(start, counts[name])])
                found.append(FolderRows(name, counts[name], tables))
                start += counts[name]
            yield found


def carry_out_join(plan: HeldJoin, storage: Storage) -> None:
    """Make one held file of several; again is harmless."""
    if storage.exists(plan.path):
        return
    with HeldReader(storage, plan.files) as reader:
        groups = in_groups(reader.batches(), GROUP_ROWS)
        # Without rows the file is there all the same: later epochs name it.
        first = next(groups, reader.schema.empty_table())
        with (
            storage.open_write(plan.path) as stream,
            parquet_writer(stream, first, "snappy") as writer,
        ):
            for rows in chain([first], groups):
                if reader.has_folders:
                    order = pc.sort_indices(rows, sort_keys=[(PARTITION, "ascending")])
                    writer.write_table(rows.take(order), row_group_size=SMALL_GROUP_ROWS)
                else:
                    writer.write_table(rows)


def in_groups(tables: Iterator[pyarrow.Table], row_count: int) -> Iterator[pyarrow.Table]:
    """Yield the same rows in pieces of so many, the last one of fewer."""
    held: list[pyarrow.Table] = []
    count = 0
    for table in tables:
        start = 0
        while start < table.num_rows:
            piece = table.slice(start, row_count - count)
            held.append(piece)
            count += piece.num_rows
            start += piece.num_rows
            if count == row_count:
                yield pyarrow.concat_tables(held)
                held, count = [], 0
    if held:
        yield pyarrow.concat_tables(held)


def _shelves(counts: dict[str, int]) -> list[list[str]]:
    """Return folders in groups of few rows; one with many is alone."""
    shelves: list[list[str]] = []
    count = _SHELF_ROWS
    for name, rows in counts.items():
        if count + rows > _SHELF_ROWS:
            shelves.append([])
            count = 0
        shelves[-1].append(name)
        count += rows
    return shelves


def _left(rows: pyarrow.Table, held: HeldFile) -> pyarrow.Table:
    if not held.taken:
        return rows
    taken = pc.is_in(rows.column(PARTITION), pyarrow.array(held.taken, pyarrow.string()))
    return rows.filter(pc.invert(taken))


def _may_have(group: Any, low: str, high: str | None) -> bool:
    column = group.column(group.num_columns - 1)  # That of the folders is the last.
    found = column.statistics
    if found is None or not found.has_min_max:
        return True
    return bool(found.min <= (high or low) and found.max >= low)


def _read_footer(source: Any) -> Footer:
    """Return the footer of a located file."""
    with Path(source).open("rb") if isinstance(source, str) else nullcontext(source) as stream:
        return footer_of(stream)


@contextmanager
def _locate(storage: Storage, file: HeldFile) -> Iterator[Any]:
    """Yield a seekable file: the local one, or a copy of a remote one."""
    if isinstance(storage, LocalStorage):
        if not storage.exists(file.path):
            raise ObjectMissingError(url=storage.url, path=file.path)
        yield str(storage.local_path(file.path))
        return
    with tempfile.TemporaryFile() as copy:
        if file.crc32 is None:
            with storage.open_read(file.path) as stream:
                shutil.copyfileobj(stream, copy, BLOCK_BYTES)
        else:
            for block in staged_blocks(storage, file.staged()):
                copy.write(block)
        copy.seek(0)
        yield copy
