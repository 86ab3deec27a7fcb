"""What producing and consuming a message costs by the toolkit: files and Redis.

One process sends all messages, and another round of it reads them. The cost is the processor time
of this process for one message, so that other load of the machine counts little; a rate is its
inverse. Payloads that are read are compared with those that were sent. A process of its own tells
what the import costs, and how much memory files of two sizes take.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from measuring import ROOT, Report, Table, Target, WrongOutputError, arguments, run_program
from workloads import scratch

sys.path.append(str(ROOT))  # The server is that of the tests.
from bicycle_streams import At, Streamer, connect
from tests.redis.redis_server import RedisServer

BATCH = 1_000
SIZE = 256
OPTIONS: dict[str, dict[str, object]] = {"file": {"create": "if-missing"}, "redis": {}}
# Messages per second of processor time that the issue of the toolkit asks for.
TARGETS = {
    ("file", "send in batches"): 460_000,
    ("file", "send one by one"): 150_000,
    ("file", "read in batches"): 400_000,
    ("file", "read one by one"): 150_000,
    ("redis", "send in batches"): 100_000,
    ("redis", "read in batches"): 100_000,
}
# Sends and reads a file in batches, and tells what the import took, and the most memory in MB.
ALONE = """
import asyncio, sys, time
begun = time.process_time()
from bicycle_streams import connect
loaded_ms = (time.process_time() - begun) * 1e3
url, count, batch, size = sys.argv[1], *map(int, sys.argv[2:])

async def main():
    async with connect(url, {"create": "if-missing"}) as streamer:
        producer = await streamer.create_producer("a")
        for _ in range(0, count, batch):
            await producer.send_many([bytes(size)] * batch)
        consumer = await streamer.create_consumer("a", start="earliest", is_live=False)
        assert sum([len(found) async for found in consumer.batches(batch)]) == count

asyncio.run(main())
with open("/proc/self/status") as status:
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM")]
print(loaded_ms, int(peak) / 1024)
"""


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    count = 20_000 if options.quick else options.messages
    alone: dict[int, list[tuple[float, float]]] = {count // 10: [], count: []}
    costs: dict[tuple[str, str], list[float]] = {}
    seeks: list[float] = []
    server = RedisServer()
    try:
        with scratch("streams") as folder:
            for number in range(options.repeats):
                for backend in ("file", "redis"):
                    place = _place(backend, server, Path(folder), number)
                    for name, work in WORKS.items():
                        cost = _cost(place, OPTIONS[backend], partial(work, count=count), count)
                        costs.setdefault((backend, name), []).append(cost)
                for part, found in alone.items():
                    found.append(_alone(Path(folder) / f"alone-{number}-{part}.ss", part))
                path = _place("file", server, Path(folder), number)
                seeks.append(asyncio.run(_seek(path, count)))
    finally:
        server.remove()
    _tell(options, costs, seeks, alone)


def _place(backend: str, server: RedisServer, folder: Path, number: int) -> str:
    if backend == "file":
        return f"file://{folder}/events-{number}.ss"
    with server.client as client:
        client.flushall()
    return server.uri


def _cost(
    uri: str, options: dict[str, object], work: Callable[..., Awaitable[None]], count: int
) -> float:
    """Return the microseconds of processor time that one message takes."""

    async def whole() -> float:
        async with connect(uri, options) as streamer:
            begun = time.process_time()
            await work(streamer)
            return time.process_time() - begun

    return asyncio.run(whole()) / count * 1e6


async def _send_batches(streamer: Streamer, *, count: int) -> None:
    producer = await streamer.create_producer("batches")
    for begin in range(0, count, BATCH):
        await producer.send_many(_payload(number) for number in range(begin, begin + BATCH))
    await producer.flush()


async def _send_one_by_one(streamer: Streamer, *, count: int) -> None:
    producer = await streamer.create_producer("singles")
    for number in range(count):
        producer.send(_payload(number))
        if number % BATCH == BATCH - 1:
            await producer.flush()
    await producer.flush()


async def _read_one_by_one(streamer: Streamer, *, count: int) -> None:
    consumer = await streamer.create_consumer("singles", start="earliest", is_live=False)
    number = 0
    async for message in consumer:
        if message.payload != _payload(number):
            raise WrongOutputError(f"message {number} differs")
        number += 1
    if number != count:
        raise WrongOutputError(f"{number} of {count} messages were read")


async def _read_batches(streamer: Streamer, *, count: int) -> None:
    consumer = await streamer.create_consumer("batches", start="earliest", is_live=False)
    number = 0
    async for batch in consumer.batches(BATCH):
        for message in batch:
            if message.payload != _payload(number):
                raise WrongOutputError(f"message {number} differs")
            number += 1
    if number != count:
        raise WrongOutputError(f"{number} of {count} messages were read")


def _alone(path: Path, count: int) -> tuple[float, float]:
    """Return what the import takes in ms of the processor, and the most memory in MB."""
    words = (f"file://{path}", str(count), str(BATCH), str(SIZE))
    loaded_ms, peak_mb = run_program([sys.executable, "-c", ALONE, *words]).split()
    path.unlink()
    return float(loaded_ms), float(peak_mb)


async def _seek(uri: str, count: int) -> float:
    """Return the milliseconds that a seek into the middle takes, the best of ten."""
    found = []
    async with connect(uri) as streamer:
        consumer = await streamer.create_consumer("batches", start="earliest")
        for part in range(1, 11):
            begun = time.perf_counter()
            await consumer.rewind(At(count * part // 11 + 1))
            found.append((time.perf_counter() - begun) * 1e3)
            if (await consumer.next()).sequence != count * part // 11 + 1:
                raise WrongOutputError("a seek found another message")
    return min(found)


def _payload(number: int) -> bytes:
    return b"%08d" % number + FILL


FILL = b"x" * (SIZE - 8)
WORKS: dict[str, Callable[..., Awaitable[None]]] = {
    "send in batches": _send_batches,
    "send one by one": _send_one_by_one,
    "read in batches": _read_batches,
    "read one by one": _read_one_by_one,
}


def _tell(
    options: argparse.Namespace,
    costs: dict[tuple[str, str], list[float]],
    seeks: list[float],
    alone: dict[int, list[tuple[float, float]]],
) -> None:
    count = max(alone)
    rows = [
        [f"{backend}: {name}", f"{statistics.median(each):.2f}", f"{min(each):.2f}"]
        for (backend, name), each in costs.items()
    ]
    targets = [
        Target(
            name=f"{backend}: {name}",
            value=1e6 / statistics.median(costs[backend, name]),
            best=1e6 / min(costs[backend, name]),
            low=low,
            unit="/s",
        )
        for (backend, name), low in TARGETS.items()
    ]
    targets.append(
        Target(
            name="file: seek", value=statistics.median(seeks), best=min(seeks), high=10, unit="ms"
        )
    )
    loads = [loaded_ms for found in alone.values() for loaded_ms, _ in found]
    targets.append(
        Target(name="import", value=statistics.median(loads), best=min(loads), high=150, unit="ms")
    )
    for part, found in alone.items():
        peaks = [peak_mb for _, peak_mb in found]
        name = f"file: memory with {part:,} messages"
        targets.append(
            Target(name=name, value=statistics.median(peaks), best=min(peaks), high=100, unit="MB")
        )
    Report(
        name="streams",
        claim="Per second of processor time, the toolkit sends 460,000 and reads 400,000 "
        "messages in files, and 100,000 each way in Redis.",
        payload=f"{count:,} messages of {SIZE} bytes",
        method=f"{options.repeats} rounds; one process, processor time of the client without "
        "the server; comparing the payloads is part of reading; separate processes "
        "for the import (processor time) and memory (the peak)",
        tables=[
            Table(title="One message", columns=["us of the processor", "median", "best"], rows=rows)
        ],
        targets=targets,
    ).tell(options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=1_000_000, help="default %(default)s")


if __name__ == "__main__":
    main()
