"""The gap in the output while a running job is upgraded to another version of its wheel.

A service has the job; lines are appended to its input ten times a second, and what is published is
counted all the time. The gap is the longest time without a new record around the upgrade, so it
includes the last epoch of one version and the first of the other. A second job has state first.
Both are upgraded by stop-and-go, and blue-green, where the version follows the job first.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import BUILD, Report, Table, Target, WrongOutputError, arguments

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import read_address

_PLUGIN = """
from dataclasses import dataclass
from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink

@dataclass(frozen=True, kw_only=True)
class Places:
    input: str
    output: str

def shown(line: str) -> str:
    return line + " by {version}"

def last(former: str, line: str) -> str:
    return line

@bicycle_plugin(name="relay", version="{version}")
def relay(env: StreamEnvironment, places: Places) -> None:
    lines = env.read_text(places.input).uid("lines")
    {steps}lines.map(shown).uid("shown").sink_to(file_sink(places.output, roll_ms=1)).uid("out")
"""
# The state of a key is its last line.
_KEYED = 'lines = lines.key_by(lambda line: line[:20]).reduce(last).uid("kept")\n    '
_STRATEGIES = ("stop-and-go", "blue-green")
_LINE_BYTES = 200
_FEED_S = 0.1
_LOOK_S = 0.02


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    state_mib = 2 if options.quick else options.state_mib
    report = Report(
        name="upgrade",
        claim="An upgrade interrupts the output of a stateless job for at most 5 s, and with "
        "1 GiB of state for at most 30 s.",
        payload=f"ten lines a second; the keyed job first has {state_mib:,} MiB of lines as state",
        method="an upgrade through the API of a service, with one epoch of following and one "
        "of watching, without a savepoint; the longest time without a new published "
        "record",
    )
    rows = []
    jobs = (("stateless", "", 0, 5.0), ("keyed", _KEYED, state_mib, 30.0))
    for (name, steps, mib, limit), strategy in itertools.product(jobs, _STRATEGIES):
        title = f"{name}, {strategy}"
        print(f"  {title} …", file=sys.stderr, flush=True)
        gaps = sorted(_gap_s(steps, mib, strategy) for _ in range(options.repeats))
        rows.append([title, f"{mib:,}", *(f"{each:.1f}" for each in gaps)])
        report.targets.append(
            Target(name=f"gap, {title}", value=gaps[len(gaps) // 2], unit="s", high=limit)
        )
    columns = ["seconds", "state, MiB", *(f"gap {number + 1}" for number in range(options.repeats))]
    report.tables.append(Table(title="Gap in the output", columns=columns, rows=rows))
    report.tell(options)


def _gap_s(steps: str, state_mib: int, strategy: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fed = folder / "in.txt"
        lines = (f"key-{number:016}" for number in range((state_mib << 20) // _LINE_BYTES))
        with fed.open("w") as stream:
            stream.writelines(f"{line}{'x' * (_LINE_BYTES - 21)}\n" for line in lines)
        with _served(folder) as url:
            _submit(url, folder, _wheel(folder, "1.0", steps))
            try:
                return _measured(url, folder, _wheel(folder, "2.0", steps), strategy)
            finally:
                _ask(url, "/api/v1/jobs/relay/cancel", {})


def _measured(url: str, folder: Path, wheel: Path, strategy: str) -> float:
    """Upgrade while lines are fed, and return the longest time without a new record."""
    end, times = threading.Event(), [time.monotonic()]
    output = folder / "out"
    count = (folder / "in.txt").read_bytes().count(b"\n")
    while _published(output) < count:
        time.sleep(_LOOK_S)
    feeder = threading.Thread(target=_feed, args=(folder / "in.txt", end))
    watcher = threading.Thread(target=_watch, args=(output, end, times))
    feeder.start()
    watcher.start()
    try:
        time.sleep(3)  # The rhythm before counts as well.
        times[:] = times[-1:]
        digest = _upload(url, wheel)
        _ask(
            url, "/api/v1/jobs/relay/upgrade",
            {"digest": digest, "epochs": 1, "skip_savepoint": True, "strategy": strategy},
        )  # fmt: skip
        time.sleep(2)
    finally:
        end.set()
        feeder.join()
        watcher.join()
    fed = (folder / "in.txt").read_bytes().count(b"\n")
    while (found := _published(output)) < fed:
        time.sleep(_LOOK_S)
    if found != fed:
        raise WrongOutputError(f"{fed} lines, {found} records")
    return max(later - former for former, later in itertools.pairwise(times))


def _feed(path: Path, end: threading.Event) -> None:
    number = 0
    while not end.wait(_FEED_S):
        with path.open("a") as stream:
            stream.write(f"fed-{number:016}\n")
        number += 1


def _watch(output: Path, end: threading.Event, times: list[float]) -> None:
    last = _published(output)
    while not end.wait(_LOOK_S):
        found = _published(output)
        if found > last:
            times.append(time.monotonic())
            last = found


_COUNTED: dict[Path, tuple[int, int]] = {}


def _published(output: Path) -> int:
    """Return the published records; a file that did not grow is not read again."""
    total = 0
    for path in output.glob("part*"):
        size = path.stat().st_size
        known = _COUNTED.get(path)
        if known is None or known[0] != size:
            known = _COUNTED[path] = (size, path.read_bytes().count(b"\n"))
        total += known[1]
    return total


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    home = Home(folder / "home")
    home.prepare()
    # Java's classes as they are kept from the first start on: a service has had jobs before.
    cache = BUILD / "spark-cache"
    cache.mkdir(parents=True, exist_ok=True)
    home.cache_dir.symlink_to(cache)
    words = [
        sys.executable,
        "-m",
        "bicycle_runtime.service_process.main",
        str(home.path),
        "127.0.0.1",
        "0",
    ]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ})
    try:
        while (address := read_address(home)) is None:
            if process.poll() is not None:
                raise RuntimeError((folder / "service.log").read_text())
            time.sleep(0.05)
        yield address["url"]
    finally:
        process.terminate()
        process.wait(30)


def _submit(url: str, folder: Path, wheel: Path) -> None:
    body = {
        "plugin": "relay", "digest": _upload(url, wheel), "name": "relay",
        "params": {"input": str(folder / "in.txt"), "output": str(folder / "out")},
        "options": {"follow": True, "latency_target_ms": 100},
    }  # fmt: skip
    _ask(url, "/api/v1/jobs", body)


def _upload(url: str, wheel: Path) -> str:
    edge = "edge-of-the-form"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="wheel"; filename="{wheel.name}"\r\n'
    data = f"{head}\r\n".encode() + wheel.read_bytes() + f"\r\n--{edge}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/api/v1/plugins", data, kind)
    ) as sent:
        return str(json.load(sent)["digest"])


def _ask(url: str, path: str, body: dict[str, Any]) -> None:
    """Ask for an operation, and wait until it is done."""
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), kind)
    with urllib.request.urlopen(request) as answer:
        operation = json.load(answer)
    while operation["state"] in ("waiting", "running"):
        with urllib.request.urlopen(f"{url}/api/v1/operations/{operation['id']}?wait=30") as answer:
            operation = json.load(answer)
    if operation["state"] != "done":
        raise RuntimeError(json.dumps(operation["error"]))


def _wheel(folder: Path, version: str, steps: str) -> Path:
    info = f"relay-{version}.dist-info"
    files = {
        "relay.py": _PLUGIN.format(version=version, steps=steps),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: relay\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "[bicycle.plugins]\nrelay = relay:relay\n",
    }
    record = "".join(f"{place},{_hash(text)},{len(text)}\n" for place, text in files.items())
    path = folder / f"relay-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(place, text)
    return path


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-mib", type=int, default=1_024, help="state of the keyed job")


if __name__ == "__main__":
    main()
