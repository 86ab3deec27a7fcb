"""A subscriber server in a process of its own, and clients that speak to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from bicycle_runtime.base.environment import environment_for_python
from tests.waiting import PATIENCE_S, until

# The server needs no runtime.
MAIN = """
import sys
sys.modules["bicycle_runtime"] = sys.modules["pyspark"] = None
from bicycle_streams.cli.root import streams_root
sys.exit(streams_root()())
"""


class SubscriberServer:
    """``bicycle stream serve`` with some words, until it is ended."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self.folder = folder
        self.log = folder / "subscribers.log"
        self.words = ("--home", str(folder / "home"), *words)
        if "--listen" not in words:
            self.words += ("--listen", "127.0.0.1:0")
        self.variables = variables
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> SubscriberServer:
        answer = self.folder / "url"
        with answer.open("wb") as output, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, "stream", "serve", *self.words],
                stdout=output, stderr=log, env=environment_for_python(self.variables),
            )  # fmt: skip

        def url() -> str:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            return answer.read_text().strip()

        self.url = until(url, "the server")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask for the end, and return the exit code."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


class Client:
    """What one connection says, frame by frame."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request, and return the frame that comes next."""
        await self.send(**request)
        return await self.next()

    async def send(self, **request: Any) -> None:
        shown = {name.rstrip("_"): value for name, value in request.items()}
        await self.connection.send(json.dumps(shown))

    async def next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.connection.recv())
        return found

    async def until(self, op: str) -> list[dict[str, Any]]:
        """Return the frames up to the first of a kind, with it."""
        frames = [await self.next()]
        while frames[-1]["op"] != op:
            frames.append(await self.next())
        return frames

    async def messages(self, count: int) -> list[Any]:
        """Return the payloads of so many messages; other frames are skipped."""
        payloads: list[Any] = []
        while len(payloads) < count:
            frame = await self.next()
            if frame["op"] == "message":
                payloads.append(frame["payload"])
        return payloads


@asynccontextmanager
async def client_of(server: SubscriberServer, **options: Any) -> AsyncIterator[Client]:
    async with connect(
        server.url, compression=None, max_size=None, close_timeout=1, **options
    ) as connection:
        yield Client(connection)


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await scenario

    return asyncio.run(bounded())


async def figure(server: SubscriberServer, name: str) -> float:
    """Return the value of a figure at /metrics, 0 where it is not there."""
    _, text = await asyncio.to_thread(ask, server, "/metrics")
    lines = [line for line in text.splitlines() if line.startswith(f"bicycle_subscriber_{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def ask(server: SubscriberServer, path: str, **headers: str) -> tuple[int, str]:
    """Return code and text of an answer over HTTP."""
    url = f"http://{urlsplit(server.url).netloc}{path}"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers))
    except HTTPError as refusal:
        answer = refusal
    with answer:
        return answer.status, answer.read().decode()


async def reaches(server: SubscriberServer, name: str, value: float) -> None:
    """Return once a figure has a value; what calls it bounds the time."""
    while await figure(server, name) != value:
        await asyncio.sleep(0.02)
