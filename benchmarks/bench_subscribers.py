"""What a thousand WebSocket clients cost the subscriber server: processor, rate, latency.

One process serves a file, two others are the clients, and this one sends messages at an even pace.
All clients subscribe to one stream, or a hundredth of them to each of a hundred. A payload tells
when it was sent, by the clock that all processes share; each client checks that it gets every
number once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from measuring import ROOT, Report, Table, Target, WrongOutputError, arguments, percentile
from workloads import scratch

sys.path.append(str(ROOT))  # The server is started as in the tests.
from bicycle_streams import connect
from tests.unit.streams.subscriber_server.subscribed import SubscriberServer

CLIENT_PROCESSES = 2
STREAMS = 100
_TEXT, _PING, _PONG = 1, 9, 10
_TWO_BYTES = 126
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    if options.quick:
        options.seconds, options.clients = 2, 100
    rounds: dict[int, list[Round]] = {1: [], STREAMS: []}
    for number in range(options.repeats):
        for streams, found in rounds.items():
            with scratch(f"subscribers-{number}-{streams}") as folder:
                found.append(_round(Path(folder), options, streams))
    _tell(options, rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round found: the share of what was to arrive, processor time, and latencies in s."""

    rate: float
    cost_us: float
    share: float
    memory_mb: float
    latencies: Sequence[float]


def _round(folder: Path, options: argparse.Namespace, streams: int) -> Round:
    url = f"file://{folder}/events.ss"
    # The file is looked at often, since its reader polls.
    words = ("--set", "create=if-missing", "--set", "poll_interval_ms=5")
    keys = [f"ticks-{number}" for number in range(streams)]
    count = options.rate * options.seconds
    with SubscriberServer(folder, f"{url}/{','.join(keys)}", *words) as server:
        assert server.process is not None
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        ready = context.Semaphore(0)
        shares = [
            [keys[number % streams] for number in range(begin, options.clients, CLIENT_PROCESSES)]
            for begin in range(CLIENT_PROCESSES)
        ]
        readers = [
            context.Process(target=_be_clients, args=(server.url, share, count, ready, results))
            for share in shares
        ]
        for reader in readers:
            reader.start()
        for _ in readers:
            ready.acquire()
        before, begun = _processor_s(server.process.pid), time.monotonic()
        asyncio.run(_send(url, keys, options.rate, count))
        found = [results.get() for _ in readers]
        took_s = max(end for _, end in found) - begun
        used_s = _processor_s(server.process.pid) - before
        memory_mb = _memory_mb(server.process.pid)
        for reader in readers:
            reader.join()
    latencies = sorted(each for some, _ in found for each in some)
    if len(latencies) != options.clients * count:
        raise WrongOutputError(f"{len(latencies)} messages came")
    return Round(
        rate=len(latencies) / took_s,
        cost_us=used_s / len(latencies) * 1e6,
        share=used_s / took_s,
        memory_mb=memory_mb,
        latencies=latencies,
    )


async def _send(url: str, keys: Sequence[str], rate: int, count: int) -> None:
    """Send to each stream so many messages a second; the streams take turns."""
    async with connect(url) as streamer:
        producer = await streamer.create_generic_producer()
        begun = time.monotonic()
        for number in range(count):
            for place, key in enumerate(keys):
                due = begun + (number + place / len(keys)) / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await producer.send_to(key, json.dumps({"n": number, "at": time.monotonic()}))


def _be_clients(url: str, keys: list[str], count: int, ready: Any, results: Any) -> None:
    asyncio.run(_subscribe_all(url, keys, count, ready, results))


async def _subscribe_all(url: str, keys: list[str], count: int, ready: Any, results: Any) -> None:
    """Be a client for each key; say when all have subscribed, and in the end what they saw."""
    gate = asyncio.Semaphore(50)  # Connections are not opened all at once.
    is_subscribed = asyncio.Semaphore(0)
    latencies: list[float] = []

    async def client(key: str) -> None:
        async with gate:
            socket = await _Socket.open(url)
            socket.send(_TEXT, json.dumps({"op": "subscribe", "id": "a", "stream": key}).encode())
            await socket.receive()
        is_subscribed.release()
        for number in range(count):
            payload = json.loads(await socket.receive())["payload"]
            latencies.append(time.monotonic() - payload["at"])
            if payload["n"] != number:
                raise WrongOutputError(f"{payload['n']} came in place of {number}")
        await socket.close()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client(key)) for key in keys]
        for _ in tasks:
            await is_subscribed.acquire()
        ready.release()
    results.put((latencies, time.monotonic()))


class _Socket:
    """As little of a WebSocket client as the server needs: a library takes five times its time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> _Socket:
        """Connect and shake hands."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        lines = [
            f"GET {place.path} HTTP/1.1", f"Host: {place.netloc}", "Upgrade: websocket",
            "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
        ]  # fmt: skip
        writer.write("\r\n".join(lines).encode())
        await reader.readuntil(b"\r\n\r\n")
        return cls(reader, writer)

    def send(self, kind: int, payload: bytes) -> None:
        """Send a short frame, with a mask that changes nothing."""
        self._writer.write(bytes([0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    async def receive(self) -> bytes:
        """Return the next text; pings are answered."""
        while True:
            kind, size = await self._reader.readexactly(2)
            if size == _TWO_BYTES:
                size = int.from_bytes(await self._reader.readexactly(2))
            payload = await self._reader.readexactly(size)
            if kind & 0x0F != _PING:
                return payload
            self.send(_PONG, payload)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


def _processor_s(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _tell(options: argparse.Namespace, rounds: dict[int, list[Round]]) -> None:
    def both(value: Callable[[Round], float], found: list[Round], digits: int = 1) -> list[str]:
        values = [value(each) for each in found]
        return [f"{statistics.median(values):,.{digits}f}", f"{min(values):,.{digits}f}"]

    rows = []
    for streams, found in rounds.items():
        name = f"{streams} stream{'s' if streams > 1 else ''}: "
        rows += [
            [f"{name}latency p50, ms", *both(lambda r: percentile(r.latencies, 0.5) * 1e3, found)],
            [f"{name}latency p99, ms", *both(lambda r: percentile(r.latencies, 0.99) * 1e3, found)],
            [f"{name}processor time of a frame, us", *both(lambda r: r.cost_us, found)],
            [f"{name}share of a core", *both(lambda r: r.share, found, 2)],
            [f"{name}memory, MB", *both(lambda r: r.memory_mb, found)],
        ]
    wanted = options.clients * options.rate
    targets = [
        Target(
            name=f"frames a second through {streams} stream{'s' if streams > 1 else ''}",
            value=statistics.median(each.rate for each in found),
            best=max(each.rate for each in found),
            low=0.95 * wanted,
            unit="/s",
        )
        for streams, found in rounds.items()
    ]
    Report(
        name="subscribers",
        claim="The subscriber server sends ten messages a second to each of a thousand "
        "clients on this machine.",
        payload=f"{options.clients:,} clients, {options.rate} messages a second for each, "
        f"{options.seconds} s; each client gets every message once, in order",
        method=f"{options.repeats} rounds; one process is the server, {CLIENT_PROCESSES} are "
        "clients, one sends; all share the cores of this machine. Latency is the time "
        "from before the send until the client has decoded the JSON; the client "
        "processes are the busiest",
        tables=[Table(title="Server", columns=["", "median", "best"], rows=rows)],
        targets=targets,
        notes=[
            "if the load is far above the number of cores, the clients wait for a core, "
            "which limits latency and rate; the server's share of a core shows its real need."
        ],
    ).tell(options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=1_000, help="default %(default)s")
    parser.add_argument("--rate", type=int, default=10, help="messages a second for each client")
    parser.add_argument("--seconds", type=int, default=20, help="default %(default)s")


if __name__ == "__main__":
    main()
