"""A local Kafka broker of one node, which can be started, stopped and paused.

What is known about a broker stands in its folder, so any process can find, stop or restart it:
``broker.json`` names process and port, ``data/`` holds topics and metadata, ``broker.log`` is what
Kafka logs, ``broker.out`` what Java prints. A broker outlives the process that started it, until it
is stopped. It listens on the loopback only, and is no model for one in production.

A broker is asked by one ApiVersions request by hand, then for the list of brokers by the client.
ApiVersions is what every client asks first, before it logs in, so it needs no credentials. The
answer comes a little before the broker counts itself among those that can hold topics: therefore
the second question.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bicycle_runtime.base.environment import environment_for_child
from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.java import log4j_settings
from bicycle_runtime.base.processes import (
    is_alive,
    is_frozen,
    send_signal,
    start_ticks,
    wait_for_end,
)
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.dev.broker_options import (
    HOST,
    BrokerOptions,
    server_properties,
)
from bicycle_runtime.dev.errors import (
    BROKER_CONFLICT,
    BROKER_MISSING,
    BROKER_NOT_STARTED,
    PORT_TAKEN,
)
from bicycle_runtime.dev.java_programs import require_java
from bicycle_runtime.dev.kafka_jars import kafka_jars
from bicycle_runtime.dev.ports import choose_port, is_free
from bicycle_runtime.dev.waiting import hold_lock, indent_lines, last_lines, wait_until
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random

_API_VERSIONS, _VERSION, _CORRELATION, _NO_NAME = 18, 0, 20_261, -1
_REQUEST = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, _NO_NAME)
_ANSWER_BYTES_MAX = 1 << 20

_CLUSTER_ID = "Bicycle-dev-cluster-AA"  # Any will do, as long as the data keeps it.
_FORMAT_TIMEOUT_S = 120
_KILL_TIMEOUT_S = 30  # also until a signal has stopped it
_ASKED_TO_END = frozenset({0, -signal.SIGTERM, 128 + signal.SIGTERM})


def answers_api_versions(
    host: str, port: int, *, ca_path: Path | None = None, timeout_s: float = 2.0
) -> bool:
    """Return whether a Kafka broker answers there.

    Args:
        host: Where.
        port: Where.
        ca_path: The certificate to trust, for a listener with TLS.
        timeout_s: For each step of the exchange.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            if ca_path is None:
                return _asks(plain)
            context = ssl.create_default_context(cafile=str(ca_path))
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return _asks(secured)
    except OSError:
        return False


def _asks(connection: socket.socket) -> bool:
    connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 6 <= size <= _ANSWER_BYTES_MAX:
        return False
    correlation, error = struct.unpack_from(">ih", _read(connection, size))
    return bool(correlation == _CORRELATION and error == 0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed by the other side")
        data += piece
    return data


def serves_metadata(settings: Mapping[str, str], *, timeout_s: float) -> bool:
    """Return whether the cluster has a broker that is ready for topics."""
    # Slow to import, and not needed to find out that nothing answers.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({**settings, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """The content of ``broker.json``: the process (id and start time), the address."""

    pid: int
    started: int
    port: int
    users: tuple[str, ...] = ()
    ca_path: str | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the process still exists, paused or not."""
        return is_alive(self.pid, self.started)


class KafkaBroker:
    """The broker of one folder, started by any process.

    Args:
        options: Folder, port, memory and more.
        cache_dir: Directory that outlives brokers: the jars are kept there.
        report: Gets a line for people before something that takes long.
        source: Chooses among free ports.

    Example:
        broker = KafkaBroker(BrokerOptions(folder=Path("kafka")), cache_dir=Path("cache"))
        broker.start()
        Producer(broker.client_settings())
        broker.stop()
    """

    def __init__(
        self,
        options: BrokerOptions,
        *,
        cache_dir: Path,
        report: Callable[[str], None] = lambda _line: None,
        source: random.Random | None = None,
    ) -> None:
        # The broker's process runs in the folder, where a relative path would have another meaning.
        self._folder = options.folder.absolute()
        self.options = replace(options, folder=self._folder)
        self._cache_dir = cache_dir
        self._report = report
        self._source = source or system_random()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """The folder of this broker."""
        return self._folder

    @property
    def log_path(self) -> Path:
        """The log of Kafka."""
        return self._folder / "broker.log"

    @property
    def bootstrap(self) -> str:
        """``HOST:PORT`` for clients; the same after a restart.

        Raises:
            BROKER_MISSING: it was never started, so that port 0 is not chosen yet.
        """
        record = self.record()
        port = record.port if record else self.options.port
        if not port:
            raise BROKER_MISSING(folder=str(self._folder))
        return f"{HOST}:{port}"

    @property
    def pid(self) -> int:
        """The id of the running process; raises BROKER_MISSING without one."""
        return self._running().pid

    def record(self) -> BrokerRecord | None:
        """Return the record of the last start, or None before the first.

        Raises:
            STORED_NEWER: a newer version of the runtime wrote it.
        """
        path = self._folder / "broker.json"
        try:
            return decode_stored(path.read_bytes(), BrokerRecord, path=str(path))
        except FileNotFoundError:
            return None

    def client_settings(self, user: str | None = None) -> dict[str, str]:
        """Return the properties (of librdkafka) with which a client connects.

        Args:
            user: One of the users of a secured broker; the first when absent.

        Raises:
            BROKER_CONFLICT: the broker asks for users that these options do not name.
        """
        security, record = self.options.security, self.record()
        if record:
            self._require_same_users(record)
        secured = {} if security is None else security.client_settings(user)
        return {"bootstrap.servers": self.bootstrap, **secured}

    def is_running(self) -> bool:
        """Return whether the process exists; it may be paused, or on its way up."""
        self._reap()
        record = self.record()
        return record is not None and record.is_running

    def is_answering(self, *, timeout_s: float = 2.0) -> bool:
        """Return whether the broker answers an ApiVersions request."""
        record = self.record()
        return (
            record is not None
            and record.is_running
            and answers_api_versions(
                HOST,
                record.port,
                ca_path=Path(record.ca_path) if record.ca_path else None,
                timeout_s=timeout_s,
            )
        )

    def start(self) -> bool:
        """Start the broker on new or existing data, and wait until it answers.

        Returns:
            True when it was started, False when it ran already.

        Raises:
            BROKER_CONFLICT: one runs here on another port, or its data has other users.
            BROKER_JAVA_MISSING: Java is missing or too old.
            BROKER_NOT_STARTED: it ended, or did not answer in time; it does not run then.
            JARS_NOT_FETCHED: the jars are not here and could not be fetched.
            JAR_CHECKSUM_WRONG: a fetched jar is a wrong one.
            PORT_TAKEN: somebody else listens there.
        """
        timeout_s = self.options.start_timeout_ms / 1_000
        jars = kafka_jars(self._cache_dir, report=self._report)
        try:
            with hold_lock(self._folder / "lock", timeout_s=timeout_s):
                return self._start(jars, timeout_s)
        except TimeoutError:
            raise self._start_error("another command is still starting it") from None

    def stop(self) -> bool:
        """End the broker cleanly, and kill it when it does not end in time.

        Returns:
            True when it ended by itself.

        Raises:
            BROKER_MISSING: none runs here.
        """
        record = self._running()
        send_signal(record.pid, signal.SIGTERM)
        send_signal(record.pid, signal.SIGCONT)  # A paused one would never see the other.
        if self._wait_for_end(record, self.options.stop_timeout_ms / 1_000):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """Kill the broker by SIGKILL, like a crash; raise BROKER_MISSING if it is down."""
        record = self._running()
        send_signal(record.pid, signal.SIGKILL)
        self._wait_for_end(record, _KILL_TIMEOUT_S)

    def pause(self) -> None:
        """Stop the broker by SIGSTOP, and wait until it stopped; connections remain open."""
        pid = self._running().pid
        send_signal(pid, signal.SIGSTOP)
        wait_until(lambda: is_frozen(pid), timeout_s=_KILL_TIMEOUT_S)

    def resume(self) -> None:
        """Resume a paused broker."""
        send_signal(self._running().pid, signal.SIGCONT)

    def has_ended(self) -> bool:
        """Return whether no broker runs in the folder any longer.

        Raises:
            BROKER_NOT_STARTED: the process of this object ended without a request.
        """
        is_running = self.is_running()  # First, so that an ended process has an exit code.
        code = None if self._process is None else self._process.poll()
        if code is not None and code not in _ASKED_TO_END:
            raise self._start_error("its process ended")
        return not is_running

    def _start(self, jars: list[Path], timeout_s: float) -> bool:
        record = self.record()
        if record and record.is_running:
            self._require_same(record)
            self._wait_for_answer(timeout_s)
            return False
        java = require_java()
        port = self._choose_port(record)
        self._write_settings(port)
        self._format(java, jars, record)
        try:
            self._spawn(java, jars, port)
            self._wait_for_answer(timeout_s)
        except BaseException:
            if self._process is not None:
                self._process.kill()
                self._process.wait(_KILL_TIMEOUT_S)
            raise
        return True

    def _require_same(self, record: BrokerRecord) -> None:
        """Refuse a running broker whose options differ from the requested ones."""
        asked = self.options.port
        if asked not in (0, record.port):
            raise BROKER_CONFLICT(
                folder=str(self._folder), name="port", found=record.port, asked=asked
            )
        self._require_same_users(record)

    def _require_same_users(self, record: BrokerRecord) -> None:
        found, asked = ", ".join(record.users) or "none", ", ".join(self._users) or "none"
        if found != asked:
            raise BROKER_CONFLICT(folder=str(self._folder), name="users", found=found, asked=asked)

    @property
    def _users(self) -> tuple[str, ...]:
        security = self.options.security
        return () if security is None else tuple(security.users)

    def _choose_port(self, record: BrokerRecord | None) -> int:
        port = self.options.port or (record.port if record else 0)
        if not port:
            return choose_port(HOST, self._source)
        if not is_free(HOST, port):
            raise PORT_TAKEN(host=HOST, port=port)
        return port

    def _write_settings(self, port: int) -> None:
        controller_port = choose_port(HOST, self._source, besides=port)
        text = server_properties(self.options, port=port, controller_port=controller_port)
        path = self._folder / "server.properties"
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        (self._folder / "log4j2.properties").write_text(
            log4j_settings(self.log_path, level="info"), encoding="utf-8"
        )

    def _format(self, java: Path, jars: list[Path], record: BrokerRecord | None) -> None:
        """Prepare an empty data folder; one that has data stays as it is."""
        if (self._folder / "data" / "meta.properties").is_file():
            if record:
                self._require_same_users(record)
            return
        security = self.options.security
        command = [
            *self._java(java, jars, "kafka.tools.StorageTool", heap_mb=128),
            *("format", "--ignore-formatted", "--cluster-id", _CLUSTER_ID),
            *("--config", str(self._folder / "server.properties")),
            *([] if security is None else security.scram_arguments()),
        ]
        with (self._folder / "broker.out").open("wb") as output:
            try:
                result = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=_FORMAT_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                reason = f"its data was not prepared within {_FORMAT_TIMEOUT_S} s"
                raise self._start_error(reason) from None
        if result.returncode:
            raise self._start_error(f"its data could not be prepared (exit {result.returncode})")

    def _spawn(self, java: Path, jars: list[Path], port: int) -> None:
        """Start Java in a session of its own: a Ctrl-C of the terminal does not reach it."""
        command = [
            *self._java(java, jars, "kafka.Kafka", heap_mb=self.options.heap_mb),
            str(self._folder / "server.properties"),
        ]
        with (self._folder / "broker.out").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment_for_child({}),
                # A lock or a socket of the starter must not live as long as the broker.
                close_fds=True,
                start_new_session=True,
            )
        self._write_record(self._process.pid, port)

    def _write_record(self, pid: int, port: int) -> None:
        security = self.options.security
        record = BrokerRecord(
            pid=pid,
            started=start_ticks(pid),
            port=port,
            users=self._users,
            ca_path=None if security is None else str(security.keystore.ca_path.absolute()),
        )
        replace_file(self._folder / "broker.json", encode_stored(asdict(record)))

    def _java(self, java: Path, jars: list[Path], main: str, *, heap_mb: int) -> list[str]:
        return [
            *(str(java), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            *("-Djava.awt.headless=true", "-cp", os.pathsep.join(map(str, jars)), main),
        ]

    def _wait_for_answer(self, timeout_s: float) -> None:
        """Wait until the broker serves: its port is open seconds before it does."""
        has_ended = False

        def is_decided() -> bool:
            nonlocal has_ended
            has_ended = not self.is_running()
            return has_ended or (
                self.is_answering() and serves_metadata(self.client_settings(), timeout_s=5)
            )

        is_in_time = wait_until(is_decided, timeout_s=timeout_s)
        if has_ended:
            raise self._start_error("its process ended")
        if not is_in_time:
            raise self._start_error(f"it runs, but did not respond within {timeout_s:g} s")

    def _reap(self) -> None:
        """Collect the exit code of an ended child."""
        if self._process is not None:
            self._process.poll()

    def _running(self) -> BrokerRecord:
        record = self.record()
        if record is None or not record.is_running:
            raise BROKER_MISSING(folder=str(self._folder))
        return record

    def _wait_for_end(self, record: BrokerRecord, timeout_s: float) -> bool:
        has_ended = wait_for_end(record.pid, record.started, timeout_s=timeout_s)
        if has_ended and self._process is not None and self._process.pid == record.pid:
            self._process.wait()
            self._process = None
        return has_ended

    def _start_error(self, reason: str) -> BicycleError:
        """Return the error with the end of Kafka's log, and of Java's output, if any."""
        log, lines = self.log_path, last_lines(self.log_path)
        printed = last_lines(self._folder / "broker.out")
        if printed:
            log, lines = self._folder / "broker.out", [*lines[-5:], *printed]
        return BROKER_NOT_STARTED(
            folder=str(self._folder),
            reason=reason,
            log=str(log),
            tail=lines,
            tail_text=indent_lines(lines),
        )
