"""A real server that speaks S3, for tests and benchmarks: S3Proxy over a local directory.

It is chosen because its ``If-None-Match: *`` is atomic (a hard link), it checks signatures, and
what it has acknowledged is on the disk, so that it can be killed and started again. Its jars come
from where Kafka's come from, and are checked against the list beside this file.

``python -m tests.s3.s3_server FOLDER`` runs one by itself: it tells where it is and what opens it,
and ends when its input does.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.cli.parameters import home
from bicycle_runtime.dev.java_programs import require_java
from bicycle_runtime.dev.ports import choose_port
from tests.server_jars import guard, server_jars
from tests.waiting import until

KEY, SECRET = "ada-key", "ada-secret-that-nobody-may-see"
_LIST = Path(__file__).with_name("s3proxy_jars.txt")


@dataclass(slots=True)
class S3Server:
    """One server and its directory; ``start`` after ``kill`` finds everything again."""

    root: Path
    cache_dir: Path
    heap_mib: int = 192
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)
    guard: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def buckets(self) -> Path:
        """Each folder in here is a bucket."""
        return self.root / "data"

    def start(self) -> None:
        self.port = self.port or choose_port("127.0.0.1", random.Random())
        self.buckets.mkdir(parents=True, exist_ok=True)
        settings = self.root / "s3proxy.conf"
        settings.write_text(
            f"s3proxy.endpoint={self.url}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={KEY}\n"
            f"s3proxy.credential={SECRET}\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={self.buckets}\n"
        )
        path = ":".join(map(str, server_jars(_LIST, self.cache_dir / "s3proxy")))
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(
                        str(require_java()),
                        f"-Xmx{self.heap_mib}m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                    ),
                    f"-Dlogback.configurationFile={Path(__file__).with_name('logback.xml')}",
                    *("-cp", path, "org.gaul.s3proxy.Main", "--properties", str(settings)),
                ],
                stdout=log,
                stderr=log,
            )
        self.guard = guard(self.process)
        told = (self.root / "log").read_text
        until(lambda: not self.is_up() or self._answers(), told)
        assert self.is_up(), told()

    def make_bucket(self, name: str) -> None:
        (self.buckets / name).mkdir(exist_ok=True)

    def kill(self) -> None:
        if self.is_up():
            self.process.kill()
            self.process.wait()
        if self.guard is not None:
            self.guard.communicate()
            self.guard = None

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_up():
            self.process.send_signal(signal.SIGCONT)

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return bool(connection.recv(1))
        except OSError:
            return False


def main() -> None:
    """Run a server until standard input ends."""
    server = S3Server(Path(sys.argv[1]), home().cache_dir, heap_mib=1_024)
    server.start()
    try:
        facts = {"url": server.url, "key": KEY, "secret": SECRET, "buckets": str(server.buckets)}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        server.kill()


if __name__ == "__main__":
    main()
