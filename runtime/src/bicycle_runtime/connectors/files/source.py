"""File sources on the driver: list, plan slices within the budget, remember which file is which.

Offsets are bytes of decompressed content (rows of Parquet), counted per file. A large plain file is
split among the subtasks; any other file is one slice per epoch. Files are local to the driver and
to every host that runs tasks (a shared file system, when there are several).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Lag,
    Source,
    SourceStatus,
)
from bicycle_runtime.connectors.errors import (
    ConnectorOptionError,
    InputMissingError,
)
from bicycle_runtime.connectors.files.identity import find_file
from bicycle_runtime.connectors.files.listing import InputPath
from bicycle_runtime.connectors.files.opening import BLOCK_BYTES, ByteCursor, open_at
from bicycle_runtime.connectors.files.options import FileSourceOptions
from bicycle_runtime.connectors.files.parquet import ParquetReader
from bicycle_runtime.connectors.files.places import MADE, typed_path
from bicycle_runtime.connectors.files.planning import plan_slices
from bicycle_runtime.connectors.files.reader import FileFormat, FileReader
from bicycle_runtime.connectors.files.tracking import FileTable, TrackedFile
from bicycle_runtime.connectors.payloads import require_decodable
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.operators.io import Slice, SourceReader
from bicycle_sdk.errors import BicycleError

__all__ = [
    "CsvFileSource",
    "FileSource",
    "JsonlFileSource",
    "ParquetFileSource",
    "TextFileSource",
]

_logger = logging.getLogger(__name__)
LISTING_INTERVAL_MS = 200
LISTING_PAUSE_FACTOR = 20  # Listing a huge directory takes at most a twentieth of a core.


class FileSource(Source):
    """What text, JSON lines, CSV and Parquet sources share."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = FileSourceOptions
    file_format: ClassVar[FileFormat]
    hidden_prefixes: ClassVar[tuple[str, ...]] = (".",)

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(FileSourceOptions, spec)
        self.gives_times = bool(self._options.timestamp_field)
        if self._options.timestamp_field and self.file_format == "text":
            raise ConnectorOptionError(
                vertex=spec.vertex_id, connector=spec.connector_type, name="timestamp_field",
                problem="a line of text has no fields", hint="use assign_timestamps(...)",
            )  # fmt: skip
        self._input = InputPath(
            text=typed_path(spec, self._options.path),
            is_recursive=self._options.recursive,
            hidden_prefixes=self.hidden_prefixes,
        )
        self._table = FileTable(
            is_followed=self._options.follow, is_packed=self.file_format == "parquet"
        )
        self._record_type = _record_type(self.file_format, spec)
        self._planned: dict[str, Slice] = {}
        self._refreshed_at = 0.0
        self._listing_ms = 0.0
        self._turn = 0

    def is_fed_by(self, made: Collection[str]) -> bool:
        """Tell whether the job makes directories: one of them may be the input."""
        return any(name.startswith(MADE) for name in made)

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], memo: Mapping[str, Any]
    ) -> None:
        """Find the files of the last epoch again, and list what there is.

        Raises:
            InputMissingError: the path leads to nothing.
            InputChangedError: bounded input was changed between two runs.
        """
        self._clock = services.clock
        self._table.restore(memo.get("files", {}))
        listing = self._input.files()
        if not listing and not self._table.files:
            self._refuse_missing()
        self._table.refresh(listing)
        self._refreshed_at = self._clock.monotonic()
        log_event(
            _logger, "input_files_listed", vertex=self.spec.vertex_id, file_count=len(listing)
        )

    def poll(self) -> SourceStatus:
        """Look for growth and new files when following; bounded input is listed once, at start."""
        if self._options.follow:
            self._refresh_when_due()
        files = self._table.files.values()
        has_input = any(file.has_input for file in files)
        unread = [0 if f.is_compressed else f.readable_end - f.offset for f in files if f.has_input]
        is_known = not any(file.is_compressed and file.has_input for file in files)
        return SourceStatus(
            has_input=has_input,
            is_finished=not has_input and not self._options.follow,
            lag=Lag(byte_count=sum(unread) if is_known else None),
            next_poll_ms=LISTING_INTERVAL_MS,
            waiting_shards=frozenset(file.shard for file in files if file.has_input),
            is_bounded=not self._options.follow,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Take slices of files that have input; several sealed epochs later everyone had a turn."""
        planned = plan_slices(
            [file for file in self._table.files.values() if file.has_input],
            budget,
            is_splittable=self.file_format != "csv",
            file_count_max=self._options.epoch_files_max,
            is_followed=self._options.follow,
        )
        self._planned = {part.shard: part for part in planned}
        return planned

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on in the files that were read."""
        self._turn += 1
        for shard, end in ends.items():
            file = self._table.files.get(shard)
            if file is None:
                continue
            file.is_done = self._is_done(file, end)
            if end < (last_end := self._last_end(shard)) and not file.is_compressed:
                file.stalled_end = last_end
            file.move_to(end)
            file.turn = self._turn

    def memo(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return identity and progress of every file that was begun."""
        done = {
            shard: self._is_done(self._table.files[shard], end)
            for shard, end in ends.items()
            if shard in self._table.files
        }
        return {"files": self._table.to_json(ends, done)}

    def reader(self) -> SourceReader:
        """Return the reader of this format."""
        options = self._options
        return FileReader(
            self.file_format, self._record_type, options.line_bytes_max, options.timestamp_field
        )

    def stop(self) -> None:
        """Nothing is held open between calls."""

    def describe(self, shard: str, offset: int) -> str:
        """Return path and line number, counted from 1; the byte where the file is gone by now."""
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
        self._table.refresh(self._input.files())
        self._refreshed_at = started
        self._listing_ms = (self._clock.monotonic() - started) * 1_000

    def _is_done(self, file: TrackedFile, end: int) -> bool:
        """Whether a compressed file showed its end: less was read than slice and limit allow."""
        part = self._planned.get(file.shard)
        if not file.is_compressed or part is None:
            return file.is_done
        limit = part.details["records"]
        return end == part.start or (end < part.end and (limit is None or end - part.start < limit))

    def _last_end(self, shard: str) -> int:
        part = self._planned.get(shard)
        return -1 if part is None else part.end

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
        raise InputMissingError(
            vertex=self.spec.vertex_id, path=self._options.path, problem=problem, hint=hint
        )


class TextFileSource(FileSource):
    """Reads lines as strings."""

    file_format = "text"


class JsonlFileSource(FileSource):
    """Reads one JSON document per line, as the declared record type (default dict)."""

    file_format = "jsonl"


class CsvFileSource(FileSource):
    """Reads CSV with a header line, as the declared record type (default ``dict[str, str]``)."""

    file_format = "csv"


class ParquetFileSource(FileSource):
    """Reads rows of Parquet files, as the declared record type (default dict)."""

    file_format = "parquet"
    hidden_prefixes = (".", "_")  # Whoever writes such folders leaves `_SUCCESS` and the like.

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
    require_decodable(spec, record_type if record_type is not None else dict, msgspec.json.Decoder)
    return record_type
