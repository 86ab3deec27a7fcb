"""The socket sink: a TCP server that sends published records as lines to all connected clients.

While a client is connected nothing is lost: publishing waits for it. With no client connected,
records are dropped and counted. After a crash an epoch may be sent again (at-least-once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.contract import ConnectorSpec, DriverServices, Guarantee, Sink
from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.connectors.lines import text_lines
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.sockets.listening import open_listener
from bicycle_runtime.connectors.sockets.options import SocketSinkOptions
from bicycle_runtime.connectors.sockets.sending import Broadcaster, SendingEndedError
from bicycle_runtime.connectors.staging import (
    StagedWriter,
    in_subtask_order,
    staged_blocks,
    staged_from_json,
    staged_to_json,
)
from bicycle_runtime.operators.io import StagedFile, WriterTask

__all__ = ["SocketSink", "SocketWriterFactory"]


@dataclass(frozen=True, slots=True)
class SocketWriterFactory:
    """Opens writers that stage text lines."""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one line per record."""
        return StagedWriter(task, "records.txt", text_lines)


class SocketSink(Sink):
    """Listens on ``host:port`` and broadcasts."""

    guarantee = Guarantee.AT_LEAST_ONCE
    options_class = SocketSinkOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(SocketSinkOptions, spec)
        self._broadcaster: Broadcaster | None = None
        self._dropped_count = 0
        self._sent_epoch = -1

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was asked for."""
        return self._broadcaster.port if self._broadcaster is not None else self._options.port

    @property
    def client_count(self) -> int:
        """How many clients are connected now."""
        return self._broadcaster.client_count if self._broadcaster is not None else 0

    @property
    def refused_count(self) -> int:
        """How many clients were refused: too many were connected, or no descriptor was left."""
        return self._broadcaster.refused_count if self._broadcaster is not None else 0

    def start(self, services: DriverServices, memo: Mapping[str, Any]) -> None:
        """Open the port.

        Raises:
            PortUnavailableError: the port is in use.
        """
        self._storage = services.storage
        listener = open_listener(self.spec.vertex_id, self._options.host, self._options.port)
        self._broadcaster = Broadcaster(
            self.spec.vertex_id, listener, self._options, services.clock
        )
        self._broadcaster.start()

    def writer(self) -> SocketWriterFactory:
        """Return the factory of text writers."""
        return SocketWriterFactory()

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Name the staged files."""
        return {"files": [staged_to_json(file) for file in in_subtask_order(staged)]}

    def publish(self, epoch: int, memo: Mapping[str, Any]) -> None:
        """Send the epoch's records, once per run; returns when all clients took them.

        Raises:
            PublishInterruptedError: the job must end while a client does not read.
        """
        if self._broadcaster is None or epoch <= self._sent_epoch:
            return
        try:
            for entry in memo.get("files", []):
                self._send(self._broadcaster, staged_from_json(entry))
            self._broadcaster.flush()
        except SendingEndedError as error:
            raise PublishInterruptedError(
                vertex=self.spec.vertex_id, epoch=epoch, reason="a client does not read",
                target=f"the clients of port {self._broadcaster.port}",
            ) from error  # fmt: skip
        self._sent_epoch = epoch

    def interrupt(self) -> None:
        """Let publishing give up on clients that do not read."""
        if self._broadcaster is not None:
            self._broadcaster.interrupt()

    def _send(self, broadcaster: Broadcaster, file: StagedFile) -> None:
        held = b""
        for data in staged_blocks(self._storage, file):
            whole, newline, held = (held + data).rpartition(b"\n")
            broadcaster.send(whole + newline)

    def stop(self) -> None:
        """Close the port and the clients."""
        if self._broadcaster is not None:
            self._broadcaster.stop()
            self._dropped_count += self._broadcaster.dropped_line_count
            self._broadcaster = None

    def dropped_count(self) -> int:
        """Return how many records found no client, or a client that did not read."""
        running = self._broadcaster.dropped_line_count if self._broadcaster is not None else 0
        return self._dropped_count + running

    def referenced_paths(self, memo: Mapping[str, Any]) -> set[str]:
        """The epoch's own staged files."""
        return {entry["path"] for entry in memo.get("files", [])}
