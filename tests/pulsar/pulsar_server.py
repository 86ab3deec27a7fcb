"""A real standalone Pulsar of its own: metadata, bookie and broker in one process of Java.

Its jars come from where Kafka's come from, and are checked against the list beside this file.
Clients reach the broker through a proxy, whose address the broker tells them, so that a test can
break all connections. It keeps messages that nobody subscribed to, and drops duplicates.
"""

from __future__ import annotations

import base64
import hmac
import json
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TypeAlias

from rocksdict import BlockBasedOptions, Options, Rdict

from bicycle_runtime.base.java import log4j_settings
from bicycle_runtime.cli.parameters import home
from bicycle_runtime.dev.java_programs import require_java
from bicycle_runtime.dev.ports import choose_port
from tests.server_jars import guard, server_jars
from tests.waiting import until

HOST = "127.0.0.1"
_LIST = Path(__file__).with_name("pulsar_jars.txt")
_BLOCK = 1 << 16
_OPENED = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.nio", "java.base/java.util.zip",
    "java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.base/sun.net",
    "java.management/sun.management",
)  # fmt: skip
_SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "advertisedAddress": HOST,
    "bindAddress": HOST,
    "brokerDeduplicationEnabled": "true",
    "clusterName": "standalone",
    "defaultRetentionSizeInMB": "-1",
    "defaultRetentionTimeInMinutes": "-1",
    "internalListenerName": "proxy",
    "journalSyncData": "false",
    "loadBalancerEnabled": "false",
    "managedLedgerDefaultAckQuorum": "1",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "numHttpServerThreads": "4",
    "numIOThreads": "2",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "webSocketServiceEnabled": "false",
}
# Its metadata is kept in RocksDB: the newest format of tables that it reads, and the place of the
# byte of a value that is 1 if the value ends with the session of the server.
_TABLE_FORMAT = 5
_IS_EPHEMERAL = slice(40, 41)
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_CLIENT_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def token_of(role: str, key: bytes) -> str:
    """Return a token of a role, signed with a key that the server has, too."""
    head, body = ({"alg": "HS256"}, {"sub": role})
    text = b".".join(_base64(json.dumps(part).encode()) for part in (head, body))
    return (text + b"." + _base64(hmac.digest(key, text, "sha256"))).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


# What one connection does with bytes: returns those to pass on now, by whether a client sent them.
Fault: TypeAlias = Callable[[bytes, bool], bytes]


class Proxy(ThreadingTCPServer):
    """Passes connections on to a port, until they are broken.

    Attributes:
        new_fault: Makes the fault of each new connection.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, target: int) -> None:
        super().__init__((HOST, port), _Passing)
        self.target = target
        self.new_fault: Callable[[], Fault] = lambda: lambda data, _: data
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def pass_on(self, near: socket.socket) -> None:
        """Copy what comes on either side to the other one."""
        try:
            far = socket.create_connection((HOST, self.target))
        except OSError:
            return  # The server does not run, and the client sees it closed.
        pair = (near, far)
        with self._lock:
            self._pairs.add(pair)
        others = {near: far, far: near}
        fault = self.new_fault()
        try:
            while True:
                for side in select.select(pair, [], [])[0]:
                    data = side.recv(_BLOCK)
                    if not data:
                        return
                    others[side].sendall(fault(data, side is near))
        except (OSError, ValueError):
            return  # It was broken.
        finally:
            with self._lock:
                self._pairs.discard(pair)
            far.close()

    def break_connections(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for side in (side for pair in pairs for side in pair):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # The other side was faster.


class _Passing(BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Proxy)
        self.server.pass_on(self.request)


class PulsarServer:
    """A server that can be killed, emptied and started again on the same ports.

    With ``token_key``, only who has a token that is signed with it may come in; ``admin`` may do
    everything.
    """

    def __init__(self, certificates: Path, *, token_key: bytes | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bicycle-pulsar-"))
        self._jars = server_jars(_LIST, home().cache_dir / "pulsar-3.0.0")
        ports = [choose_port(HOST, random.Random()) for _ in range(5)]
        self._broker_port, self._admin_port, self._bookie_port, self.port, tls_port = ports
        self.tls_uri = f"pulsar+ssl://localhost:{tls_port}"
        self._settings = {
            **_SETTINGS,
            "advertisedListeners": f"proxy:pulsar://{HOST}:{self.port},proxy:{self.tls_uri}",
            "brokerServicePort": str(self._broker_port),
            "brokerServicePortTls": str(tls_port),
            "tlsCertificateFilePath": str(certificates / "service.pem"),
            "tlsKeyFilePath": str(certificates / "service.key"),
            "webServicePort": str(self._admin_port),
        }
        self._token: str | None = None
        if token_key is not None:
            self._token = token_of("admin", token_key)
            self._settings |= {
                "authenticationEnabled": "true",
                "authenticationProviders": _PROVIDER,
                "authorizationEnabled": "true",
                "brokerClientAuthenticationParameters": f"token:{self._token}",
                "brokerClientAuthenticationPlugin": _CLIENT_PLUGIN,
                "superUserRoles": "admin",
                "tokenSecretKey": f"data:;base64,{base64.b64encode(token_key).decode()}",
            }
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._proxy = Proxy(self.port, self._broker_port)
        self.start()

    @property
    def uri(self) -> str:
        return f"pulsar://{HOST}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://{HOST}:{self._admin_port}"

    def start(self) -> None:
        """Start it, and wait until topics can be looked up; harmless when it runs."""
        if self._process is not None:
            return
        conf = self._folder / "standalone.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        log4j = self._folder / "log4j2.properties"
        log4j.write_text(log4j_settings(self._folder / "server.log", level="warn"))
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(self._command(conf, log4j), stdout=out, stderr=out)
        self._guard = guard(self._process)
        until(lambda: self._has_ended() or self._answers(), self._told)
        assert not self._has_ended(), self._told()

    def _command(self, conf: Path, log4j: Path) -> list[str]:
        folder = self._folder
        return [
            *(str(require_java()), "-Xmx256m", "-XX:MaxDirectMemorySize=256m"),
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j.configurationFile={log4j}",
            *("-Dio.netty.tryReflectionSetAccessible=true",),
            *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
            *("-cp", ":".join(map(str, self._jars)), "org.apache.pulsar.PulsarStandaloneStarter"),
            *("--config", str(conf), "--no-functions-worker", "--no-stream-storage"),
            *("--bookkeeper-dir", str(folder / "bookie"), "--metadata-dir", str(folder / "meta")),
            *("--bookkeeper-port", str(self._bookie_port), "--num-bookies", "1"),
        ]

    def _told(self) -> str:
        paths = [self._folder / name for name in ("out", "server.log")]
        return "\n".join(path.read_text()[-4_000:] for path in paths if path.exists())

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            return "public/default" in self.ask("GET", "namespaces/public")
        except OSError:
            return False

    def ask(self, method: str, path: str, data: object = None) -> object:
        """Ask its administration."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/{path}",
            data=None if data is None else json.dumps(data).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None
        self._end_session()

    def _end_session(self) -> None:
        """Remove what the killed server had registered, as its session's end does elsewhere.

        It would find its own registrations, and may take them over again and again without end.
        """
        tables = BlockBasedOptions()
        tables.set_format_version(_TABLE_FORMAT)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(tables)
        database = Rdict(str(self._folder / "meta"), options)
        for key, value in list(database.items()):
            if value[_IS_EPHEMERAL] == b"\1":
                del database[key]
        database.close()

    def empty(self) -> None:
        """Remove all that it ever kept; it must not run."""
        assert self._process is None
        for name in ("bookie", "meta"):
            shutil.rmtree(self._folder / name)

    def break_connections(self) -> None:
        """Close the connections of all clients."""
        self._proxy.break_connections()

    def set_fault(self, new_fault: Callable[[], Fault]) -> None:
        """Give each new connection a fault of its own."""
        self._proxy.new_fault = new_fault

    def remove(self) -> None:
        self.kill()
        self._proxy.shutdown()
        self._proxy.server_close()
        shutil.rmtree(self._folder)
