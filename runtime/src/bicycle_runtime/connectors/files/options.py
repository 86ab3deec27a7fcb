"""Options of the file connectors, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option

__all__ = ["MADE", "FileSinkOptions", "FileSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceOptions:
    """The options for reading files: path, following, and format."""

    path: str = option(doc="A file, a directory, or a glob (``*``, ``?``, ``**``).")
    follow: bool = option(
        default=False, doc="Wait for appended lines and new files; the input then never ends."
    )
    recursive: bool = option(default=False, doc="Read the directories below a directory, too.")
    encoding: Literal["utf-8"] = option("utf-8", doc="The encoding; other bytes are bad records.")
    line_bytes_max: int = option(
        64 << 20, low=1 << 20, high=1 << 30, doc="Longer lines (or CSV records) are bad records."
    )
    timestamp_field: str = option(
        "",
        doc="Field with the event time, RFC 3339 or ms since 1970 (``jsonl``, ``csv``, "
        "``parquet``); a record without one is a bad record.",
    )
    epoch_files_max: int = option(
        1_000, low=1, high=100_000, doc="Files from which one epoch may read."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    """The options for writing files: path, and bounds of parts."""

    path: str = option(doc="Output directory; it is made when it is missing.")
    roll_bytes: int = option(
        128 << 20, low=1, high=1 << 40, doc="A part is complete when it has this many bytes."
    )
    roll_ms: int = option(
        8_000, low=0, high=86_400_000, doc="A part is complete this long after its first record."
    )
    timestamp_field: str = option(
        "",
        doc="Field in which the event time of each record is written, in ms since 1970 "
        "(``jsonl_file``, ``csv_file``); a record without one fails.",
    )


MADE = "file:"  # What begins so among the names of ``Sink.makes`` is a directory.
