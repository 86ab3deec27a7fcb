"""The sink of streams: tasks stage payloads, publishing writes an epoch.

The number is written with the messages, in one transaction or behind them, and is read first: an
epoch is written once, however often it is published. A job that continues elsewhere begins a run of
its own, so that two jobs of one savepoint never take each other's epochs for their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

from bicycle_runtime.connectors.errors import (
    STREAM_FILE_CHANGED,
    STREAMS_AHEAD,
    STREAMS_REFUSED,
    STREAMS_UNREACHABLE,
)
from bicycle_runtime.connectors.patience import Patience, PatientPublication
from bicycle_runtime.connectors.runs import is_rewind, run_of, storage_id_of
from bicycle_runtime.connectors.settings import payload_codec, read_options
from bicycle_runtime.connectors.staging import StagedWriter, staged_blocks
from bicycle_runtime.connectors.stream_clients.backends import (
    AwayError,
    ChangedError,
    RefusedError,
    StreamOutput,
)
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Sink,
    StagedFile,
    StagedPublication,
    WriterFactory,
    WriterTask,
)
from bicycle_runtime.formats.contract import Codec
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.sinks.sockets import SocketSinkOptions
from bicycle_sdk.stream_options import PublishedOptions, StreamSinkOptions

_SIZE = Struct(">I")


class StreamSink(StagedPublication, PatientPublication, ChecksBeforeStart, Sink):
    """Writes records as messages of one stream; a subclass knows the backend."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class: type[PublishedOptions | SocketSinkOptions]

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(self.options_class, spec)
        self._codec = payload_codec(spec, options)
        self._output = self.make_output(options)
        self._patience = Patience(
            vertex=spec.vertex_id,
            timeout_ms=options.publish_timeout_ms,
            is_away=lambda error: isinstance(error, AwayError),
            given_up=self._unreachable,
        )
        self._run = ""

    @abstractmethod
    def make_output(self, options: Any) -> StreamOutput:
        """Return the output of options of the ``options_class``, without opening it."""

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Check the backend and this job's history in it, without creating anything.

        Raises:
            STREAMS_UNREACHABLE: the backend cannot be used.
            STREAMS_AHEAD: the job begins behind the written epochs.
        """
        try:
            self._output.check()
            self._check_history(state)
        except (AwayError, RefusedError) as error:
            raise self._unreachable(0, error) from None

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Create missing targets, and continue the run or start a new one.

        Raises:
            STREAMS_UNREACHABLE: the backend cannot be used.
            STREAMS_AHEAD: the job begins behind the written epochs.
        """
        self._services = services
        self._storage_id = storage_id_of(services)
        try:
            self._output.open(services.clock.now_ms())
            is_again = self._check_history(state)
        except (AwayError, RefusedError) as error:
            raise self._unreachable(0, error) from None
        self._run = run_of(state, self._storage_id, is_again=is_again)

    def writer(self) -> WriterFactory:
        """Return the factory of writers."""
        return PayloadWriterFactory(self._codec)

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Name the staged files, and whose epoch it is."""
        return {
            "epoch": epoch,
            "run": self._run,
            "place": self._storage_id,
            "address": self._options.address,
            **super().prepare(epoch, staged, is_last=is_last),
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Write the epoch, unless it is written; a server that is away is waited for.

        Raises:
            STREAMS_REFUSED: the backend does not take it.
            STREAMS_UNREACHABLE: the server was away for too long.
            PublishInterruptedError: the job had to end meanwhile.
        """
        files = self.staged_files(state)
        if not files:
            return
        self._patience.carry_out(
            partial(self._write, epoch, state, files),
            epoch=epoch,
            target=self._options.address,
            clock=self._services.clock,
        )

    def _write(self, epoch: int, state: Mapping[str, Any], files: Sequence[StagedFile]) -> None:
        vertex, address = self.spec.vertex_id, self._options.address
        try:
            self._output.write(state.get("run", ""), epoch, self._payloads(files))
        except RefusedError as error:
            raise STREAMS_REFUSED(
                vertex=vertex, address=address, epoch=epoch, reason=str(error)
            ) from None
        except ChangedError:
            written = self._output.written(state["run"])
            raise STREAM_FILE_CHANGED(
                vertex=vertex, path=address, written=written, epoch=epoch
            ) from None

    def _payloads(self, files: Sequence[StagedFile]) -> Iterator[bytes]:
        for file in files:
            rest = b""
            for block in staged_blocks(self._services.storage, file):
                rest += block
                at = 0
                while len(rest) - at >= _SIZE.size:
                    [size] = _SIZE.unpack_from(rest, at)
                    end = at + _SIZE.size + size
                    if end > len(rest):
                        break
                    yield rest[at + _SIZE.size : end]
                    at = end
                rest = rest[at:]

    def stop(self) -> None:
        """Close the backend."""
        self.interrupt()
        self._output.close()

    def _check_history(self, state: Mapping[str, Any]) -> bool:
        """Return whether epochs are to be written again, as an older one was restored.

        Raises:
            STREAMS_AHEAD: so it is, and that was not allowed.
        """
        if state.get("address") != self._options.address:
            return False
        written = self._output.written(state["run"])
        if written is None:
            return False
        assert isinstance(self._options, StreamSinkOptions), "only who keeps messages tells it"
        return is_rewind(
            state, written, self._options.on_rewind,
            STREAMS_AHEAD, vertex=self.spec.vertex_id, address=self._options.address,
        )  # fmt: skip

    def _unreachable(self, waited_ms: int, error: Exception) -> BicycleError:
        return STREAMS_UNREACHABLE(
            vertex=self.spec.vertex_id,
            address=self._options.address,
            waited_ms=waited_ms,
            reason=str(error),
        )


class PayloadWriterFactory:
    """Opens writers; picklable."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer for a subtask and epoch, which stages payloads with sizes."""
        return StagedWriter(task, "payloads", self._encode)

    def _encode(self, values: Sequence[Any]) -> bytes:
        encode = self._codec.encode
        payloads = [encode(value) for value in values]
        return b"".join(part for p in payloads for part in (_SIZE.pack(len(p)), p))
