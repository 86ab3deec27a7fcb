"""The streamer of a file: it makes the file if asked to, and senders and consumers of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.streams.addresses import StreamerUri
from bicycle_runtime.streams.admin import StreamAdmin
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.contract import Capabilities, Streamer
from bicycle_runtime.streams.file.admin import FileAdmin
from bicycle_runtime.streams.file.consuming import FileConsumer
from bicycle_runtime.streams.file.creating import create_file
from bicycle_runtime.streams.file.errors import FILE_MISSING, LATEST_NOT_LIVE
from bicycle_runtime.streams.file.format import FileHeader
from bicycle_runtime.streams.file.options import FileOptions
from bicycle_runtime.streams.file.sending import FileSender, SharedWriter
from bicycle_runtime.streams.file.view import open_to_read, read_header
from bicycle_runtime.streams.options import Durability, StreamerOptions
from bicycle_runtime.streams.producing import Sender

__all__ = ["FileStreamer"]


class FileStreamer(Streamer):
    """Streams in one file.

    Args:
        uri: ``file://PATH``.
        options: ``FileOptions``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        modes=frozenset({"real-time", "resumable", "load-balanced"}),
        is_replayable=True,
        has_shards=True,
        first_sequence=1,
    )
    options_type: ClassVar[type[StreamerOptions]] = FileOptions
    words_to_write: ClassVar[Mapping[str, object]] = {"create": "if-missing"}
    options: FileOptions

    def __init__(self, uri: StreamerUri, options: FileOptions) -> None:
        super().__init__(uri, options)
        self.path = Path(uri.node)

    async def _open(self) -> None:
        if self.options.create == "never" or (
            self.options.create == "if-missing" and self.path.exists()
        ):
            descriptor = open_to_read(self.path)
            try:
                read_header(self.path, descriptor)
            finally:
                os.close(descriptor)
        else:
            header = FileHeader(
                self.path.name, SystemClock().now_ms(), self.options.beacon_interval_bytes
            )
            create_file(self.path, header, must_be_new=self.options.create == "only")

    async def _close(self) -> None:
        """Nothing stays open: senders and consumers have closed what they held."""

    def admin(self) -> StreamAdmin:
        return FileAdmin(str(self.uri), self.path, self.options.positions_of(self.path))

    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        if not self.path.exists():
            raise FILE_MISSING(path=str(self.path))
        return FileSender(str(self.path), SharedWriter.of(self.path, self.options), shard_count)

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        if subscription.start == "latest" and not subscription.is_live:
            raise LATEST_NOT_LIVE(address=str(self.uri), path=str(self.path))
        return await FileConsumer.open(self.path, subscription, self.options)
