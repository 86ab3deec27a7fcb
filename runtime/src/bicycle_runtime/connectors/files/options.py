"""Options of the file connectors, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import option

__all__ = ["MADE", "FileSinkOptions", "FileSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceOptions:
    """The options for reading files: path, following, and format."""

    path: str = option(doc="A file, a directory, or a glob (``*``, ``?``, ``**``).")
    follow: bool = option(
        default=False, doc="Wait for appended lines and new files; the input is then unbounded."
    )
    recursive: bool = option(default=False, doc="Also read the subdirectories of a directory.")
    encoding: Literal["utf-8"] = option(
        "utf-8", doc="Character encoding; records with other bytes are bad records."
    )
    line_bytes_max: int = option(
        64 << 20,
        low=1 << 20,
        high=1 << 30,
        doc="Maximum length of a line or CSV record; longer ones are bad records.",
    )
    timestamp_field: str = option(
        "",
        doc=(
            "Field with the event time, RFC 3339 or ms since 1970 (``jsonl``, ``csv``, "
            "``parquet``); a record without it is a bad record."
        ),
        aliases=("time_field",),
    )
    epoch_files_max: int = option(
        1_000, low=1, high=100_000, doc="Maximum number of files per epoch."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    """The options for writing files: path, and bounds of parts."""

    path: str = option(
        doc="Output directory; it is created if it is missing.", aliases=("out_dir",)
    )
    roll_bytes: int = option(
        128 << 20, low=1, high=1 << 40, doc="Size at which a part is complete."
    )
    roll_ms: int = option(
        8_000,
        low=0,
        high=86_400_000,
        doc="Time after its first record at which a part is complete.",
        aliases=("roll_after",),
    )
    timestamp_field: str = option(
        "",
        doc=(
            "Field for the event time of each record, in ms since 1970 (``jsonl_file``, "
            "``csv_file``); a record without event time fails."
        ),
        aliases=("time_field",),
    )


MADE = "file:"  # Among the names of ``Sink.makes``, this prefix marks a directory.
