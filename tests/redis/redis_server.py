"""A Redis server of its own, on a free port, with its data in a temporary folder."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import redis

from tests.waiting import until


class RedisServer:
    """A server that can be killed, emptied and started again on the same port.

    With ``appendonly`` it keeps what it acknowledged when it is killed. With certificates it speaks
    TLS alone, and asks clients for theirs. It takes any free port unless one is given, and more
    words of its command line.
    """

    def __init__(
        self, certificates: Path | None = None, *, port: int = 0, words: Sequence[str] = ()
    ) -> None:
        assert shutil.which("redis-server"), "Redis is not installed: apt-get install redis-server"
        self._folder = Path(tempfile.mkdtemp(prefix="bicycle-redis-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._certificates = certificates
        self._words = words
        self.start()

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def uri(self) -> str:
        return f"redis{'s' if self._certificates else ''}://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        if (folder := self._certificates) is None:
            return redis.Redis(port=self.port)
        return redis.Redis(
            port=self.port, ssl=True, ssl_ca_certs=str(folder / "service.pem"),
            ssl_certfile=str(folder / "ada.pem"), ssl_keyfile=str(folder / "ada.key"),
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers; harmless when it runs."""
        if self._process is not None:
            return
        words = ["redis-server", "--bind", "127.0.0.1", "--save", "", *self._port_words()]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(self._folder)]
        words += self._words
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        until(self._answers, (self._folder / "log").read_text)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def empty(self) -> None:
        """Remove all that it ever kept; it must not run."""
        assert self._process is None
        for path in self._folder.glob("append*"):
            shutil.rmtree(path)

    def break_connections(self) -> None:
        """Close the connections of all clients."""
        with self.client as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def _port_words(self) -> list[str]:
        if (folder := self._certificates) is None:
            return ["--port", str(self.port)]
        words = ["--port", "0", "--tls-port", str(self.port)]
        words += ["--tls-cert-file", str(folder / "service.pem")]
        words += ["--tls-key-file", str(folder / "service.key")]
        return [*words, "--tls-ca-cert-file", str(folder / "ca.pem")]

    def _answers(self) -> bool:
        try:
            with self.client as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False
