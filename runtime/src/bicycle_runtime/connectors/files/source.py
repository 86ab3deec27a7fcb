"""File sources on the driver: list files, plan slices, track identities.

Offsets are bytes of decompressed content (rows of Parquet), counted per file. A large plain file is
split among the subtasks; any other file is one slice per epoch. Files are local to the driver and
to every host that runs tasks (a shared file system, when there are several).

Which bytes of which files one epoch reads is a pure function of the table and the budget.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.errors import (
    CONNECTOR_OPTION_WRONG,
    INPUT_MISSING,
)
from bicycle_runtime.connectors.files.blocks import BLOCK_BYTES, ByteCursor, open_at
from bicycle_runtime.connectors.files.identity import find_file
from bicycle_runtime.connectors.files.listing import InputPath
from bicycle_runtime.connectors.files.options import MADE, FileSourceOptions
from bicycle_runtime.connectors.files.parquet import ParquetReader
from bicycle_runtime.connectors.files.reader import FileFormat, FileReader
from bicycle_runtime.connectors.files.tracking import FileTable, TrackedFile
from bicycle_runtime.connectors.settings import read_options, require_decodable, typed_path
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
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
from bicycle_runtime.operators.columnar.records import FieldReader
from bicycle_sdk.errors import BicycleError

__all__ = [
    "CsvFileSource",
    "FileSource",
    "JsonlFileSource",
    "ParquetFileSource",
    "TextFileSource",
    "plan_slices",
]

SLICE_BYTES_MIN = 256 << 10
_COMPRESSION_RATIO_GUESS = 8
_COMPRESSED_BYTES_MIN = 64 << 10
_SCAN_BYTES = 1 << 20
_SAMPLE_BYTES = 64 << 10
_SAMPLES = 8
_MEASURE_S = 30.0  # For how long a sample tells the size of lines.
_LOOSE_FACTOR = 8
_ESTIMATE_RECORDS_MIN = 50_000
_SHARE_RECORDS_MIN = 1_000

_logger = logging.getLogger(__name__)
LISTING_INTERVAL_MS = 200
LISTING_PAUSE_FACTOR = 20  # Listing a huge directory takes at most a twentieth of a core.


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
        end = min(file.readable_end, start + share)
        end, record_count = _fitting(file, end, records, is_approximate=budget.is_approximate)
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
    """Return a sort key: files below their share come first."""
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


def _fitting(
    file: TrackedFile, end: int, records_left: int, *, is_approximate: bool
) -> tuple[int, int]:
    """Return the result of ``_cut``, or all bytes if the file has moved or gone.

    Its reader finds it under another name, or says that it is gone.
    """
    try:
        is_approximate = is_approximate and records_left >= _ESTIMATE_RECORDS_MIN
        return (_cut_by_estimate if is_approximate else _cut)(file, end, records_left)
    except OSError:
        return end, records_left


def _cut(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return an end with at most ``records_left`` lines before it, and their bound.

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


def _cut_by_estimate(file: TrackedFile, end: int, records_left: int) -> tuple[int, int]:
    """Return an end with about ``records_left`` lines before it, and an estimate.

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


class FileSource(SnapshotsState, StartsBeforeSinks, Source):
    """The base of text, JSON lines, CSV and Parquet sources."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = FileSourceOptions
    state_version = 2  # 1 knew files by their heads alone; both are read.
    file_format: ClassVar[FileFormat]
    hidden_prefixes: ClassVar[tuple[str, ...]] = (".",)

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(FileSourceOptions, spec)
        self.gives_times = bool(self._options.timestamp_field)
        if self._options.timestamp_field and self.file_format == "text":
            raise CONNECTOR_OPTION_WRONG(
                vertex=spec.vertex_id, connector=spec.connector_type, name="timestamp_field",
                problem="a line of text has no fields", hint="use assign_timestamps(...)",
            )  # fmt: skip
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
        self._table.restore(state.get("files", {}))
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
        return SourceStatus(
            has_input=bool(files),
            is_finished=not files and not self._options.follow,
            lag=self._lag(files),
            next_poll_ms=LISTING_INTERVAL_MS,
            waiting_shards=waiting,
            unknown_shards=frozenset() if is_current else frozenset(self._table.files) - waiting,
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
            if end < (last_end := self._last_end(shard)) and not file.is_compressed:
                file.stalled_end = last_end
            file.move_to(end)
            file.turn = self._turn

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
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
        raise INPUT_MISSING(
            vertex=self.spec.vertex_id, path=self._options.path, problem=problem, hint=hint
        )


class TextFileSource(FileSource):
    """Reads lines as strings."""

    file_format = "text"


class JsonlFileSource(FileSource):
    """Reads one JSON document per line, as the declared record type (default dict)."""

    file_format = "jsonl"


class CsvFileSource(FileSource):
    """A source of CSV files with a header line, as the declared record type."""

    file_format = "csv"


class ParquetFileSource(FileSource):
    """Reads rows of Parquet files, as the declared record type (default dict)."""

    file_format = "parquet"
    hidden_prefixes = (".", "_")  # What writes such folders leaves `_SUCCESS` and the like.

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
