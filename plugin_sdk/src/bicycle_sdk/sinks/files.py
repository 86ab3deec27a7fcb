"""Sinks that are files of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from bicycle_sdk.client_options import EventTime, PartSize
from bicycle_sdk.connector_options import Conflict, OutputPath, SinkOptions, sink_call
from bicycle_sdk.options import adapt_option

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["FileFormat", "FileSinkOptions", "file_sink"]

FileFormat = Literal["jsonl", "text", "csv"]
_WORDS: Mapping[str, str] = {"jsonl": "jsonl_file", "text": "text_file", "csv": "csv_file"}


class FileSinkOptions(
    OutputPath,
    EventTime,
    PartSize,
    SinkOptions,
    connector="jsonl_file",
    call="file_sink",
):
    """The options for writing files: path, and bounds of parts.

    ``format`` selects the connector: JSON lines, text lines or CSV rows.
    """

    format: FileFormat = "jsonl"
    roll_ms: int = adapt_option(PartSize, "roll_ms", default=8_000, low=0)

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the format, which is the scheme, and the path."""
        return {"format": parts.scheme, **super().from_address(parts)}

    def word(self) -> str:
        """Return the word of the connector of the format."""
        return _WORDS[self.format]

    def conflicts(self) -> Iterator[Conflict]:
        """Yield an unknown format, and a field of lines without fields."""
        if self.format not in _WORDS:
            problem = f"format must be jsonl, text or csv, got {self.format!r}"
            yield Conflict("format", problem, "correct format")
        if self.format == "text" and self.timestamp_field:
            problem = "timestamp_field needs format jsonl or csv; text has no fields"
            yield Conflict("timestamp_field", problem, "remove timestamp_field")


file_sink = sink_call(
    FileSinkOptions,
    "Return a sink of files in a directory; only complete, sealed files are visible.",
)
