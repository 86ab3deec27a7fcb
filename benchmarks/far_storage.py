"""An S3 server that is as slow as one far away: a proxy before it delays answers and data.

A real S3 server on this machine has no way to be waited for, and what a restore from object storage
waits for is the way: each answer comes late, and each connection brings so many bytes a second. The
proxy adds both, to every connection alone, and nothing else; it is a process of its own, so that it
takes no time from who measures. It is run by ``python far_storage.py PORT``, where PORT is the
server's, and told its limits line by line.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from measuring import ROOT

from bicycle_runtime.base.environment import environment_set

__all__ = ["FarStorage", "Limits", "Proxy", "far_storage"]

_CHUNK_BYTES = 128 << 10
_CREDIT_S = 0.02  # Who woke up late may catch up so much.
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Limits:
    """How far away the server is: 0 says that something has no limit."""

    latency_ms: float = 0.0
    mb_per_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.latency_ms:g} ms before each answer, {self.mb_per_s:g} MB/s per connection"


@dataclass(frozen=True, slots=True)
class FarStorage:
    """A bucket of a server behind a proxy."""

    url: str
    proxy: subprocess.Popen[str]

    def limit(self, limits: Limits) -> None:
        """Let the proxy keep other limits from the next answer on."""
        _said(self.proxy, f"{limits.latency_ms} {limits.mb_per_s}\n")


@contextmanager
def far_storage(folder: Path) -> Iterator[FarStorage]:
    """Start a server and a proxy; who opens ``s3://`` meanwhile, also in children, comes there.

    Args:
        folder: Holds what the server stores.
    """
    server = _started(["-m", "tests.s3.s3_server", str(folder)])
    try:
        facts = json.loads(_said(server))
        port = facts["url"].rpartition(":")[2]
        proxy = _started([str(Path(__file__)), port])
        try:
            variables = {
                "AWS_ENDPOINT_URL": f"http://{_HOST}:{_said(proxy).strip()}",
                "AWS_ACCESS_KEY_ID": facts["key"],
                "AWS_SECRET_ACCESS_KEY": facts["secret"],
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            bucket = Path(facts["buckets"]) / "benchmark"
            bucket.mkdir(parents=True)
            with environment_set(variables):
                yield FarStorage(f"s3://{bucket.name}", proxy)
        finally:
            _end(proxy)
    finally:
        _end(server)


def _started(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _said(process: subprocess.Popen[str], word: str = "") -> str:
    """Say something to a process, if there is something to say, and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word)
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"{process.args} ended with {process.wait()}")
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    """Let a process end: it does when nobody can say anything to it any more."""
    process.communicate()


class Proxy:
    """Connections to one server, each with a delay and a rate of its own."""

    def __init__(self, port: int) -> None:
        self.limits = Limits()
        self._port = port

    async def meet(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        far, far_out = await asyncio.open_connection(_HOST, self._port, limit=_CHUNK_BYTES)
        asked: list[float] = []
        ways = (self._ask(near, far_out, asked), self._answer(far, out, asked))
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in (out, far_out):
                writer.close()
                with suppress(OSError):  # The other side has broken it off.
                    await writer.wait_closed()

    async def _ask(
        self, near: asyncio.StreamReader, out: asyncio.StreamWriter, asked: list[float]
    ) -> None:
        while data := await near.read(_CHUNK_BYTES):
            asked[:] = [asyncio.get_running_loop().time()]
            out.write(data)
            await out.drain()

    async def _answer(
        self, far: asyncio.StreamReader, out: asyncio.StreamWriter, asked: list[float]
    ) -> None:
        clock = asyncio.get_running_loop().time
        due = 0.0
        while data := await far.read(_CHUNK_BYTES):
            limits = self.limits
            if asked:  # It is the first of an answer.
                due = asked.pop() + limits.latency_ms / 1_000
            if limits.mb_per_s:
                due = max(due, clock() - _CREDIT_S) + len(data) / (limits.mb_per_s * 1e6)
            if (wait_s := due - clock()) > 0:
                await asyncio.sleep(wait_s)
            out.write(data)
            await out.drain()


async def _serve(port: int) -> None:
    proxy, is_over = Proxy(port), asyncio.Event()
    server = await asyncio.start_server(proxy.meet, _HOST, 0, limit=_CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()

    def listen() -> None:
        for line in sys.stdin:
            proxy.limits = Limits(*map(float, line.split()))
            print("kept", flush=True)
        loop.call_soon_threadsafe(is_over.set)

    threading.Thread(target=listen, daemon=True).start()
    await is_over.wait()
    os._exit(0)  # Connections that nobody wants any more need no farewell.


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
