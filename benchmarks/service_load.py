"""Requests at fixed times, and open streams: ``python service_load.py URL SECONDS``.

A late answer does not delay the next request, and a time counts from when the request was due, so
that what waits is not left out. Prints one JSON object: milliseconds by kind of request.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

_JSON_PER_S = 10
_PAGES_PER_S = 2
_STREAM_COUNT = 10
_PAGES = ("/jobs", "/", "/jobs/job-007", "/jobs/job-001/logs")


async def _get(place: tuple[str, int], path: str) -> int:
    """Return the length of an answer, read to its end."""
    reader, writer = await asyncio.open_connection(*place)
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.read()
    finally:
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ValueError(f"{path}: {answer[:200]!r}")
    return len(answer)


async def _at(due_s: float, place: tuple[str, int], path: str, found: list[float]) -> None:
    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    await _get(place, path)
    found.append((time.monotonic() - due_s) * 1e3)


async def _stream(place: tuple[str, int], path: str) -> None:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n\r\n".encode())
    while await reader.read(1 << 16):
        pass


async def _load(url: str, seconds: float) -> dict[str, list[float]]:
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or 0)
    names = "&".join(f"job=job-{number:03}" for number in range(50))
    paths = ("/live/dashboard", f"/live/jobs?{names}", "/live/jobs/job-003/overview")
    streams = [
        asyncio.create_task(_stream(place, paths[number % len(paths)]))
        for number in range(_STREAM_COUNT)
    ]
    began_s = time.monotonic() + 1.0
    found: dict[str, list[float]] = {"json": [], "pages": []}
    asked = [
        _at(began_s + number / _JSON_PER_S, place, "/api/v1/jobs", found["json"])
        for number in range(int(seconds * _JSON_PER_S))
    ]
    asked += [
        _at(began_s + number / _PAGES_PER_S, place, _PAGES[number % len(_PAGES)], found["pages"])
        for number in range(int(seconds * _PAGES_PER_S))
    ]
    await asyncio.gather(*asked)
    for stream in streams:
        stream.cancel()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_load(sys.argv[1], float(sys.argv[2])))))
