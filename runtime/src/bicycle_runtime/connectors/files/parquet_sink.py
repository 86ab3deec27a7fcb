"""The Parquet sink: folders of Parquet files, on a local disk or behind a URL.

A part appears whole and never changes. Its name has epoch, plan, piece and run, so a plan that is
carried out again finds its files there, and two jobs may share a directory. Waiting rows are in the
checkpoint directory (``tables.held``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from bicycle_runtime.base.errors import StorageError
from bicycle_runtime.base.files import make_folder, sync_folder
from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.connectors.errors import OUTPUT_UNWRITABLE, TABLE_DIFFERS
from bicycle_runtime.connectors.files.ownership import (
    MADE,
    OutputClaim,
    new_run,
    output_paths,
    path_of,
    run_of,
)
from bicycle_runtime.connectors.runs import storage_id_of
from bicycle_runtime.connectors.settings import read_options, typed_path
from bicycle_runtime.connectors.staging import BLOCK_BYTES, staged_blocks
from bicycle_runtime.connectors.tables.held import Completion, HeldFile
from bicycle_runtime.connectors.tables.held_rows import FolderRows, HeldReader, in_groups
from bicycle_runtime.connectors.tables.partitions import PARTITION, Partitioning
from bicycle_runtime.connectors.tables.sink import HeldTableSink
from bicycle_runtime.connectors.tables.writer import GROUP_ROWS, parquet_writer
from bicycle_runtime.contract import ChecksBeforeStart, ConnectorSpec, DriverServices, MakesTargets
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.sinks import ParquetSinkOptions

_LOG = logging.getLogger(__name__)
_WRITERS = 8  # Files of many folders are flushed to the disk at the same time.
_PART = re.compile(r"(?:.*/)?part-(\d+)-\d+-\d+-(\w+)\.parquet")


class ParquetSink(ChecksBeforeStart, MakesTargets, HeldTableSink):
    """Writes Parquet files."""

    options_class = ParquetSinkOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        self._options = options = read_options(ParquetSinkOptions, spec)
        super().__init__(spec, options, _partitioning(options))
        path = typed_path(spec, options.path)
        self._output = open_storage(path)
        self._schema = self.columns.schema
        if self.partitioning is not None:
            self._schema = self.partitioning.without_field(self._schema)
        self._run = ""
        self._claims: dict[str, OutputClaim] = {}  # By the URL of the output.

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Refuse files of other columns, and parts that another job continues with.

        Raises:
            TABLE_DIFFERS: files are there whose columns do not fit.
            OUTPUT_HELD: another job that may live continues the same parts.
        """
        if "run" in state:
            for output in self._outputs(state, storage_id_of(services)):
                if _may_hold_parts(output):
                    self._claim_of(output, run_of(state), services).refuse_holder()
        if not _may_hold_parts(self._output):
            return  # There is nothing; ``start`` reports other errors.
        self._refuse_other_columns(self._output.list(""))

    def makes(self) -> list[str]:
        """Return the output directory."""
        return [f"{MADE}{self._output.url}"]

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Make the output directory, prove that it can be written, and take it over.

        Raises:
            OUTPUT_UNWRITABLE: it may not be written.
            TABLE_DIFFERS: files are there whose columns do not fit.
            OUTPUT_HELD: another job continues the same parts.
        """
        self.resume(services, state)
        outputs = self._outputs(state, self.storage_id)
        for output in outputs:
            self._prove_writable(output)
        names = self._output.list("")
        self._refuse_other_columns(names)
        self._run = run_of(state) or new_run(services, names)
        for output in outputs:
            claim = self._claim_of(output, self._run, services)
            claim.take()
            self._claims[output.url] = claim
            self._withdraw_unsealed(output, int(state.get("epoch", -1)))

    def target(self) -> dict[str, Any]:
        """Return the output directory."""
        return {"path": self._output.url}

    def facts(self) -> dict[str, Any]:
        """Return the token of the run, which is in names."""
        return {"run": self._run}

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Carry out the plans of the epoch.

        Raises:
            OUTPUT_TAKEN_OVER: a later run has started.
        """
        for output in self._outputs(state, self.storage_id):
            self._claims[output.url].require(epoch)
        super().publish(epoch, state)

    def complete(
        self, epoch: int, plans: Mapping[int, Completion], state: Mapping[str, Any]
    ) -> None:
        """Write the parts of plans, as far as they are not there."""
        path = path_of(state, self.storage_id, self._output.url)
        output = self._output if path == self._output.url else open_storage(path)
        for number, plan in plans.items():
            self._complete(output, epoch, number, plan)

    def _complete(self, output: Storage, epoch: int, number: int, plan: Completion) -> None:
        begin = f"part-{epoch:010d}-{number:04d}"
        [first, *others] = plan.files
        is_whole = not others and first.crc32 is not None and not first.has_folders
        if is_whole and first.record_count <= self._options.roll_rows:
            self._publish_whole(output, first, f"{begin}-0000-{self._run}.parquet")
            return
        write = partial(self._write_folder, output, begin, plan.file_rows)
        with HeldReader(self.services.storage, plan.files) as reader:
            if not first.has_folders:
                count = sum(file.record_count for file in plan.files)
                name = f"{begin}-0000-{self._run}.parquet"
                if count <= plan.file_rows and self._copy(output, name, reader):
                    return
                write(FolderRows("", count, reader.batches()))
                return
            for several in reader.folders(plan.folder):
                if len(several) == 1:
                    write(several[0])
                    continue
                with ThreadPoolExecutor(_WRITERS, thread_name_prefix="parts") as pool:
                    list(pool.map(write, several))

    def stop(self) -> None:
        """Release the output."""
        for claim in self._claims.values():
            claim.release()

    def _outputs(self, state: Mapping[str, Any], storage_id: str) -> list[Storage]:
        """Return the output, and former ones whose rows may not be visible yet."""
        _, *former = output_paths(state, storage_id, self._output.url)
        return [self._output, *map(open_storage, former)]

    def _write_folder(
        self, output: Storage, begin: str, file_rows: int, folder: FolderRows
    ) -> None:
        """Write the rows of one folder in files of equal length, within the limit."""
        piece_count = -(-folder.count // file_rows)
        length = -(-folder.count // piece_count)
        above = f"{folder.name}/" if folder.name else ""
        rows = _Rows(folder.tables)
        for piece in range(piece_count):
            name = f"{above}{begin}-{piece:04d}-{self._run}.parquet"
            found = rows.take(length)
            if not output.exists(name):
                self._write(output, name, found)
            for _ in found:
                continue  # The part is there: its rows are passed over.

    def _write(self, output: Storage, name: str, tables: Iterator[pyarrow.Table]) -> None:
        if isinstance(output, LocalStorage):
            make_folder(Path(output.root, name).parent)
        groups = in_groups(tables, GROUP_ROWS)
        first = next(groups)
        names = [column for column in first.schema.names if column != PARTITION]
        with (
            output.open_write(name) as stream,
            parquet_writer(stream, first.select(names), self._options.compression) as writer,
        ):
            for rows in chain([first], groups):
                writer.write_table(rows.select(names))

    def _copy(self, output: Storage, name: str, reader: HeldReader) -> bool:
        """Copy the row groups of several files to one part; return whether it is possible."""
        if output.exists(name):
            return True
        footers = reader.footers(self._options.compression)
        if footers is None:
            return False
        with output.open_write(name) as stream:
            reader.copy_groups(stream, footers)
        return True

    def _publish_whole(self, output: Storage, file: HeldFile, name: str) -> None:
        """Publish a staged file as a part, and keep it: earlier epochs may hold it."""
        storage = self.services.storage
        if output.exists(name):
            return
        if isinstance(output, LocalStorage) and isinstance(storage, LocalStorage):
            for _ in staged_blocks(storage, file.staged()):
                continue  # Reading it whole proves its checksum.
            with contextlib.suppress(OSError):  # The file cannot be linked: it is copied below.
                output.local_path(name).hardlink_to(storage.local_path(file.path))
                sync_folder(Path(output.root))
                return
        with output.open_write(name) as stream:
            for block in staged_blocks(storage, file.staged()):
                stream.write(block)

    def _prove_writable(self, output: Storage) -> None:
        probe = f".tmp-{os.getpid()}-probe"
        reason = ""
        try:
            if isinstance(output, LocalStorage):
                make_folder(Path(output.root))
            output.write(probe, b"")
            output.delete(probe)
        except StorageError as error:
            reason = error.summary
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise OUTPUT_UNWRITABLE(vertex=self.spec.vertex_id, path=output.url, reason=reason)

    def _claim_of(self, output: Storage, run: str, services: DriverServices) -> OutputClaim:
        return OutputClaim(output, run=run, vertex=self.spec.vertex_id, services=services)

    def _refuse_other_columns(self, names: Sequence[str]) -> None:
        """Compare with the part that comes last by name."""
        last = max((name for name in names if _PART.fullmatch(name)), key=_file_name, default=None)
        if last is None:
            return
        with self._output.open_read(last) as stream:
            try:
                found = parquet.read_schema(pyarrow.BufferReader(stream.read()))
            except (pyarrow.ArrowException, OSError) as error:
                problem = f"{last} cannot be read as Parquet: {error}"
                raise self._differs(problem) from error
        for column in self._schema:
            index = found.get_field_index(column.name)
            if index >= 0 and found.field(index).type != column.type:
                there = found.field(index).type
                raise self._differs(f"{column.name!r} is {there} in {last}, but {column.type} here")

    def _differs(self, problem: str) -> BicycleError:
        return TABLE_DIFFERS(vertex=self.spec.vertex_id, table=self._output.url, problem=problem)

    def _withdraw_unsealed(self, output: Storage, sealed: int) -> None:
        """Take back parts of epochs that are not sealed (any more): their rows come again.

        They are kept in the checkpoint storage, so that nothing is destroyed.
        """
        for name in output.list(""):
            match = _PART.fullmatch(name)
            if match is None or match[2] != self._run or int(match[1]) <= sealed:
                continue
            kept = f"{self.services.prefix}/withdrawn/{name}"
            with (
                output.open_read(name) as source,
                self.services.storage.open_write(kept) as copy,
            ):
                shutil.copyfileobj(source, copy, BLOCK_BYTES)
            output.delete(name)
            log_event(_LOG, "part_withdrawn", level=logging.WARNING, path=name, kept=kept)


class _Rows:
    """Rows of several tables, taken so many at a time."""

    def __init__(self, tables: Iterator[pyarrow.Table]) -> None:
        self._tables = tables
        self._left: pyarrow.Table | None = None

    def take(self, count: int) -> Iterator[pyarrow.Table]:
        """Yield the next rows, no more than so many."""
        while count:
            if self._left is None or not self._left.num_rows:
                self._left = next(self._tables, None)
                if self._left is None:
                    return
            found = self._left.slice(0, count)
            self._left = self._left.slice(found.num_rows)
            count -= found.num_rows
            yield found


def _may_hold_parts(output: Storage) -> bool:
    return not isinstance(output, LocalStorage) or Path(output.url).is_dir()


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _partitioning(options: ParquetSinkOptions) -> Partitioning | None:
    if options.partition_by == "none":
        return None
    is_date = options.partition_by == "date"
    return Partitioning(
        field=options.partition_field, date_format=options.partition_format if is_date else ""
    )
