"""File sources on the driver: list files, plan slices, track identities.

Offsets are bytes of decompressed content (rows of Parquet), counted per file. A large plain file is
split among the subtasks; any other file is one slice per epoch. Files are local to the driver and
to every host that runs tasks (a shared file system, when there are several).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from bicycle_runtime.connectors.errors import INPUT_MISSING
from bicycle_runtime.connectors.files.blocks import BLOCK_BYTES, ByteCursor, open_at
from bicycle_runtime.connectors.files.identity import find_file
from bicycle_runtime.connectors.files.listing import InputPath
from bicycle_runtime.connectors.files.ownership import MADE
from bicycle_runtime.connectors.files.parquet import ParquetReader
from bicycle_runtime.connectors.files.planning import plan_slices
from bicycle_runtime.connectors.files.reader import FileFormat, SliceReader
from bicycle_runtime.connectors.files.tracking import FileTable, TrackedFile
from bicycle_runtime.connectors.settings import read_options, require_decodable, typed_path
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    FieldReader,
    Guarantee,
    Lag,
    Slice,
    SnapshotsState,
    Source,
    SourceReader,
    SourceStatus,
    StartsBeforeSinks,
)
from bicycle_runtime.formats.typed_values import json_decoder
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.sources import (
    CsvFileSourceOptions,
    FileSourceOptions,
    JsonlFileSourceOptions,
    ParquetFileSourceOptions,
    TextFileSourceOptions,
)

_MEASURE_S = 30.0  # The lifetime of a sample of the size of lines.

_logger = logging.getLogger(__name__)
LISTING_INTERVAL_MS = 200
LISTING_PAUSE_FACTOR = 20  # Listing a huge directory takes at most a twentieth of a core.


class FileSource(SnapshotsState, StartsBeforeSinks, Source):
    """The base of text, JSON lines, CSV and Parquet sources."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class: type[FileSourceOptions[Any]] = FileSourceOptions
    state_version = 2  # 1 knew files by their heads alone; both are read.
    file_format: ClassVar[FileFormat]
    hidden_prefixes: ClassVar[tuple[str, ...]] = (".",)

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(self.options_class, spec)
        self.gives_times = bool(self._options.timestamp_field)
        self._input = InputPath(
            text=typed_path(spec, self._options.path),
            is_recursive=self._options.recursive,
            hidden_prefixes=self.hidden_prefixes,
        )
        self._line_bytes: float | None = None  # The mean of a sample.
        self._measured_at = 0.0
        self._table = FileTable(
            is_followed=self._options.follow, is_packed=self.file_format == "parquet"
        )
        self._record_type = _record_type(self.file_format, spec)
        reader = self.reader()
        self.gives_fields = isinstance(reader, FieldReader) and reader.give_fields()
        self._planned: dict[str, Slice] = {}
        self._refreshed_at = 0.0
        self._is_listed = False  # Whether files were listed since the last epoch.
        self._listing_ms = 0.0
        self._turn = 0

    def is_fed_by(self, made: Collection[str]) -> bool:
        """Return whether the job makes directories: one of them may be the input."""
        return any(name.startswith(MADE) for name in made)

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Find the files of the last epoch again, and list the present files.

        Raises:
            INPUT_MISSING: the path leads to nothing.
            INPUT_CHANGED: bounded input was changed between two runs.
        """
        self._clock = services.clock
        self._table.restore(state)
        listing = self._input.files()
        if not listing and not self._table.files:
            self._refuse_missing()
        self._refreshed_at = self._clock.monotonic()
        self._table.refresh(listing, self._refreshed_at)
        self._is_listed = True
        log_event(
            _logger, "input_files_listed", vertex=self.spec.vertex_id, file_count=len(listing)
        )

    def poll(self) -> SourceStatus:
        """Look for growth and new files if following; bounded input is listed at start."""
        if self._options.follow:
            self._refresh_when_due()
        files = [file for file in self._table.files.values() if file.has_input]
        waiting = frozenset(file.shard for file in files)
        is_current = self._is_listed or not self._options.follow
        unlisted = set() if is_current else {file.shard for file in self._table.present()}
        return SourceStatus(
            has_input=bool(files),
            is_finished=not files and not self._options.follow,
            lag=self._lag(files),
            next_poll_ms=LISTING_INTERVAL_MS,
            waiting_shards=waiting,
            unknown_shards=frozenset(unlisted | self._table.held_shards) - waiting,
            is_bounded=not self._options.follow,
        )

    def _lag(self, files: Sequence[TrackedFile]) -> Lag:
        """Return the unread input; records are estimated from its first lines."""
        if any(file.is_compressed for file in files):
            return Lag()
        byte_count = sum(file.readable_end - file.offset for file in files)
        if not byte_count:
            return Lag(record_count=0, byte_count=0)
        now = self._clock.monotonic()
        if self._line_bytes is None or now - self._measured_at >= _MEASURE_S:
            self._line_bytes = files[0].line_bytes()
            self._measured_at = now
        count = ceil(byte_count / self._line_bytes) if self._line_bytes else None
        return Lag(record_count=count, byte_count=byte_count)

    def plan(self, budget: Budget) -> list[Slice]:
        """Plan slices of files with input; each file gets its turn after some epochs."""
        planned = plan_slices(
            [file for file in self._table.files.values() if file.has_input],
            budget,
            is_splittable=self.file_format != "csv",
            file_count_max=self._options.epoch_files_max,
            is_followed=self._options.follow,
            line_bytes=self._line_bytes,
        )
        self._planned = {part.shard: part for part in planned}
        return planned

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on in the files that were read; meanwhile any of them may have grown."""
        self._turn += 1
        self._is_listed = False
        for shard, end in ends.items():
            file = self._table.files.get(shard)
            if file is None:
                continue
            file.is_done = self._is_done(file, end)
            part = self._planned.get(shard)
            if part is not None and end < part.end and not part.details["complete"]:
                file.stalled_end = part.details["limit"]  # A record was open up to there.
            file.move_to(end)
            file.turn = self._turn

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return identity and progress of every file that was begun."""
        done = {
            shard: self._is_done(self._table.files[shard], end)
            for shard, end in ends.items()
            if shard in self._table.files
        }
        return self._table.to_json(ends, done)

    def reader(self) -> SourceReader:
        """Return the reader of this format."""
        options = self._options
        return SliceReader(
            self.file_format, self._record_type, options.line_bytes_max, options.timestamp_field
        )

    def stop(self) -> None:
        """Do nothing: the source has no open files."""

    def describe(self, shard: str, offset: int) -> str:
        """Return path and line number from 1, or the byte for a missing file."""
        file = self._table.files.get(shard)
        found = None if file is None else find_file(file.path, file.identity)
        path = found[0] if found else shard if file is None else file.path
        try:
            with closing(open_at(path, 0)) as cursor:
                return f"{path} line {_newline_count(cursor, offset) + 1}"
        except BicycleError:
            return f"{path} byte {offset}"

    def _refresh_when_due(self) -> None:
        started = self._clock.monotonic()
        is_many = self._input.is_directory or self._input.is_glob
        elapsed_ms = (started - self._refreshed_at) * 1_000
        interval_ms = max(LISTING_INTERVAL_MS, LISTING_PAUSE_FACTOR * self._listing_ms)
        if is_many and elapsed_ms < interval_ms:
            return
        self._table.refresh(self._input.files(), started)
        self._refreshed_at = started
        self._is_listed = True
        self._listing_ms = (self._clock.monotonic() - started) * 1_000

    def _is_done(self, file: TrackedFile, end: int) -> bool:
        """Return whether a compressed file ended: less was read than permitted."""
        part = self._planned.get(file.shard)
        if not file.is_compressed or part is None:
            return file.is_done
        limit = part.details["records"]
        return end == part.start or (end < part.end and (limit is None or end - part.start < limit))

    def _refuse_missing(self) -> None:
        path = Path(self._input.text)
        waits = self._options.follow and (self._input.is_glob or self._input.is_directory)
        if waits or self._input.is_directory:
            return
        problem = "matches no file" if self._input.is_glob else "does not exist"
        if path.exists():
            problem = "is not a regular file"
        if self._options.follow and path.absolute().parent.is_dir():
            log_event(_logger, "input_awaited", vertex=self.spec.vertex_id, path=str(path))
            return
        hint = f"check the spelling; the working directory is {Path.cwd()}"
        raise INPUT_MISSING(
            vertex=self.spec.vertex_id, path=self._options.path, problem=problem, hint=hint
        )


class TextFileSource(FileSource):
    """Reads lines as strings."""

    file_format = "text"
    options_class = TextFileSourceOptions


class JsonlFileSource(FileSource):
    """Reads one JSON document per line, as the declared record type (default dict)."""

    file_format = "jsonl"
    options_class = JsonlFileSourceOptions


class CsvFileSource(FileSource):
    """A source of CSV files with a header line, as the declared record type."""

    file_format = "csv"
    options_class = CsvFileSourceOptions


class ParquetFileSource(FileSource):
    """Reads rows of Parquet files, as the declared record type (default dict)."""

    file_format = "parquet"
    options_class = ParquetFileSourceOptions
    hidden_prefixes = (".", "_")  # Writers of such folders leave `_SUCCESS` and the like.

    def reader(self) -> SourceReader:
        """Return the reader of this format."""
        return ParquetReader(self._record_type, self._options.timestamp_field)

    def describe(self, shard: str, offset: int) -> str:
        """Return path and number of the row, counted from 1."""
        file = self._table.files.get(shard)
        return f"{shard if file is None else file.path} row {offset + 1}"


def _newline_count(cursor: ByteCursor, end: int) -> int:
    count = 0
    while data := cursor.read(min(BLOCK_BYTES, end - cursor.position)):
        count += data.count(b"\n")
    return count


def _record_type(file_format: FileFormat, spec: ConnectorSpec) -> Any:
    record_type = spec.record_type
    if file_format == "text":
        return str
    if file_format in ("jsonl", "parquet") and record_type is None:
        return dict
    require_decodable(spec, record_type if record_type is not None else dict, json_decoder)
    return record_type
