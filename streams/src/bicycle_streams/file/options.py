"""Options of the file backend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bicycle_sdk.options import option
from bicycle_streams.file.errors import BEACON_INTERVAL_INVALID
from bicycle_streams.options import StreamerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions(StreamerOptions):
    """The options of a file's streamer."""

    create: Literal["never", "if-missing", "only"] = option(
        "never", doc="Whether to create the file: never, if it is missing, or always as a new file."
    )
    end_with_eos: bool = option(
        False, doc="Whether the last producer marks the streams as ended when it ends."
    )
    beacon_interval_bytes: int = option(
        1 << 20, low=1, high=1 << 30, doc="Bytes between beacons of a new file, a multiple of 1024."
    )
    file_size_limit_bytes: int = option(
        16 << 30, low=1024, doc="Maximum size of the file; messages beyond it are rejected."
    )
    fsync: Literal["never", "flush", "interval"] = option(
        "never", doc="When messages are synced to disk: with each flush, or at intervals."
    )
    fsync_interval_ms: int = option(
        1_000, low=1, high=3_600_000, doc="Time between two syncs with fsync=interval."
    )
    linger_ms: int = option(
        5, low=0, high=60_000, doc="Maximum time that an unflushed message waits in memory."
    )
    write_buffer_bytes: int = option(
        256 << 10,
        low=1,
        high=1 << 30,
        doc="Number of waiting bytes at which messages are written immediately.",
    )
    poll_interval_ms: int = option(
        20,
        low=1,
        high=60_000,
        doc="Interval at which a consumer at the end checks for new messages.",
    )
    positions: Path | None = option(
        None, doc="Database of committed positions; default: FILE.positions next to the file."
    )

    def positions_of(self, path: Path) -> Path:
        """Return the database of committed positions of a file."""
        return self.positions or path.with_name(path.name + ".positions")

    def __post_init__(self) -> None:
        super(FileOptions, self).__post_init__()  # slots=True makes another class.
        if self.beacon_interval_bytes % 1024:
            raise BEACON_INTERVAL_INVALID(address="file://", found=self.beacon_interval_bytes)
