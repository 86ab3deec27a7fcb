"""Servers in Java that tests start: their jars, and the end of those that a test left behind.

The jars are listed in a file, fetched once, and checked.
They come from where Kafka's come from. A row of a list has a SHA-256, a size in bytes, and Maven
coordinates, with the ending of the file where it is another than ``jar``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.dev.kafka_jars import FetchFailure, Jar, fetchers
from bicycle_runtime.dev.waiting import hold_lock

# Waits for the end of the tests, however they end, and kills the server that they left behind.
_GUARD = """
import os, signal, sys
from bicycle_runtime.base.processes import is_alive
pid, started = map(int, sys.argv[1:])
sys.stdin.read()
if is_alive(pid, started):
    os.kill(pid, signal.SIGKILL)
"""


def guard(server: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that kills a server when its input ends: at the latest, with the tests."""
    words = [sys.executable, "-c", _GUARD, str(server.pid), str(start_ticks(server.pid))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, start_new_session=True)


def listed_jars(listing: Path) -> list[Jar]:
    """Return the jars of a list."""
    rows = [line.split() for line in listing.read_text().splitlines() if not line.startswith("#")]
    return [_jar(*row) for row in rows]


def _jar(sha256: str, size: str, coordinates: str) -> Jar:
    group, artifact, version, *extension = coordinates.split(":")
    return Jar(
        group=group,
        artifact=artifact,
        version=version,
        sha256=sha256,
        size_bytes=int(size),
        extension=extension[0] if extension else "jar",
    )


def server_jars(listing: Path, shelf: Path) -> list[Path]:
    """Return the jars of a list; those that a folder of the cache lacks are fetched into it."""
    jars = listed_jars(listing)
    paths = [shelf / jar.file_name for jar in jars]
    shelf.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(shelf.with_name(f"{shelf.name}.lock"), timeout_s=900):
        missing = [jar for jar, path in zip(jars, paths, strict=True) if not path.is_file()]
        if missing:
            shelf.mkdir(exist_ok=True)
            _fetch(missing, shelf)
    return paths


def _fetch(jars: list[Jar], shelf: Path) -> None:
    problems = []
    for name, fetch in fetchers():
        with tempfile.TemporaryDirectory(dir=shelf) as folder:
            try:
                fetch(jars, Path(folder))
            except FetchFailure as error:
                problems.append(f"{name}: {error}")
                continue
            for jar in jars:
                path = Path(folder) / jar.file_name
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                assert digest == jar.sha256, (jar.coordinates, digest)
                path.replace(shelf / jar.file_name)
            return
    raise AssertionError(f"the jars of {shelf.name} cannot be had: {problems}")
