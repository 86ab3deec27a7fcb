"""Sources that are files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from bicycle_sdk.client_options import EventTime, GrowingInput, LineLength
from bicycle_sdk.connector_options import Conflict, Located, SourceOptions, source_call
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.options import adapt_option, option

__all__ = [
    "CsvFileSourceOptions",
    "FileSourceArguments",
    "FileSourceCall",
    "FileSourceOptions",
    "JsonlFileSourceOptions",
    "ParquetFileSourceOptions",
    "TextFileSourceOptions",
    "csv_file_source",
    "jsonl_file_source",
    "parquet_file_source",
    "text_file_source",
]

S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)


class FileSourceOptions(LineLength, Located, EventTime, GrowingInput, SourceOptions[T_co]):
    """The options for reading files: path, following, and format.

    ``record_type`` is the type to which records are decoded.
    """

    record_type: Any = dict
    path: str | os.PathLike[str] = adapt_option(
        Located,
        "path",
        kw_only=False,
        note="A file, a directory, or a glob (``*``, ``?``, ``**``).",
    )
    recursive: bool = option(default=False, doc="Also read the subdirectories of a directory.")
    encoding: Literal["utf-8"] = option(
        default="utf-8", doc="Character encoding; records with other bytes are bad records."
    )
    epoch_files_max: int = option(
        default=1_000, low=1, high=100_000, doc="Maximum number of files per epoch."
    )

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a conflict if the path is a URI."""
        scheme, has_scheme, _ = str(self.path).partition("://")
        if has_scheme and scheme.isalnum():
            problem = f"{self.path!r} is a URI, not the path of a file"
            hint = f"call from_uri({self.path!r}), which supports URIs (kafka, socket, file, …)"
            yield Conflict("path", problem, hint)

    def output_type(self) -> Any:
        """Return the type of the records."""
        return dict[str, Any] if self.record_type is dict else self.record_type


class TextFileSourceOptions(FileSourceOptions[str], connector="text", call="read_text"):
    """The options for reading lines of text."""

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a conflict for a URI as the path, or a timestamp field of text."""
        yield from super().conflicts()
        if self.timestamp_field:
            problem = "timestamp_field is set, but a line of text has no fields"
            hint = "use assign_timestamps(…)"
            yield Conflict("timestamp_field", problem, hint)

    def output_type(self) -> Any:
        """Return the type of lines."""
        return str


class JsonlFileSourceOptions(FileSourceOptions[Any], connector="jsonl", call="read_jsonl"):
    """The options for reading JSON lines."""


class CsvFileSourceOptions(FileSourceOptions[Any], connector="csv", call="read_csv"):
    """The options for reading CSV rows, with a header row."""

    def output_type(self) -> Any:
        """Return the type of the records; a value of a dict is a text."""
        return dict[str, str] if self.record_type is dict else self.record_type


class ParquetFileSourceOptions(FileSourceOptions[Any], connector="parquet", call="read_parquet"):
    """The options for reading Parquet rows; columns are taken by name."""


class FileSourceArguments(TypedDict, total=False):
    """The keywords of ``FileSourceOptions``, for type checkers."""

    follow: bool
    recursive: bool
    encoding: Literal["utf-8"]
    line_bytes_max: int
    timestamp_field: str
    epoch_files_max: int


class FileSourceCall(Protocol[T_co]):
    """A function that returns a source of records of a type, by default dicts."""

    @overload
    def __call__(
        self, path: str | os.PathLike[str], **options: Unpack[FileSourceArguments]
    ) -> SourceDescriptor[T_co]: ...
    @overload
    def __call__(
        self,
        path: str | os.PathLike[str],
        *,
        record_type: type[S],
        **options: Unpack[FileSourceArguments],
    ) -> SourceDescriptor[S]: ...


text_file_source = source_call(
    TextFileSourceOptions,
    "Return a source of the lines of a file, of files of a glob, or of a directory.",
)
jsonl_file_source = cast(
    "FileSourceCall[dict[str, Any]]",
    source_call(
        JsonlFileSourceOptions, "Return a source of JSON lines as records of ``record_type``."
    ),
)
csv_file_source = cast(
    "FileSourceCall[dict[str, str]]",
    source_call(
        CsvFileSourceOptions,
        "Return a source of CSV rows as records of ``record_type``, with a header row.",
    ),
)
parquet_file_source = cast(
    "FileSourceCall[dict[str, Any]]",
    source_call(
        ParquetFileSourceOptions,
        "Return a source of Parquet rows as records of ``record_type``, columns by name.",
    ),
)
