"""Count words through Kafka with the plugin ``wordcount_kafka``, and watch the counts come back.

This is what ``make demo-kafka`` runs. It starts a real broker and the job as anybody would, types
lines into the job's socket, and compares what comes out of the other socket with a count in plain
Python: a demo that is wrong must not look right. Everything it starts it also ends.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[2]
PLACE = Path(".build/demo-kafka")
PROGRAM = str(Path(sys.executable).with_name("bicycle"))
TOPICS = ("raw-lines", "word-counts")
PATIENCE_S = 90
LINES = (
    "the road goes on and on",
    "and the wheel goes round",
    "the road is long",
    "a wheel a road a word",
    "round and round the word goes on",
)


def main(arguments: list[str]) -> int:
    """Run the demo in a folder, ``.build/demo-kafka`` unless another one is named; 0: all right."""
    place = Path(arguments[0]) if arguments else PLACE
    shutil.rmtree(ROOT / place, ignore_errors=True)
    (ROOT / place).mkdir(parents=True)
    with _broker(place) as bootstrap:
        ports = _free_ports()
        with _job(place, bootstrap, ports), _connected(ports[1]) as counts:
            found = _typed(ports[0], counts)
    return report(found)


def missing_counts(line: str, seen: Counter[str]) -> set[str]:
    """Return what must come out for a line, as ``word:count``, and take note of its words."""
    expected = set()
    for word in line.lower().split():
        seen[word] += 1
        expected.add(f"{word}:{seen[word]}")
    return expected


def report(found: list[str]) -> int:
    """Compare all that came out with a plain count of the lines; return the exit status."""
    expected = Counter(" ".join(LINES).lower().split())
    counts: dict[str, list[int]] = {}
    for line in found:
        word, _, count = line.rpartition(":")
        counts.setdefault(word, []).append(int(count))
    wrong = [w for w in expected | counts.keys() if counts.get(w) != [*range(1, expected[w] + 1)]]
    if wrong:
        _say(f"WRONG: {len(wrong)} words differ from a plain count, such as {sorted(wrong)[:5]}")
        return 1
    _say(f"\n{len(found)} words, {len(counts)} different; each was counted exactly once, in order.")
    return 0


# --- what is started, and ended ----------------------------------------------------------------


@contextlib.contextmanager
def _broker(place: Path) -> Iterator[str]:
    """Run a broker with the two topics; give its address."""
    folder = str(place / "broker")
    answer = _bicycle("dev", "kafka", "start", "--port", "0", "--dir", folder)
    try:
        bootstrap = answer.partition("bootstrap=")[2].split()[0]
        for topic in TOPICS:
            create = ("dev", "kafka", "topics", "create", topic)
            _bicycle(*create, "--partitions", "4", "--dir", folder)
        yield bootstrap
    finally:
        _bicycle("dev", "kafka", "stop", "--dir", folder)


@contextlib.contextmanager
def _job(place: Path, bootstrap: str, ports: tuple[int, int]) -> Iterator[None]:
    """Run the job; what it says goes to a file, which is shown when the job ends too early."""
    words = [
        *("run", "--plugin", "wordcount_kafka", "--set", f"brokers={bootstrap}"),
        *("--set", f"source_port={ports[0]}", "--set", f"sink_port={ports[1]}"),
        *("--set", "host=127.0.0.1", "--checkpoint-dir", str(place / "checkpoints")),
    ]
    _say(f"$ bicycle {shlex.join(words)} &")
    log = ROOT / place / "job.log"
    with log.open("wb") as file:
        job = subprocess.Popen([PROGRAM, *words], cwd=ROOT, stdout=file, stderr=file)
    try:
        for port in ports:
            _wait_for_port(port, job)
        yield
        job.send_signal(signal.SIGTERM)
        if job.wait(PATIENCE_S) != 0:
            raise DemoError(f"the job ended with status {job.returncode}")
    except (DemoError, TimeoutError, subprocess.TimeoutExpired) as error:
        _say(log.read_text(errors="replace"))
        raise SystemExit(f"{error}; the log of the job stands above") from None
    finally:
        job.kill()
        job.wait()


@contextlib.contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        yield connection


class DemoError(Exception):
    """The demo cannot go on."""


def _bicycle(*words: str) -> str:
    """Show and run a command to its end, and show what it says."""
    _say(f"$ bicycle {shlex.join(words)}")
    done = subprocess.run(
        [PROGRAM, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    _say(done.stdout.rstrip())
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return done.stdout


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _wait_for_port(port: int, job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if job.poll() is not None:
            raise DemoError(f"the job ended with status {job.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise DemoError(f"the job took no connection within {PATIENCE_S} s")


# --- typing lines ------------------------------------------------------------------------------


def _typed(port: int, counts: socket.socket) -> list[str]:
    """Send line after line, and show what comes back for each; return all of it."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    _say("\nLines go into a socket, counts come out of another one (the first wait for Spark):\n")
    with _connected(port) as lines, counts.makefile(encoding="utf-8") as incoming:
        for line in LINES:
            started = time.monotonic()
            lines.sendall(f"{line}\n".encode())
            missing, came = missing_counts(line, seen), []
            while missing:
                came.append(_next_line(incoming))
                missing.discard(came[-1])
            found += came
            _say(f"> {line}\n  {'  '.join(came)}  ({time.monotonic() - started:.1f} s)")
    return found


def _next_line(incoming: TextIO) -> str:
    line = incoming.readline()
    if not line.endswith("\n"):
        raise DemoError("the job closed its socket")
    return line.rstrip("\n")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
